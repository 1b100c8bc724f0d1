"""Allocator settings: what each key of PYTORCH_CUDA_ALLOC_CONF and its kin means. Loads no numpy."""
