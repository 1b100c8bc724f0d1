"""Remedies for private pools: memory that CUDA graphs retain, even if it is free."""

from __future__ import annotations

from memdiag.oom.advice.case import Case
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix


def less_graphs(case: Case) -> list[Fix]:
    """Returns how to capture fewer graphs in the program's own options; empty on backends without such pools."""
    if case.backend not in {"cuda", "hip"}:
        return []
    sizes = {
        "vllm": (
            "--compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8]}'",
            "vLLM >= 0.8; --enforce-eager: none",
        ),
        "sglang": ("--cuda-graph-max-bs 16", "SGLang; --disable-cuda-graph: none"),
    }
    if case.engine in sizes:
        change, where = sizes[case.engine]
        return [LazyFix("oom_graphs.sizes", "flag", change, {"program": where}).fix()]
    return list(case.offers("compile-without-graphs", "shared-graph-pool", "no-graphs"))
