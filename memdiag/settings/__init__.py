"""Allocator settings: the meaning of each key of PYTORCH_CUDA_ALLOC_CONF and the variables of other backends.

Does not import numpy.
"""
