"""Code shared by renderers of several commands: pages, charts, words, and safe text."""
