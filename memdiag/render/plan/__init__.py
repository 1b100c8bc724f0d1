"""Forms of a plan of placements (``memdiag plan``)."""
