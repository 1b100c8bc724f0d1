"""A trace in the formats of other tools: one file per format, each with ``write(trace, path)``."""
