"""The result of ``memdiag bisect``."""
