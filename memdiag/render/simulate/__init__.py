"""Forms of simulated runs (``memdiag simulate``), and the sections of the terminal form."""
