"""Devices that are not there: real training programs, the real allocator of PyTorch, and no card.

A phantom device is a stand-in for the libraries between PyTorch and the driver. PyTorch's own caching allocator runs
above it unchanged and makes every decision; memory is a counter with a limit, kernels do nothing. What comes out is the
trace of allocations, or the out-of-memory error, that the program would have met on the device.

This room holds what a device is (``profiles``), how the stand-ins are compiled on the user's machine (``build``) and
what a program must find in its environment (``launch``). The stand-ins themselves are C and C++ in the folders beside.
"""
