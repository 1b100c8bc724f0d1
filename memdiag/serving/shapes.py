"""Shapes of a transformer from its Hugging Face configuration: weights on each card, and KV cache of a request.

Covers decoders with grouped-query or multi-head latent attention, sliding windows, state-space and linear-attention
layers, MLPs and experts, and vision encoders of the ViT family. Encoder-decoder models are refused: their decoder also
keeps keys and values of the encoder's output. ``reports/serve-fit.md`` compares the results with transformers and vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from memdiag.errors import MemdiagError
from memdiag.serving import parameters as counted
from memdiag.serving.cache import Cache
from memdiag.serving.configuration import Configuration
from memdiag.serving.layers import mixers
from memdiag.serving.parameters import AttentionSizes, Parameters, attention_of, parameters_of
from memdiag.serving.quantization import PLAIN, Quantization
from memdiag.serving.rotary import table_bytes
from memdiag.serving.states import STATES, StatefulLayer
from memdiag.text import phrase

_VOCABULARY_MULTIPLE = 64  # vLLM and SGLang pad the vocabulary
_EXPERT_MULTIPLE = 64  # vLLM pads the width of an MXFP4 expert on a card

# Kinds of rotary embeddings whose configuration already has the scaled length
_UNSCALED = frozenset(
    {None, "default", "llama3", "su", "longrope", "mrope", "yarn", "deepseek_yarn", "deepseek_llama_scaling"}
)


@dataclass(frozen=True)
class Shapes:
    """The sizes of a model.

    Attributes:
        architecture: The model's class.
        hidden, layers, intermediate, vocabulary: As in the configuration.
        attention: Sizes of attention; None for models without attention.
        cache: What each layer keeps of a request.
        states: Layers with a state, of which a model has at most one kind; None without such layers.
        experts, experts_per_token, expert_intermediate: Experts of a layer; 0 experts: a dense model.
        is_gated: Whether the activations of its MLPs gate, so that an MLP has three matrices instead of two.
        parameters: All parameters by part.
        quantization: How the checkpoint stores them.
        absorbed: Numbers of the projections from the latent vector to keys and values, of all layers; 0 without
            multi-head latent attention.
        table_bytes: Tables of rotary embeddings, of which each card has a copy.
        cache_bytes: Bytes of a cached number.
        longest: Longest request of the model in tokens; 0: unknown, or no limit.
        has_encoder: Whether it has a vision or audio encoder.
        encoder: Layers and hidden size of the vision encoder, as SGLang reads them; None without one.
    """

    architecture: str
    hidden: int
    layers: int
    intermediate: int
    vocabulary: int
    attention: AttentionSizes | None
    cache: Cache
    states: StatefulLayer | None
    experts: int
    experts_per_token: int
    expert_intermediate: int
    is_gated: bool
    parameters: tuple[Parameters, ...]
    quantization: Quantization
    absorbed: int
    table_bytes: int
    cache_bytes: float
    longest: int
    has_encoder: bool
    encoder: tuple[int, int] | None = None

    @property
    def num_parameters(self) -> int:
        """All parameters."""
        return sum(part.num for part in self.parameters)

    def weight_bytes(self, tp: int) -> float:
        """Returns the weights on each of ``tp`` cards in bytes, without the tables of rotary embeddings."""
        padding = -self.vocabulary % (_VOCABULARY_MULTIPLE * tp) / self.vocabulary
        total = 0.0
        for part in self.parameters:
            size = part.on_card(tp) * self.quantization.bytes_of(part)
            if part.part in {"embedding", "head"}:
                size *= 1 + padding
            elif part.part == "experts" and self.quantization.method == "mxfp4":
                size *= _padded(self.expert_intermediate, tp)
            total += size
        return total

    def absorbed_bytes(self, tp: int, engine: Literal["vllm", "sglang"]) -> int:
        """Returns the copy of the projections of latent attention that decoding needs, on each of ``tp`` cards.

        Decoding multiplies queries by these projections, in 16 bits. vLLM 0.33 uses views of the weights unless they
        are quantized (``MLAAttention.process_weights_after_loading``); SGLang 0.5.23 always copies them
        (``post_load_weights`` of deepseek_weight_loader.py).
        """
        copies = engine == "sglang" or self.quantization.is_quantized("layers.0.self_attn.kv_b_proj")
        return round(self.absorbed / tp * PLAIN) if copies else 0

    def can_divide(self, tp: int) -> bool:
        """Returns whether ``tp`` cards can share the model: the attention heads have to be divisible."""
        if self.attention is None:
            return self.states is None or self.hidden % tp == 0
        kv_heads = self.attention.kv_heads
        return self.attention.heads % tp == 0 and (
            kv_heads % tp == 0 or tp % kv_heads == 0 or bool(self.attention.latent)
        )

    def layer_token_bytes(self, tp: int, cache_bytes: float) -> float:
        """Returns the KV cache of one token in one layer, on each of ``tp`` cards."""
        if self.attention is None:
            return 0.0
        if self.attention.latent:
            return (self.attention.latent + self.attention.rope) * cache_bytes  # each card has all of it
        return 2 * max(self.attention.kv_heads // tp, 1) * self.attention.head_dim * cache_bytes

    def request_bytes(
        self, tokens: int, tp: int, cache_bytes: float, batch: int = 0, engine: Literal["vllm", "sglang"] = "vllm"
    ) -> float:
        """Returns the KV cache of a request on each of ``tp`` cards.

        Args:
            tokens: Length of the request.
            tp: Cards.
            cache_bytes: Bytes of a cached number.
            batch: Most tokens in a batch.
            engine: The engine.
        """
        state = self.states.state_bytes(tp) if self.states is not None else 0
        return self.cache.request_bytes(tokens, self.layer_token_bytes(tp, cache_bytes), state, batch, engine)


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
        MemdiagError: A key is missing, or the model is of a kind that this module does not know.
    """
    read = Configuration(config)
    if read.is_encoder_decoder:
        raise MemdiagError(phrase("serve_fit.encoder-decoder"), phrase("serve_fit.states.hint"))
    found = mixers(read)
    states = {one for mixer in found for one in mixer.split("+") if one in STATES}
    has_attention = any("full" in mixer or mixer in {"sliding", "chunked"} for mixer in found)
    attention = attention_of(read) if has_attention else None
    quantization = Quantization(config, read.text)
    window = read.size("attention_chunk_size") if "chunked" in found else read.size("sliding_window")
    kept = tuple(one for mixer in found for one in mixer.split("+"))
    is_delta = "linear" in states
    architecture = next(iter(config.get("architectures") or ()), str(config.get("model_type", "?")))
    return Shapes(
        architecture=str(architecture),
        hidden=read.needed("hidden_size"),
        layers=len(found),
        intermediate=read.size("intermediate_size") and counted.dense_width(read),
        vocabulary=read.needed("vocab_size"),
        attention=attention,
        cache=Cache(
            kept,
            window,
            str(architecture),
            states=1 if attention is None else 3 if states & {"linear", "mamba2"} else 2,
            alignment=64 if is_delta else 16,
        ),
        states=STATES[next(iter(states))](read) if states else None,
        experts=read.size("num_experts"),
        experts_per_token=read.size("num_experts_per_tok"),
        expert_intermediate=counted.expert_width(read),
        is_gated=counted.matrices(read) > 2,
        parameters=parameters_of(read),
        quantization=quantization,
        absorbed=_absorbed(read, attention, sum("full" in mixer for mixer in found)),
        table_bytes=_tables(read, attention),
        cache_bytes=1.0 if quantization.has_fp8_cache else PLAIN,
        longest=_longest(read),
        has_encoder=any(read.whole.get(key) for key in ("vision_config", "visual_config", "audio_config")),
        encoder=_encoder(read.whole.get("vision_config")),
    )


def _padded(width: int, tp: int) -> float:
    """Returns by how much padding enlarges the part of an expert on each of ``tp`` cards."""
    return -(-width // (tp * _EXPERT_MULTIPLE)) * _EXPERT_MULTIPLE * tp / width


def _encoder(found: object) -> tuple[int, int] | None:
    """Returns layers and hidden size of a vision encoder, with SGLang's defaults for other names of these keys."""
    if not isinstance(found, dict) or not found:
        return None
    layers, hidden = found.get("num_hidden_layers"), found.get("hidden_size")
    return (layers if isinstance(layers, int) else 24, hidden if isinstance(hidden, int) else 1024)


def _absorbed(config: Configuration, attention: AttentionSizes | None, layers: int) -> int:
    if attention is None or not attention.latent:
        return 0
    width = config.needed("qk_nope_head_dim") + config.needed("v_head_dim")
    return layers * attention.heads * attention.latent * width


def _tables(config: Configuration, attention: AttentionSizes | None) -> int:
    if attention is None:
        return 0
    return table_bytes(config.text, attention.rope or attention.head_dim, config.size("max_position_embeddings"))


def _longest(config: Configuration) -> int:
    """Returns the longest request in tokens, with the scaling of rotary embeddings (vllm/config/model.py of 0.33)."""
    longest = config.size("max_position_embeddings")
    rope = config.get("rope_scaling", "rope_parameters")
    if not isinstance(rope, dict) or config.kind.startswith("gemma"):
        return longest
    kind = rope.get("rope_type") or rope.get("type")
    if kind in _UNSCALED:
        return longest
    factor = rope.get("factor")
    return int(longest * factor) if isinstance(factor, int | float) and factor > 1 else longest
