"""Offline placement: all lifetimes are known in advance, and each tensor gets one offset for its whole life.

Textbooks call this problem dynamic storage allocation; it is NP-complete. The entry point ``api.plan`` takes numpy
columns and returns a ``Plan``. The height of a plan is at least the *load*, the largest number of bytes live at one
moment. The difference is the loss that even an allocator with full knowledge of the future would have.
"""
