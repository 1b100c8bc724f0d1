"""Best fit with coalescing and without size classes: what PyTorch's size classes and segment sizes cost or save."""
