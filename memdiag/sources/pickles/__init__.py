"""Reads pickles of plain data without Python's unpickler.

A pickle is a program, and Python's unpickler executes it. This package has its own interpreter that accepts only the
opcodes of plain data (numbers, text, lists, tuples, sets, dicts). It writes a *tape*: flat arrays of tagged 64-bit
values. It creates no objects, looks up no names and calls nothing. A file that requests any of this is refused, with
the requested name, before anything is built. It is also several times faster than creating a million dicts.
"""

from __future__ import annotations

from memdiag.sources.pickles.tape import Tape, end_of_pickle, read_tape

__all__ = ["Tape", "end_of_pickle", "read_tape"]
