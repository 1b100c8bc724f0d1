"""Results of commands: dataclasses only, created by higher-level packages, shown by renderers, stable as JSON."""
