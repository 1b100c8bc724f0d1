"""Pieces that renderers of several commands share: pages, charts, words, and text made safe to show."""
