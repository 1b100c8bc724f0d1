"""PyTorch's CUDA caching allocator with expandable segments, whatever else is set."""
