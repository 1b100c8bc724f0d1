"""Kinds of the layers of a decoder: the mixer of tokens, and the MLP or the experts behind it.

A mixer is "full" attention, "sliding" or "chunked" attention, which see a number of recent tokens, or a layer with a
state of constant size: "mamba", "mamba2", "linear" (gated delta rule), "conv". "none" has no mixer. Falcon-H1 has
attention and a state in each layer: "full+mamba2".
"""

from __future__ import annotations

from memdiag.errors import MemdiagError
from memdiag.serving.configuration import Configuration
from memdiag.text import phrase

_MIXERS = {
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "sliding_attention": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "conv": "conv",
    "mamba": "mamba2",
    "mamba2": "mamba2",
    "mlp": "none",
    "moe": "none",
}
_LETTERS = {"M": "mamba2", "*": "full", "-": "none", "E": "none"}  # of hybrid_override_pattern in Nemotron-H
# One full layer in so many, if the configuration has no list (in its class in transformers)
_PATTERNS = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4, "gpt_oss": 2, "olmo3": 4, "llama4_text": 4, "exaone4": 4}
_FIRST_VERSION = frozenset({"mamba", "falcon_mamba", "jamba"})  # state-space layers without heads
# Windows in the configuration that the model does not use in every layer without a list of layers
_WITHOUT_WINDOW = frozenset({"smollm3"})
# Models with parts that are not in this package: other states, caches or experts
_UNKNOWN = frozenset(
    {
        *("rwkv", "recurrent_gemma", "xlstm", "minimax", "kimi_linear", "zamba", "zamba2", "zaya", "bailing_hybrid"),
        *("gemma3n_text", "gemma4_text", "gemma4_unified_text", "longcat_flash", "doge", "jetmoe", "hrm_text", "moshi"),
        *("bert", "roberta", "xlm-roberta", "camembert", "electra", "ernie", "rembert", "megatron-bert", "roformer"),
        *("roberta-prelayernorm", "xlm-roberta-xl", "xmod", "big_bird", "data2vec-text", "bert-generation", "roc_bert"),
        *("ernie4_5_vl_moe_text", "muse_spark", "muse_spark_text", "idefics", "mllama_text_model", "blt"),
    }
)


def mixers(config: Configuration) -> tuple[str, ...]:
    """Returns the mixer of each layer.

    Raises:
        MemdiagError: A layer is of an unknown kind.
    """
    if config.kind in _UNKNOWN:
        raise MemdiagError(phrase("serve_fit.unknown", name=config.kind), phrase("serve_fit.states.hint"))
    letters = config.get("hybrid_override_pattern")
    if isinstance(letters, str):
        return _known([_LETTERS.get(letter, letter) for letter in letters])
    listed = config.names("layer_types", "layers_block_type")
    if listed:
        found = [_MIXERS.get(name, name) for name in listed]
        if not config.size("linear_num_key_heads"):  # transformers 5 calls state-space layers linear attention too
            state = "mamba" if config.kind in _FIRST_VERSION else "mamba2"
            found = [state if mixer in {"linear", "mamba2"} else mixer for mixer in found]
        return _known(found)
    num = config.needed("num_hidden_layers")
    if config.kind in {"mamba", "falcon_mamba"}:
        return ("mamba",) * num
    if config.kind == "mamba2":
        return ("mamba2",) * num
    if config.kind == "falcon_h1":
        return ("full+mamba2",) * num
    chosen = config.get("attn_layer_indices", "full_attn_idxs")
    if isinstance(chosen, list):
        other = "conv" if config.size("conv_L_cache") else "mamba2"
        return tuple("full" if layer in chosen else other for layer in range(num))
    if period := config.size("attn_layer_period"):
        offset = int(config.get("attn_layer_offset") or 0)
        return tuple("full" if layer % period == offset else "mamba" for layer in range(num))
    if config.size("linear_num_key_heads"):
        interval = config.size("full_attention_interval") or 4
        return tuple("full" if (layer + 1) % interval == 0 else "linear" for layer in range(num))
    states = [key for key in ("mamba_d_state", "ssm_state_size", "state_size") if config.size(key)]
    if states:
        raise _refused(states)
    return _attention(config, num)


def _attention(config: Configuration, num: int) -> tuple[str, ...]:
    """Returns the kinds of attention of a model without states, if the configuration has no list of them."""
    kind = "chunked" if config.kind == "llama4_text" and config.size("attention_chunk_size") else "sliding"
    if kind == "sliding" and (
        not config.size("sliding_window") or config.get("use_sliding_window") is False or config.kind in _WITHOUT_WINDOW
    ):
        return ("full",) * num
    if config.get("use_sliding_window") is True and config.get("max_window_layers") is not None:
        first = int(config.get("max_window_layers"))
        return tuple(kind if layer >= first else "full" for layer in range(num))
    pattern = config.get("sliding_window_pattern", "_sliding_window_pattern")
    if isinstance(pattern, str) and pattern:
        return tuple("full" if pattern[layer % len(pattern)] == "G" else kind for layer in range(num))
    if isinstance(pattern, list) and len(pattern) == num:
        return tuple(kind if one else "full" for one in pattern)
    every = pattern if isinstance(pattern, int) and pattern > 0 else _PATTERNS.get(config.kind, 0)
    if not every:
        return (kind,) * num
    return tuple("full" if (layer + 1) % every == 0 else kind for layer in range(num))


def feed_forward(config: Configuration) -> tuple[str, ...]:
    """Returns the kind of the MLP of each layer: "dense", "experts" or "none"."""
    letters = config.get("hybrid_override_pattern")
    if isinstance(letters, str):
        return tuple({"-": "dense", "E": "experts"}.get(letter, "none") for letter in letters)
    blocks = config.names("layers_block_type")
    if "mlp" in blocks or "moe" in blocks:
        return tuple({"mlp": "dense", "moe": "experts"}.get(block, "none") for block in blocks)
    num = config.size("num_hidden_layers") or len(blocks) or len(config.names("layer_types"))
    if config.kind in {"mamba", "mamba2", "falcon_mamba"}:
        return ("none",) * num
    if not config.size("num_experts"):
        return ("dense",) * num
    listed = config.names("mlp_layer_types")
    if listed:
        return tuple("dense" if name == "dense" else "experts" for name in listed)
    return tuple("experts" if _has_experts(config, layer) else "dense" for layer in range(num))


def _has_experts(config: Configuration, layer: int) -> bool:
    if layer < config.size("first_dense"):
        return False
    frequency = config.get("moe_layer_freq")
    if isinstance(frequency, list):
        return layer < len(frequency) and bool(frequency[layer])
    if isinstance(frequency, int) and frequency > 1:
        return layer % frequency == 0
    if period := config.size("expert_layer_period"):
        return layer % period == int(config.get("expert_layer_offset") or 0)
    if step := config.size("interleave_moe_layer_step"):
        chosen = config.get("moe_layers")
        return layer in chosen if isinstance(chosen, list) else (layer + 1) % step == 0
    if config.size("moe_layer_interval"):
        first, interval = int(config.get("moe_layer_start_index") or 0), config.size("moe_layer_interval")
        last = int(config.get("moe_layer_end_index") or -1)
        return layer >= first and (last < 0 or layer <= last) and (layer + 1) % interval == 0
    if layer in (config.get("mlp_only_layers") or ()):
        return False
    return (layer + 1) % (config.size("decoder_sparse_step") or 1) == 0


def _known(found: list[str]) -> tuple[str, ...]:
    unknown = sorted({mixer for mixer in found if mixer not in _MIXERS.values() and mixer != "mamba"})
    if unknown:
        raise _refused(unknown)
    return tuple(found)


def _refused(names: list[str]) -> MemdiagError:
    return MemdiagError(phrase("serve_fit.states", names=", ".join(names)), phrase("serve_fit.states.hint"))
