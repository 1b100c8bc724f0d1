"""The summary of a recorded run."""
