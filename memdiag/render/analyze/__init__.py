"""Forms of the report of ``memdiag analyze``, and their shared parts."""
