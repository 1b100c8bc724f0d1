"""The result of ``memdiag export``."""
