"""Forms of what ``memdiag doctor`` found on a machine."""
