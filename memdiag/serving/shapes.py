"""Shapes of a transformer from its Hugging Face configuration: parameters, and KV cache of a request.

Covers decoders with grouped-query or multi-head latent attention, sliding windows, gated MLPs and experts, and vision
encoders of the ViT family. Configurations with state-space or linear-attention layers are refused: their states are not
proportional to tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.serving.rotary import table_bytes
from memdiag.text import phrase

_ATTENTION = {"full_attention", "sliding_attention", "chunked_attention", "attention"}
_STATES = (
    "mamba_d_state",
    "ssm_state_size",
    "state_size",
    "linear_num_key_heads",
    "attn_layer_period",
    "rwkv_hidden_size",
)
_PATTERNS = {"gemma2": 2, "gemma3_text": 6}  # one full layer in so many, if the configuration has no list
_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}


# Kinds of rotary embeddings whose configuration already has the scaled length
_UNSCALED = frozenset(
    {None, "default", "llama3", "su", "longrope", "mrope", "yarn", "deepseek_yarn", "deepseek_llama_scaling"}
)


@dataclass(frozen=True)
class Shapes:
    """The sizes of a model.

    Attributes:
        architecture: The model's class.
        hidden, layers, heads, kv_heads, head_dim, intermediate, vocabulary: As in the configuration.
        is_tied: Whether input and output embeddings are the same tensor.
        latent: Width of the cached vector of multi-head latent attention; 0 for other models.
        windows: Window of each layer in tokens; 0: none.
        experts, experts_per_token, expert_intermediate: Experts of a layer; 0 experts: a dense model.
        num_divisible: Parameters that tensor parallelism divides.
        num_replicated: Parameters that each card has.
        weight_bytes: Bytes of a parameter.
        table_bytes: Tables of rotary embeddings, of which each card has a copy.
        cache_bytes: Bytes of a cached number.
        longest: Longest request of the model in tokens.
        has_encoder: Whether it has a vision or audio encoder.
    """

    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    is_tied: bool
    latent: int
    windows: tuple[int, ...]
    experts: int
    experts_per_token: int
    expert_intermediate: int
    num_divisible: int
    num_replicated: int
    weight_bytes: float
    table_bytes: int
    cache_bytes: float
    longest: int
    has_encoder: bool

    @property
    def num_parameters(self) -> int:
        """All parameters."""
        return self.num_divisible + self.num_replicated

    def layer_token_bytes(self, tp: int, cache_bytes: float) -> float:
        """Returns the KV cache of one token in one layer, on each of ``tp`` cards."""
        if self.latent:
            return self.latent * cache_bytes  # each card has all of it
        return 2 * max(self.kv_heads // tp, 1) * self.head_dim * cache_bytes

    def request_bytes(self, tokens: int, tp: int, cache_bytes: float) -> float:
        """Returns the KV cache of a request of ``tokens`` tokens on each of ``tp`` cards."""
        held = sum(min(tokens, window) if window else tokens for window in self.windows)
        return held * self.layer_token_bytes(tp, cache_bytes)


def read_shapes(place: Path) -> Shapes:
    """Returns the shapes of a configuration: a folder with ``config.json``, or the file itself.

    Raises:
        MemdiagError: The file cannot be read, or the model is of another kind.
    """
    path = place / "config.json" if place.is_dir() else place
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MemdiagError(
            phrase("serve_fit.unreadable", path=str(path), error=str(error)), phrase("serve_fit.hint")
        ) from error
    if not isinstance(found, dict):
        raise MemdiagError(phrase("serve_fit.unreadable", path=str(path), error="no object"), phrase("serve_fit.hint"))
    return shapes_of(found)


def shapes_of(config: Mapping[str, Any]) -> Shapes:
    """Returns the shapes of a configuration.

    Raises:
        MemdiagError: A key is missing, or the model has layers without a KV cache.
    """
    text: Mapping[str, Any] = config.get("text_config") or config.get("llm_config") or config
    kinds = set(text.get("layer_types") or ()) - _ATTENTION
    states = [key for key in _STATES if text.get(key)]
    if kinds or states:
        raise MemdiagError(
            phrase("serve_fit.states", names=", ".join(sorted(kinds) or states)), phrase("serve_fit.states.hint")
        )
    hidden, layers, heads = (_number(text, key) for key in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
    vocabulary = _number(text, "vocab_size")
    kv_heads = int(text.get("num_key_value_heads") or heads)
    head_dim = int(text.get("head_dim") or hidden // heads)
    latent = int(text.get("kv_lora_rank") or 0)
    rope = int(text.get("qk_rope_head_dim") or 0)
    is_tied = bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", _is_gemma(text))))
    experts = int(text.get("num_local_experts") or text.get("num_experts") or text.get("n_routed_experts") or 0)
    width = int(text.get("moe_intermediate_size") or text.get("intermediate_size") or 0) if experts else 0
    attention = _latent_attention(text, hidden, heads) if latent else hidden * head_dim * (2 * heads + 2 * kv_heads)
    intermediate = int(text.get("intermediate_size") or width)
    dense = int(text.get("first_k_dense_replace") or 0) if experts else layers
    shared = int(text.get("n_shared_experts") or 0) * width + int(text.get("shared_expert_intermediate_size") or 0)
    mlp = dense * 3 * hidden * intermediate + (layers - dense) * 3 * hidden * (experts * width + shared)
    vocabulary_parameters = vocabulary * hidden * (1 if is_tied else 2)
    encoder = _encoder(config.get("vision_config"))
    replicated = layers * (2 * hidden + hidden * experts) + hidden
    return Shapes(
        architecture=next(iter(config.get("architectures") or ()), str(config.get("model_type", "?"))),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=intermediate,
        vocabulary=vocabulary,
        is_tied=is_tied,
        latent=latent + rope if latent else 0,
        windows=_windows(text, layers),
        experts=experts,
        experts_per_token=int(text.get("num_experts_per_tok") or 0),
        expert_intermediate=width,
        num_divisible=layers * attention + mlp + vocabulary_parameters + encoder,
        num_replicated=replicated,
        weight_bytes=_weight_bytes(config, text),
        table_bytes=table_bytes(text, rope if latent else head_dim),
        cache_bytes=_BYTES.get(_dtype(config, text), 2.0),
        longest=_longest(text),
        has_encoder=any(config.get(key) for key in ("vision_config", "audio_config")),
    )


def _longest(text: Mapping[str, Any]) -> int:
    """Returns the longest request in tokens, with the scaling of rotary embeddings (vllm/config/model.py of 0.33)."""
    longest = int(text.get("max_position_embeddings") or 0)
    rope = text.get("rope_scaling") or text.get("rope_parameters")
    if not isinstance(rope, dict) or _is_gemma(text):
        return longest
    kind = rope.get("rope_type") or rope.get("type")
    if kind in _UNSCALED:
        return longest
    factor = rope.get("factor")
    return int(longest * factor) if isinstance(factor, int | float) and factor > 1 else longest


def _number(text: Mapping[str, Any], key: str) -> int:
    value = text.get(key)
    if key == "vocab_size" and value is None and _is_gemma(text):
        value = 262_208  # gemma-3 configurations omit defaults
    if key == "num_attention_heads" and value is None and _is_gemma(text):
        value = 8
    if not isinstance(value, int) or value <= 0:
        raise MemdiagError(phrase("serve_fit.missing", key=key), phrase("serve_fit.hint"))
    return value


def _is_gemma(text: Mapping[str, Any]) -> bool:
    return str(text.get("model_type", "")).startswith("gemma")


def _latent_attention(text: Mapping[str, Any], hidden: int, heads: int) -> int:
    """Returns the parameters of one layer of multi-head latent attention (DeepSeek-V2)."""
    plain, rope, value, latent = (
        _number(text, key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank")
    )
    rank = int(text.get("q_lora_rank") or 0)
    query = hidden * rank + rank * heads * (plain + rope) if rank else hidden * heads * (plain + rope)
    return query + hidden * (latent + rope) + latent * heads * (plain + value) + heads * value * hidden


def _encoder(vision: Mapping[str, Any] | None) -> int:
    """Returns the parameters of a vision encoder of the ViT family; 0 if there is none, or of another kind."""
    if not vision:
        return 0
    hidden, layers, width = (
        int(vision.get(key) or 0) for key in ("hidden_size", "num_hidden_layers", "intermediate_size")
    )
    return layers * (4 * hidden * hidden + 2 * hidden * width)


def _windows(text: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """Returns the window of each layer, 0 for none."""
    window = int(text.get("sliding_window") or 0)
    kinds = text.get("layer_types")
    if kinds:
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    if not window or text.get("use_sliding_window") is False:
        return (0,) * layers
    pattern = int(text.get("sliding_window_pattern") or _PATTERNS.get(str(text.get("model_type")), 0))
    if not pattern:
        return (window,) * layers
    return tuple(0 if (layer + 1) % pattern == 0 else window for layer in range(layers))


def _dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    found = text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype") or config.get("dtype")
    return str(found or "bfloat16").removeprefix("torch.")


def _weight_bytes(config: Mapping[str, Any], text: Mapping[str, Any]) -> float:
    """Returns the bytes of a parameter. vLLM and SGLang load float32 checkpoints as 16-bit."""
    quantized = config.get("quantization_config") or text.get("quantization_config")
    if not isinstance(quantized, dict):
        return 2.0
    bits = quantized.get("bits") or quantized.get("w_bit") or (4 if quantized.get("load_in_4bit") else 8)
    return int(bits) / 8 if isinstance(bits, int) else 1.0
