"""The cause of a message that prints no sizes: what the lines around it say of where it failed."""

from __future__ import annotations

import re

from memdiag.oom.model import Cause, Judgement

# Words, the cause, runners-up, and what to say.
_CONTEXT: tuple[tuple[str, Cause, tuple[Cause, ...], str], ...] = (
    (
        r"wake_?up|cumem|create_and_map",
        "limit", ("other_process", "unknown"),
        "it failed while a sleeping engine mapped its memory again: others took it in the meantime, or the engine's share is too high",
    ),
    (
        r"capture_end|capture_begin|capture_model|graph_capture|cudaGraphInstantiate",
        "limit", ("workspace_or_comm", "capacity"),
        "it failed while CUDA graphs were captured: too little was left beside the share of memory that was set aside",
    ),
    (r"nccl|hccl|init_process_group|all_?reduce", "workspace_or_comm", ("capacity", "unknown"), "it failed in a communication library"),
    (r"cudnn|cublas|miopen|workspace", "workspace_or_comm", ("capacity", "unknown"), "it failed where a library takes its workspace"),
)  # fmt: skip


def without_numbers(context: str) -> Judgement:
    """Returns the cause of a message that prints no sizes, from the lines around it."""
    for expression, cause, others, reason in _CONTEXT:
        if re.search(expression, context, re.IGNORECASE):
            return Judgement(cause, "low", others, (f"No sizes are printed; {reason}.",))
    return Judgement("unknown", "low", ("capacity",), ("No sizes are printed, so nothing can be worked out.",))
