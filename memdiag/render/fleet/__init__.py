"""Forms of the report on many ranks (``memdiag fleet``), and the words that they share."""
