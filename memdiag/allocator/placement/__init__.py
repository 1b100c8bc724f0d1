"""Offline placement: all lifetimes are known beforehand, and each tensor gets one offset for its whole life.

The textbooks call it dynamic storage allocation; it is NP-complete. ``api.plan`` is the door: numpy columns in, a
``Plan`` out. The height of a plan can never be below the *load*, the most bytes live at one moment; how far above it is
what an allocator that knew the future would still lose.
"""
