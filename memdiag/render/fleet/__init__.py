"""Forms of the report on many ranks (``memdiag fleet``), and their shared words."""
