"""What would have happened: models of allocators that replay a trace (none yet)."""
