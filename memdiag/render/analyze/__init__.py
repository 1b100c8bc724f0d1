"""Forms of the report of ``memdiag analyze``, and the parts that they share."""
