"""A trace in the formats of other tools: one file a format, each with ``write(trace, path)``."""
