"""Forms of the report on out-of-memory messages (``memdiag oom``), and their shared parts."""
