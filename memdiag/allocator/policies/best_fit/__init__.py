"""Best fit with coalescing and without size classes, to measure the effect of PyTorch's size classes."""
