"""Many traces at once: one report for all ranks of a run, by local processes or by Ray."""
