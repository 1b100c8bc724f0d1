"""The trace model, and how it is built from a file's columns."""
