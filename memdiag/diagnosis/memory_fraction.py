"""The memory fraction of an inference server with which a start that failed has room.

The engine sizes its KV cache so that it fills this fraction of the card. An allocation that fails after that lacks the
memory that the message names, and the start goes on to allocate more, so the new fraction leaves room for both.
"""

from __future__ import annotations

import math
import re

from memdiag.units import MIB

DEFAULT = 0.9  # of vLLM before 0.33
LATER_BYTES = 150 * MIB  # for what the start allocates later; vLLM leaves as much when it suggests --kv-cache-memory
WORKSPACE_BYTES = 394 * MIB  # of FlashInfer's attention in vLLM, allocated after the KV cache (vllm#57475)
WITHOUT_FIGURES = 0.1  # to lower the fraction by, if the message names no sizes
_OF_VLLM = re.compile(
    r"(?<!equivalent to )(?<!equivalent to `)(?<![\w-])(?:--)?gpu[_-]memory[_-]utilization['\"]?[:= ]+"
    r"(?P<value>[01]?\.\d{1,6}|1(?:\.0)?)\b"
)
_ALLOCATES_CACHE = re.compile(r"in (?:_?allocate_kv_cache\w*|_?init(?:ialize)?_kv_cache_tensors|_allocate_kv\w*)\b")


def fraction_down(value: float) -> str:
    """Returns a fraction with two decimals, rounded down: "0.89"."""
    return f"{math.floor(value * 100 + 1e-6) / 100:.2f}"


def allocates_cache(text: str) -> bool:
    """Returns whether the traceback in a text ends where vLLM allocates its KV cache."""
    return _ALLOCATES_CACHE.search(text) is not None


def utilization_in(text: str) -> float | None:
    """Returns the last ``gpu_memory_utilization`` that a text sets; None if it has none."""
    found = None
    for match in _OF_VLLM.finditer(text):
        found = float(match["value"])
    return found


def lower_utilization(now: float | None, total: int | None, missing: int | None, *, is_cache: bool = False) -> str:
    """Returns the value of ``--gpu-memory-utilization`` that leaves room for an allocation that failed.

    Args:
        now: The current value; None if unknown.
        total: Memory of the card in bytes; None if unknown.
        missing: Bytes that the allocation lacked; None if unknown.
        is_cache: Whether the allocation was the KV cache itself, so that the workspace of attention is still to come.
    """
    now = DEFAULT if now is None else now
    if not total or missing is None:
        return fraction_down(max(now - WITHOUT_FIGURES, 0.1))
    return fraction_down(max(now - (missing + later_bytes(is_cache=is_cache)) / total, 0.1))


def later_bytes(*, is_cache: bool) -> int:
    """Returns the bytes to leave for what the start allocates after an allocation that failed."""
    return max(LATER_BYTES, WORKSPACE_BYTES if is_cache else 0)
