"""PyTorch's CUDA caching allocator with expandable segments, in addition to the other settings."""
