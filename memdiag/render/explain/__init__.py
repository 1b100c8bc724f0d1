"""Forms of the pages that ``memdiag explain`` shows."""
