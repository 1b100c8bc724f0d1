"""Code that analyzers share, and code that runs predictions."""
