"""Memory that SGLang leaves outside its weights and KV cache, by the rule of its own default.

Unlike vLLM, SGLang has no profile run: what a forward pass and graph capture need must fit into what
``--mem-fraction-static`` leaves. The rule is that of ``handle_gpu_memory_settings`` in SGLang 0.5.23
(arg_groups/memory_hook.py), without its cases for data-parallel attention, DeepEP and disaggregation.
"""

from __future__ import annotations

from memdiag.units import GIB, MIB

_BASE = 512 * MIB  # metadata of the attention backend, and slack
_TOKEN = 3 * MIB // 2  # activations of one token of a chunk
_CARD = 128 * MIB  # for each card of the tensor-parallel group
_DECODE_GRAPH = 2 * MIB  # for each request of the largest captured batch
_PREFILL_GRAPH = 8 * MIB  # for each captured length of a prefill
_PREFILL_GRAPHS_LATENT = 3 * GIB // 2  # of all lengths, with multi-head latent attention
_FEWEST_TOKENS = 2048
_LARGE_CARD = 60 * GIB
_LARGE_CARD_RESERVE = 10 * GIB
# Tokens of a chunk, and requests of the largest captured batch for less than four cards and for more; by card size
_DEFAULTS = (
    (20 * GIB, 2048, 8, 8),
    (35 * GIB, 4096, 48, 160),
    (60 * GIB, 4096, 32, 160),
    (160 * GIB, 8192, 256, 512),
)
_LARGEST = (16384, 512, 512)
# Lengths of captured prefills: first, last and step
_PREFILLS = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, 1 << 20, 512))
_ENCODER = 0.95  # factor for a vision encoder of the size of ViT-L/14


def chunk_tokens(card_bytes: int) -> int:
    """Returns SGLang's default for ``--chunked-prefill-size`` on a card."""
    return _default(card_bytes)[0]


def reserve_bytes(
    card_bytes: int, tp: int, tokens: int, requests: int, *, has_graphs: bool = True, is_latent: bool = False
) -> int:
    """Returns the memory to leave outside weights and KV cache, on each of ``tp`` cards.

    Args:
        card_bytes: Memory of the card.
        tp: Cards.
        tokens: Tokens of a chunk.
        requests: Most requests in a batch.
        has_graphs: Whether graphs are captured.
        is_latent: Whether the model has multi-head latent attention.
    """
    size = _BASE + _TOKEN * max(tokens, _FEWEST_TOKENS) + _CARD * tp
    if has_graphs:
        size += _DECODE_GRAPH * min(_default(card_bytes)[1 if tp < 4 else 2], requests)
        size += _PREFILL_GRAPHS_LATENT if is_latent else _PREFILL_GRAPH * _prefill_graphs(tokens)
    return max(size, _LARGE_CARD_RESERVE) if card_bytes > _LARGE_CARD else size


def encoder_factor(layers: int, hidden: int) -> float:
    """Returns the factor by which a vision encoder of this size lowers the memory fraction."""
    ratio = layers * hidden**2 / (24 * 1024**2)
    return _ENCODER * min(max(1 - 0.1 * (ratio - 1), 0.8), 1.05)


def _default(card_bytes: int) -> tuple[int, int, int]:
    return next((rest for most, *rest in _DEFAULTS if card_bytes < most), _LARGEST)  # type: ignore[return-value]


def _prefill_graphs(tokens: int) -> int:
    return sum(len(range(first, min(last, tokens) + 1, step)) for first, last, step in _PREFILLS)
