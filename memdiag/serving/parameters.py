"""Parameters of a decoder by part, computed from its configuration.

Each part has the number of cards among which tensor parallelism divides it: vLLM and SGLang divide projections,
experts and vocabularies, divide keys and values by head, and copy norms, routers and the projections to the latent
vector of multi-head latent attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from memdiag.serving.configuration import Configuration
from memdiag.serving.layers import feed_forward, mixers
from memdiag.serving.states import STATES, Mamba2
from memdiag.serving.vision import encoder_parameters

Part = Literal[
    "attention", "mlp", "experts", "shared", "state", "router", "bias", "norm", "embedding", "head", "encoder"
]
_ANY = 0

_TWO_MATRICES = frozenset(
    {
        *("gpt2", "gpt_neo", "gptj", "gpt_neox", "gpt_neox_japanese", "gpt_bigcode", "opt", "bloom", "falcon", "mpt"),
        *("phi", "starcoder2", "codegen", "nemotron", "persimmon", "fuyu", "biogpt", "xglm", "arcee", "apertus"),
        *("jais2", "nemotron_h", "nanochat"),
    }
)
_UNGATED = frozenset({"relu2", "xielu"})  # activations that gate nothing, except in BitNet
_FOUR_TIMES = frozenset({"gpt2", "gpt_bigcode", "gpt_neo", "gptj", "codegen", "bloom", "falcon", "mpt"})
_ALL_BIASES = frozenset(
    {"gpt2", "gpt_bigcode", "gpt_neox", "opt", "bloom", "phi", "starcoder2", "biogpt", "xglm", "persimmon", "fuyu"}
)
_QUERY_BIASES = frozenset(
    {"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_vl_text", "gpt_oss"}
)
_POSITIONS = {"gpt2": 0, "gpt_bigcode": 0, "gpt_neo": 0, "opt": 2, "biogpt": 2}  # learned, with extra rows
_FOUR_NORMS = frozenset({"gemma2", "gemma3_text", "glm4"})


@dataclass(frozen=True, slots=True)
class Parameters:
    """Some parameters of a model.

    Attributes:
        part: Which ones; a quantized model quantizes only some parts.
        num: How many in the whole model.
        division: Most cards among which they are divided; 1: each card has a copy; 0: no limit.
        layers: Layers that have them, to look up which of them are quantized.
    """

    part: Part
    num: int
    division: int = _ANY
    layers: tuple[int, ...] = ()

    def on_card(self, tp: int) -> float:
        """Returns the number of parameters on each of ``tp`` cards."""
        return self.num / (min(tp, self.division) if self.division else tp)


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """Sizes of attention.

    Attributes:
        heads, kv_heads, head_dim: As in the configuration.
        latent, rope: Widths of the cached latent vector and its rotary part; 0 if keys and values are cached.
    """

    heads: int
    kv_heads: int
    head_dim: int
    latent: int = 0
    rope: int = 0


def attention_of(config: Configuration) -> AttentionSizes:
    """Returns the sizes of attention; the number of KV heads depends on flags in Falcon and GPT-BigCode."""
    hidden, heads = config.needed("hidden_size"), config.needed("num_attention_heads")
    kv_heads = config.size("num_key_value_heads") or heads
    if config.kind == "gpt_bigcode" or (config.kind == "falcon" and not config.flag("new_decoder_architecture", False)):
        kv_heads = 1 if config.flag("multi_query", True) else heads
    nested = config.get("attn_config")
    if isinstance(nested, dict) and isinstance(nested.get("kv_n_heads"), int):
        kv_heads = nested["kv_n_heads"]
    return AttentionSizes(
        heads,
        kv_heads,
        config.size("head_dim") or hidden // heads,
        config.size("kv_lora_rank"),
        config.size("qk_rope_head_dim") if config.size("kv_lora_rank") else 0,
    )


def parameters_of(config: Configuration) -> tuple[Parameters, ...]:
    """Returns all parameters by part.

    Raises:
        MemdiagError: The configuration lacks a size, or has layers of an unknown kind.
    """
    return (*_layers(config), *_ends(config), *encoder_parts(config.whole, config.needed("hidden_size")))


def encoder_parts(config: Mapping[str, Any], hidden: int) -> Iterator[Parameters]:
    """Yields the parameters of vision and audio encoders."""
    if num := encoder_parameters(config, hidden):
        yield Parameters("encoder", num)


def _layers(config: Configuration) -> Iterator[Parameters]:
    mixed, following = mixers(config), feed_forward(config)
    for kind in dict.fromkeys(mixed):
        layers = tuple(layer for layer, mixer in enumerate(mixed) if mixer == kind)
        for one in kind.split("+"):
            for part in _mixer(config, one):
                yield Parameters(part.part, part.num * len(layers), part.division, layers)
    for kind in dict.fromkeys(following):
        layers = tuple(layer for layer, found in enumerate(following) if found == kind)
        parts = {"dense": _dense, "experts": _experts}.get(kind)
        for part in parts(config) if parts else ():
            yield Parameters(part.part, part.num * len(layers), part.division, layers)
    norms = (4 if config.kind in _FOUR_NORMS else 2) * (2 if config.kind in _ALL_BIASES else 1)
    yield Parameters("norm", (len(mixed) * norms + 1) * config.needed("hidden_size"), 1)


def _mixer(config: Configuration, kind: str) -> Iterator[Parameters]:
    if kind == "none":
        return
    if kind in STATES:
        state = STATES[kind](config)
        grouped, groups = (state.num_grouped, state.groups) if isinstance(state, Mamba2) else (0, _ANY)
        yield Parameters("state", state.num_parameters - grouped)
        if grouped:
            yield Parameters("state", grouped, groups)
        return
    hidden, found = config.needed("hidden_size"), attention_of(config)
    if found.latent:
        yield from _latent(config, found, hidden)
        return
    has_gate = config.flag("attn_output_gate", config.kind in {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"})
    query, keys = found.heads * found.head_dim, found.kv_heads * found.head_dim
    yield Parameters("attention", hidden * query * (3 if has_gate else 2))
    yield Parameters("attention", 2 * hidden * keys, found.kv_heads)
    has_biases = config.kind in _ALL_BIASES or config.flag("attention_bias", False) or config.flag("bias", False)
    if has_biases or config.kind in _QUERY_BIASES:
        yield Parameters("bias", query)
        yield Parameters("bias", 2 * keys, found.kv_heads)
    if has_biases:
        yield Parameters("bias", hidden, 1)


def _latent(config: Configuration, found: AttentionSizes, hidden: int) -> Iterator[Parameters]:
    """Yields the projections of multi-head latent attention (DeepSeek-V2); those to the latent vectors are copied."""
    plain, value = config.needed("qk_nope_head_dim"), config.needed("v_head_dim")
    rank = config.size("q_lora_rank")
    query = found.heads * (plain + found.rope)
    yield Parameters("attention", hidden * (rank + found.latent + found.rope), 1)
    yield Parameters(
        "attention", query * (rank or hidden) + found.heads * (found.latent * (plain + value) + value * hidden)
    )


def _dense(config: Configuration) -> Iterator[Parameters]:
    hidden, width = config.needed("hidden_size"), dense_width(config)
    yield Parameters("mlp", matrices(config) * hidden * width)
    if config.kind in _ALL_BIASES or config.flag("mlp_bias", False):
        yield Parameters("bias", (matrices(config) - 1) * width)
        yield Parameters("bias", hidden, 1)


def dense_width(config: Configuration) -> int:
    """Returns the width of a dense MLP."""
    hidden = config.needed("hidden_size")
    if config.kind == "llama4_text" and config.size("intermediate_size_mlp"):
        return config.size("intermediate_size_mlp")
    if config.kind == "lfm2" and config.flag("block_auto_adjust_ff_dim", True):
        wanted = int(2 * (config.size("block_ff_dim") or config.needed("intermediate_size")) / 3)
        wanted = int(wanted * float(config.get("block_ffn_dim_multiplier") or 1.0))
        multiple = config.size("block_multiple_of") or 256
        return -(-wanted // multiple) * multiple
    factor = config.size("expansion_ratio") or (4 if config.kind in _FOUR_TIMES else 0)
    return config.size("intermediate_size") or factor * hidden or config.needed("intermediate_size")


def expert_width(config: Configuration) -> int:
    """Returns the width of one expert; 0 without experts."""
    if not config.size("num_experts"):
        return 0
    return config.size("expert_width") or config.size("intermediate_size")


def matrices(config: Configuration) -> int:
    """Returns the matrices of an MLP: three if the activation gates, else two."""
    activation = config.get("hidden_act", "mlp_hidden_act", "activation_function")
    return 2 if config.kind in _TWO_MATRICES or (activation in _UNGATED and config.kind != "bitnet") else 3


def _experts(config: Configuration) -> Iterator[Parameters]:
    hidden, width, num = config.needed("hidden_size"), expert_width(config), config.needed("num_experts")
    each = matrices(config) * hidden * width
    yield Parameters("experts", num * each)
    if config.kind == "gpt_oss":
        yield Parameters("bias", num * 2 * width)
        yield Parameters("bias", num * hidden, 1)
    yield Parameters("router", num * hidden, 1)
    shared = config.size("shared_experts") * width
    if config.kind == "llama4_text":
        shared = width
    if config.size("shared_width"):
        shared = config.size("shared_width") * max(config.size("shared_experts"), 1)
    if shared:
        yield Parameters("shared", matrices(config) * hidden * shared)


def _ends(config: Configuration) -> Iterator[Parameters]:
    hidden, vocabulary = config.needed("hidden_size"), config.needed("vocab_size")
    width = config.size("word_embed_proj_dim") or hidden
    yield Parameters("embedding", vocabulary * width)
    if width != hidden:
        yield Parameters("embedding", 2 * width * hidden, 1)
    if not is_tied(config):
        yield Parameters("head", vocabulary * width)
    if config.kind in _POSITIONS:
        rows = config.size("max_position_embeddings") + _POSITIONS[config.kind]
        yield Parameters("embedding", rows * hidden, 1)


def is_tied(config: Configuration) -> bool:
    """Returns whether the output projection is the embedding; the value of the whole model counts first."""
    for values in (config.whole, config.text):
        if isinstance(values.get("tie_word_embeddings"), bool):
            return bool(values["tie_word_embeddings"])
    return config.flag("tie_word_embeddings", False)
