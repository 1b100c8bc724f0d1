"""The one model of a trace, and how it is worked out from a file's columns."""
