"""The compiled allocator model, with the function names of CUDACachingAllocator.cpp.

Policies decide sizes, the engine addresses.
"""
