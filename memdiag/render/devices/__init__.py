"""The simulated devices, for ``memdiag devices``."""
