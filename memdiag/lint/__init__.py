"""Habits in source code that cost memory or stall the device, found without running it: ``memdiag lint``.

A file is parsed, never imported. Each rule is one file in ``rules/``: a code, what is wrong and why, the fix, and a
function that points at the places. A rule reports what the text itself shows; where it would have to guess, it keeps
silent.
"""
