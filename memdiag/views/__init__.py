"""What pictures of a trace show, worked out once: curves in few points, the heap at a moment, bytes by call stack.

Every drawing (page, plot) takes it from here.
"""
