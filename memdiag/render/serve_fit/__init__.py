"""Forms of the result of ``memdiag serve-fit``."""
