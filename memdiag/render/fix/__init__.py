"""Forms of the result of ``memdiag fix``."""
