"""Forms of the report on out-of-memory messages (``memdiag oom``), and the parts that they share."""
