"""Block and segment sizes of the modelled allocators: one module for each, with the original names."""
