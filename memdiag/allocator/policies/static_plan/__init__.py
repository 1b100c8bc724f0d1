"""An allocator that serves repeating steps from places planned beforehand, and what differs from PyTorch's own allocator beside them.

This is how planners for training (STAlloc and its kin) work. A run is profiled once; its plan has a place for what
stays, for what initialisation needs, and for each request of one step. A new run of the program walks through the plan
step by step (``loop``): a request that finds its own gets its place, all others fall back. The same loop, with a
segment of its own for each request, gives the lower bound of any allocator (``bound``).
"""
