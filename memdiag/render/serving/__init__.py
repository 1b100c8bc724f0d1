"""Forms of the result of ``memdiag serving``."""
