"""Forms of the readings of ``memdiag watch``."""
