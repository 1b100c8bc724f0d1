"""Runs of a program: record, summarize and repeat them, or simulate a recorded one under other settings."""
