"""Private pools: memory that only one CUDA graph or MemPool can use."""

from __future__ import annotations

from memdiag.diagnosis.remedies.model import Plain, Situation, of_backends
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix


class _Share:
    """Captures graphs into one pool, in which they use the same memory one after the other."""

    key = "remedies.share"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the call that captures into the pool of another graph; None on backends without graphs."""
        if situation.backend not in {"cuda", "hip", "npu"}:
            return None
        return LazyFix("remedies.share", "code", f"{situation.module}.graph(graph, pool=first.pool())").fix()


_GRAPHS = of_backends("cuda", "hip")

COMPILE = Plain(
    LazyFix("remedies.compile", "code", 'model = torch.compile(model)  # not mode="reduce-overhead"'), _GRAPHS
)
SHARE = _Share()
EAGER = Plain(LazyFix("oom_shared.eager", "flag", "--enforce-eager", when="remedies.eager.engines"), _GRAPHS)
