"""The plan of an inference server for a card, from the configuration of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Basis = Literal["files", "configuration", "estimate", "profile"]


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """One part of the memory of a card.

    Attributes:
        kind: "weights", "kv_cache", "activations", "graphs", "other" (outside PyTorch), "before_start" (context) or
            "margin" (left free for the error of the estimates).
        bytes: Size of the part.
        basis: "files" (size of the safetensors files), "configuration" (computed from shapes), "profile" (of the
            device) or "estimate".
    """

    kind: Literal["weights", "kv_cache", "activations", "graphs", "other", "before_start", "margin"]
    bytes: int
    basis: Basis


@dataclass(frozen=True, slots=True)
class ServePlan:
    """The plan for one tensor-parallel size.

    Attributes:
        tp: Tensor-parallel size.
        parts: Parts of the memory of each card. If the plan fits, their sum is the memory of the card.
        token_bytes: KV cache of one token on each card, in layers of attention without a window; 0: there are none.
        kv_tokens: Tokens that the KV cache holds, each of a request of ``context`` tokens.
        longest: Length in tokens of the longest request that fits, at most the maximum of the model; 0: the weights do
            not fit.
        concurrency: Number of requests of ``context`` tokens that fit at the same time.
        flags: Command-line flags of the engine; empty if one request of ``context`` tokens does not fit.
        cache_flag: For vLLM, the flag that sets the size of the KV cache instead of the memory fraction; "" if none.
    """

    tp: int
    parts: tuple[PlannedPart, ...]
    token_bytes: int
    kv_tokens: int
    longest: int
    concurrency: float
    flags: tuple[str, ...]
    cache_flag: str = ""


@dataclass(frozen=True, slots=True)
class ServeFitReport:
    """What fits on a card.

    Attributes:
        model: Name of the configuration.
        architecture: The model's class.
        engine: "vllm" or "sglang".
        device: Name of the card.
        card_bytes: Memory of the card.
        num_parameters: Parameters of the model, computed from the configuration.
        context: Number of tokens in a request.
        max_num_seqs: Requests in a batch, for which activations are estimated.
        max_batched_tokens: Tokens in a batch, for which activations are estimated.
        kv_dtype: Data type of the KV cache: "auto" (that of the model) or "fp8".
        plans: A plan for each tensor-parallel size.
        notes: Parts of the model that the plan leaves out.
    """

    model: str
    architecture: str
    engine: Literal["vllm", "sglang"]
    device: str
    card_bytes: int
    num_parameters: int
    context: int
    max_num_seqs: int
    max_batched_tokens: int
    kv_dtype: str
    plans: tuple[ServePlan, ...]
    notes: tuple[str, ...] = ()
