"""Runs of a command: record one, summarize it, repeat it under other settings, find the largest value that fits."""
