"""Data of pictures of a trace, computed once: curves with few points, the heap at a moment, bytes by call stack.

Every drawing (page, plot) uses it.
"""
