"""The lower bound: the most bytes that are live at one moment."""
