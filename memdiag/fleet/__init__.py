"""Many traces at once: one report for all ranks of a run, with local processes or Ray."""
