"""The command line: one file per command, which parses options, calls memdiag and renders the result.

Slow imports are deferred until a command runs.
"""
