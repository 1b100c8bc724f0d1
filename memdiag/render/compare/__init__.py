"""Forms of a comparison of traces (``memdiag compare``), and the rows and curves that they share."""
