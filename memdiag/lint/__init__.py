"""Finds patterns in source code that cost memory or stall the device, without running it: ``memdiag lint``.

A file is parsed, never imported. Each rule is one file in ``rules/``: a code, the problem and its reason, the fix, and
a function that finds the places. A rule reports only problems that the source text proves, and never guesses.
"""
