"""An allocator that serves repeating steps from a static plan, and all other requests as PyTorch's own allocator does.

Planners for training, such as STAlloc, work like this. A run is profiled once. Its plan has an offset for permanent
tensors, for tensors of initialisation, and for each request of one step. A new run of the program follows the plan step
by step (``loop``). A request that matches a slot gets its offset; all others use the fallback allocator. The same loop
with a separate segment for each request gives the lower bound of any allocator (``bound``).
"""
