"""Tables of rotary embeddings, which inference engines keep with the weights on each card.

vLLM computes a table of cosines and sines for each kind of layer (rotary_embedding/ in its source), with one row for
each position. Linear and dynamic scaling multiply the rows by their factor, so that gemma-3 has 0.5 GiB of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BYTES = 2  # of a number in a 16-bit model
_MULTIPLIED = {"linear", "dynamic"}
_FROM_ORIGINAL = {"yarn", "deepseek_yarn"}
_VIDEO_ROWS = 4  # vLLM's factor for positions in videos (mrope)


# Kinds of models with learned positions, or with a bias by distance
_WITHOUT = frozenset({"gpt2", "gpt_bigcode", "gpt_neo", "opt", "bloom", "mpt", "biogpt", "xglm", "jamba", "bamba_nope"})


def table_bytes(text: Mapping[str, Any], dimensions: int, longest: int = 0) -> int:
    """Returns the bytes of the tables of a decoder.

    Args:
        text: Its configuration.
        dimensions: Numbers of a head that rotate, if the configuration has no partial factor.
        longest: Longest request, if the configuration leaves it out.
    """
    if text.get("model_type") in _WITHOUT:
        return 0
    given = text.get("rope_parameters") or text.get("rope_scaling") or {}
    kinds: list[Mapping[str, Any]] = [one for one in given.values() if isinstance(one, dict)] or [given]
    if text.get("rope_local_base_freq") or (text.get("model_type") == "gemma3_text" and len(kinds) == 1):
        kinds.append({})  # layers with a sliding window, without scaling
    longest = int(text.get("max_position_embeddings") or longest)
    width = int(
        dimensions
        * float(
            text.get("partial_rotary_factor") or text.get("rotary_pct") or given.get("partial_rotary_factor") or 1.0
        )
    )
    return sum(_rows(kind, longest) for kind in kinds) * width * _BYTES


def _rows(kind: Mapping[str, Any], longest: int) -> int:
    name = str(kind.get("rope_type") or kind.get("type") or "default")
    factor = float(kind.get("factor") or 1.0)
    original = int(kind.get("original_max_position_embeddings") or 0)
    if "mrope_section" in kind:
        return longest if kind.get("mrope_interleaved") else _VIDEO_ROWS * longest
    if name in _MULTIPLIED:
        return int(longest * factor)
    if name in _FROM_ORIGINAL and original:
        return int(original * factor)
    return longest + original if name == "longrope" else longest
