"""The result of ``memdiag record --find-max``, for people and for programs."""
