"""Simulated devices: real training programs and PyTorch's real allocator, without an accelerator.

A simulated device replaces the libraries between PyTorch and the driver. PyTorch's own caching allocator runs above it
unchanged and makes every decision. Memory is a counter with a limit, and kernels do nothing. The result is the
allocation trace, or the out-of-memory error, that the program would have on the device.

This package defines the devices (``profiles``), compiles the simulated libraries on the user's machine (``build``), and
prepares the program's environment (``launch``). The simulated libraries themselves are C and C++ in the subfolders.
"""
