"""Sizes in torch_npu's caching allocator (NPUCachingAllocator.cpp) that differ from CUDA's, and one of HCCL."""

from __future__ import annotations

from memdiag.units import GIB, KIB, MIB

PAD = 32  # added to each request before it is rounded
HUGE_PAGE = GIB  # page_size:1g
ALIGNED_FROM = 2 * MIB  # rounded requests of at least this size begin at multiples of base_addr_aligned_kb
ALIGNMENT = 16 * KIB  # default of base_addr_aligned_kb
HCCL_BUFFER_MB = 200  # MiB, default of HCCL_BUFFSIZE; a communicator has two such buffers
