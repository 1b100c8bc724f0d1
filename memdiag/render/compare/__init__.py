"""Forms of a comparison of traces (``memdiag compare``), and their shared rows and curves."""
