"""Forms of the result of ``memdiag lint``."""
