"""Search over allocator settings: their values, the order of trials, and the smallest device that fits."""
