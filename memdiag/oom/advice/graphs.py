"""Remedies against private pools: what CUDA graphs keep for themselves, whatever lies free in it."""

from __future__ import annotations

from memdiag.findings import Fix
from memdiag.oom.advice.case import Case


def less_graphs(case: Case) -> list[Fix]:
    """Returns how to capture less, in the words of the program that captures; empty on backends without such pools."""
    if case.backend not in {"cuda", "hip"}:
        return []
    sizes = {
        "vllm": ("--compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8]}'", "vLLM >= 0.8; --enforce-eager: none"),
        "sglang": ("--cuda-graph-max-bs 16", "SGLang; --disable-cuda-graph: none"),
    }
    if case.engine in sizes:
        change, where = sizes[case.engine]
        return [Fix("Capture graphs of fewer sizes, or none", "flag", change, where, "other sizes are padded, or decode slower")]
    return [
        Fix("Compile without CUDA graphs", "code", 'model = torch.compile(model)  # not mode="reduce-overhead"', "torch.compile",
            'steps of many small kernels get slower; mode="max-autotune-no-cudagraphs" keeps the tuning'),
        Fix("Let graphs share one pool, and free those that are done with", "code", "torch.cuda.graph(graph, pool=first.pool())",
            "graphs captured by hand", "graphs of one pool must be replayed in the order of their capture"),
        Fix("Capture fewer sizes, or none", "flag", "--enforce-eager", "vLLM; SGLang: --cuda-graph-max-bs, --disable-cuda-graph",
            "decoding gets slower"),
    ]  # fmt: skip
