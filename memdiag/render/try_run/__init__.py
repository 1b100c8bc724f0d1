"""Prediction and result of ``memdiag try``."""
