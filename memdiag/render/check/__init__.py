"""Forms of the result of ``memdiag check``."""
