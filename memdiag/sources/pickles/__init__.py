"""Reads pickles of plain data without Python's unpickler.

A pickle is a program; Python's unpickler runs it. This package has a machine of its own that knows only the opcodes of
plain data (numbers, text, lists, tuples, sets, dicts) and writes a *tape*: flat arrays of tagged 64-bit values. No
object is made, no name is looked up, nothing can be called; a file that asks for it is refused by name before anything
is built. It is also several times faster than making a million dicts.
"""

from __future__ import annotations

from memdiag.sources.pickles.tape import Tape, read_tape

__all__ = ["Tape", "read_tape"]
