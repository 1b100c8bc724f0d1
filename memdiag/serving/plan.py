"""What fits on a card: weights, activations, reserves, and the KV cache that remains.

Estimates, with their basis (reports/serving-logs.md has the logs):

* activation peak: the larger of the forward pass, three hidden states and the gated MLP for each token of a batch, and
  of the sampler, 40 bytes for each request and word of the vocabulary (sorted logits and their indices). The three was
  chosen with vllm#11251, the 40 with vllm#21489;
* memory outside PyTorch: public logs have 0.1 to 0.5 GiB for one or two cards, and vllm#10511 1.8 GiB for one and 3.6
  GiB for two, so this is the least certain part;
* graphs: public logs have 0.04 to 0.75 GiB.

SGLang does not profile, so its reserve is that of its own default if it is larger (``sglang_reserve``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from memdiag.diagnosis.memory_fraction import fraction_down
from memdiag.errors import MemdiagError
from memdiag.results.serve_fit import Basis, PlannedPart, ServeFitReport, ServePlan
from memdiag.serving.cache import BLOCK
from memdiag.serving.sglang_reserve import chunk_tokens, encoder_factor, reserve_bytes
from memdiag.serving.shapes import Shapes
from memdiag.text import phrase
from memdiag.units import GIB, MIB

SAMPLER_BYTES = 40  # for each request and word
HIDDEN_COPIES = 3
OUTSIDE_BYTES = GIB // 2
OUTSIDE_BYTES_NCCL = 3 * GIB // 2
GRAPH_BYTES = 3 * GIB // 4
VLLM_TOKENS = 8192  # in a batch
MARGIN = 0.02  # of the card, for the error of the estimates
_ACTIVATION = 2  # bytes of a 16-bit number


@dataclass(frozen=True)
class ServeRequest:
    """What is asked for.

    Attributes:
        engine: "vllm" or "sglang".
        device: Name of the card.
        card_bytes: Memory of the card.
        context_bytes: Memory that the runtime takes.
        context: Tokens of a request; 0: the longest of the model.
        max_num_seqs: Requests in a batch.
        max_batched_tokens: Tokens in a batch; 0: 8192 with vLLM, and SGLang's default for the card.
        kv_dtype: "auto" or "fp8".
        has_graphs: Whether graphs are captured.
        sizes: Tensor-parallel sizes.
    """

    engine: Literal["vllm", "sglang"]
    device: str = ""
    card_bytes: int = 0
    context_bytes: int = 0
    context: int = 0
    max_num_seqs: int = 256
    max_batched_tokens: int = 0
    kv_dtype: Literal["auto", "fp8"] = "auto"
    has_graphs: bool = True
    sizes: Sequence[int] = (1, 2, 4, 8)


def plan(name: str, shapes: Shapes, asked: ServeRequest, file_bytes: int | None = None) -> ServeFitReport:
    """Returns what fits.

    Args:
        name: Name of the model.
        shapes: Its shapes.
        asked: The card and the engine.
        file_bytes: Size of its safetensors files; None if there are none.

    Raises:
        MemdiagError: The model supports no request of that length, or none of the tensor-parallel sizes.
    """
    if not asked.max_batched_tokens:
        tokens = chunk_tokens(asked.card_bytes) if asked.engine == "sglang" else VLLM_TOKENS
        asked = replace(asked, max_batched_tokens=tokens)
    context = asked.context or shapes.longest or 4096
    if shapes.longest and context > shapes.longest:
        raise MemdiagError(
            phrase("serve_fit.context", context=context, longest=shapes.longest), phrase("serve_fit.context.hint")
        )
    sizes = [tp for tp in asked.sizes if shapes.can_divide(tp)]
    if not sizes:
        heads, kv_heads = (shapes.attention.heads, shapes.attention.kv_heads) if shapes.attention else (0, 0)
        raise MemdiagError(
            phrase("serve_fit.heads", sizes=", ".join(map(str, asked.sizes)), heads=heads, kv_heads=kv_heads),
            phrase("serve_fit.heads.hint"),
        )
    return ServeFitReport(
        name,
        shapes.architecture,
        asked.engine,
        asked.device,
        asked.card_bytes,
        shapes.num_parameters,
        context,
        asked.max_num_seqs,
        asked.max_batched_tokens,
        asked.kv_dtype,
        tuple(_plan(shapes, asked, tp, context, file_bytes) for tp in sizes),
        tuple(_notes(shapes, file_bytes)),
    )


def _notes(shapes: Shapes, file_bytes: int | None) -> Iterator[str]:
    if shapes.has_encoder:
        yield phrase("serve_fit.note.encoder")
    if not shapes.quantization.is_known and not file_bytes:
        yield phrase("serve_fit.note.quantization", method=shapes.quantization.method or "?")


def size_of_files(folder: Path) -> int | None:
    """Returns the bytes of a model's safetensors files, from the index or the files; None if there are none."""
    if not folder.is_dir():
        return None
    index = folder / "model.safetensors.index.json"
    try:
        total = json.loads(index.read_text(encoding="utf-8"))["metadata"]["total_size"]
        return int(total)
    except (OSError, ValueError, KeyError, TypeError):
        sizes = [path.stat().st_size for path in folder.glob("*.safetensors")]
        return sum(sizes) or None


def activation_bytes(shapes: Shapes, tp: int, tokens: int, requests: int) -> int:
    """Returns the estimated activation peak of a batch on each of ``tp`` cards, in bytes."""
    width = max(shapes.intermediate if not shapes.experts else 0, 0) / tp
    routed = shapes.experts_per_token * (3 * shapes.expert_intermediate / tp + shapes.hidden) if shapes.experts else 0
    matrices = 3 if shapes.is_gated else 2
    forward = tokens * _ACTIVATION * (HIDDEN_COPIES * shapes.hidden + matrices * width + routed)
    return round(max(forward, requests * shapes.vocabulary * SAMPLER_BYTES))


def _plan(shapes: Shapes, asked: ServeRequest, tp: int, context: int, file_bytes: int | None) -> ServePlan:
    cache_bytes = 1.0 if asked.kv_dtype == "fp8" else shapes.cache_bytes
    scale = file_bytes / shapes.weight_bytes(1) if file_bytes else 1.0
    weights = round(scale * shapes.weight_bytes(tp)) + shapes.table_bytes + shapes.absorbed_bytes(tp, asked.engine)
    basis: Basis = "files" if file_bytes else "configuration"
    activations = activation_bytes(shapes, tp, asked.max_batched_tokens, asked.max_num_seqs)
    outside = OUTSIDE_BYTES if tp == 1 else OUTSIDE_BYTES_NCCL
    graphs = GRAPH_BYTES if asked.has_graphs else 0
    fraction = _fraction(shapes, asked, tp, activations + outside + graphs)
    room = _room(asked, fraction, weights, activations, outside)
    each = shapes.request_bytes(context, tp, cache_bytes, asked.max_batched_tokens, asked.engine)
    token = round(shapes.layer_token_bytes(tp, cache_bytes) * shapes.cache.mixers.count("full"))
    longest = _longest(shapes, asked, tp, cache_bytes, room)
    concurrency = max(room, 0) / each if each else 0.0
    parts: tuple[PlannedPart, ...] = (
        PlannedPart("before_start", asked.context_bytes, "profile"),
        PlannedPart("weights", weights, basis),
        PlannedPart("activations", activations, "estimate"),
        PlannedPart("other", outside, "estimate"),
        PlannedPart("graphs", graphs, "estimate"),
        PlannedPart("kv_cache", max(room, 0), "estimate"),
    )
    left = asked.card_bytes - sum(part.bytes for part in parts)
    parts = (*parts, PlannedPart("margin", max(left, 0), "estimate"))
    flags = _flags(asked, tp, context, fraction) if concurrency >= 1 else ()
    cache_flag = f"--kv-cache-memory-bytes {room // MIB * MIB}" if flags and asked.engine == "vllm" else ""
    return ServePlan(tp, parts, token, int(concurrency * context), longest, round(concurrency, 2), flags, cache_flag)


def _fraction(shapes: Shapes, asked: ServeRequest, tp: int, estimate: int) -> str:
    """Returns the memory fraction of the engine: what must be free outside its budget, as a share, rounded down.

    Args:
        shapes: The model.
        asked: The card and the engine.
        tp: Cards.
        estimate: Bytes of activations, graphs and memory outside PyTorch.
    """
    free = asked.card_bytes - asked.context_bytes
    margin = MARGIN * asked.card_bytes
    if asked.engine == "vllm":
        graphs = GRAPH_BYTES if asked.has_graphs else 0
        return fraction_down((free - graphs - margin) / asked.card_bytes)
    reserve = reserve_bytes(
        asked.card_bytes,
        tp,
        asked.max_batched_tokens,
        asked.max_num_seqs,
        has_graphs=asked.has_graphs,
        is_latent=bool(shapes.attention and shapes.attention.latent),
    )
    factor = encoder_factor(*shapes.encoder) if shapes.encoder else 1.0
    fraction = min(1 - reserve / asked.card_bytes, 1 - (estimate + margin) / free)  # SGLang divides by the whole card
    return fraction_down(max(fraction, 0) * factor)


def _room(asked: ServeRequest, fraction: str, weights: int, activations: int, outside: int) -> int:
    """Returns the bytes of the KV cache; negative if the rest does not fit."""
    if asked.engine == "vllm":
        return round(float(fraction) * asked.card_bytes) - weights - activations - outside
    return round(float(fraction) * (asked.card_bytes - asked.context_bytes)) - weights


def _longest(shapes: Shapes, asked: ServeRequest, tp: int, cache_bytes: float, room: int) -> int:
    """Returns the longest request that fits, in whole blocks, up to the limit of the model."""
    low, high = 0, (shapes.longest or 1 << 24) // BLOCK
    while low < high:
        middle = (low + high + 1) // 2
        each = shapes.request_bytes(middle * BLOCK, tp, cache_bytes, asked.max_batched_tokens, asked.engine)
        if each <= room:
            low = middle
        else:
            high = middle - 1
    return low * BLOCK


def _flags(asked: ServeRequest, tp: int, context: int, fraction: str) -> tuple[str, ...]:
    if asked.engine == "vllm":
        flags = [
            f"--tensor-parallel-size {tp}",
            f"--gpu-memory-utilization {fraction}",
            f"--max-model-len {context}",
            f"--max-num-seqs {asked.max_num_seqs}",
            f"--max-num-batched-tokens {asked.max_batched_tokens}",
        ]
        flags += ["--kv-cache-dtype fp8"] if asked.kv_dtype == "fp8" else []
        return (*flags, *([] if asked.has_graphs else ["--enforce-eager"]))
    flags = [
        f"--tp-size {tp}",
        f"--mem-fraction-static {fraction}",
        f"--context-length {context}",
        f"--max-running-requests {asked.max_num_seqs}",
        f"--chunked-prefill-size {asked.max_batched_tokens}",
    ]
    flags += ["--kv-cache-dtype fp8_e4m3"] if asked.kv_dtype == "fp8" else []
    return (*flags, *([] if asked.has_graphs else ["--disable-cuda-graph"]))
