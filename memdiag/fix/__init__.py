"""Chooses remedies for a program, applies them without editing it, and compares prediction and measurement.

A remedy is one file in ``remedies/``: it looks at a recording and proposes itself, with the change of the requests that
it predicts. Its part that runs in the program is one file in ``inside/``.
"""
