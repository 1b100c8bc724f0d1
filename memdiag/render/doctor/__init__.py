"""Forms of the result of ``memdiag doctor``."""
