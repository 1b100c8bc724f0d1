"""Forms of the result of a search for settings (``memdiag tune``)."""
