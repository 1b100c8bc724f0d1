"""Block and segment sizes of the allocators that memdiag models: one module for each, with the names of the original."""
