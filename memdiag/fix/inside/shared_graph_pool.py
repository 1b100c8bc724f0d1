"""Captures CUDA graphs into one private pool."""

import functools

import torch


def shared_graph_pool():
    """Makes graphs for which the program names no pool use a common one."""
    original = torch.cuda.CUDAGraph.capture_begin
    handles = []

    @functools.wraps(original)
    def capture_begin(self, pool=None, *args, **kwargs):
        if pool is None:
            if not handles:
                handles.append(torch.cuda.graph_pool_handle())
            pool = handles[0]
        return original(self, pool, *args, **kwargs)

    torch.cuda.CUDAGraph.capture_begin = capture_begin
