"""Values of a Hugging Face configuration, under one name for each size.

Architectures have different keys for the same size, and configurations leave out values that equal the defaults of
their class in transformers. ``defaults.json`` has these defaults; ``bench/serving_shapes.py defaults`` writes it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.text import phrase

_NESTED = ("text_config", "llm_config", "language_config")
_ALIASES = {
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads", "num_query_groups"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "intermediate_size": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "n_ctx"),
    "num_experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    "shared_width": (
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "share_expert_dim",
    ),
    "expert_width": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "first_dense": ("first_k_dense_replace", "num_dense_layers"),
}
# Models whose decoder also caches keys and values of an encoder
_ENCODER_DECODERS = frozenset(
    {"t5", "mt5", "umt5", "bart", "mbart", "whisper", "pegasus", "marian", "m2m_100", "t5gemma"}
)


class Configuration:
    """The configuration of a decoder, with the defaults of its class.

    Args:
        config: Content of a ``config.json``.

    Attributes:
        whole: The content.
        text: The part on the decoder.
        kind: ``model_type`` of the decoder; "" if unknown.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.whole = config
        nested = next((config[key] for key in _NESTED if isinstance(config.get(key), dict)), None)
        thinker = config.get("thinker_config")
        if nested is None and isinstance(thinker, dict):
            self.whole = {**config, **thinker}
            nested = thinker.get("text_config")
        self.text: Mapping[str, Any] = nested if isinstance(nested, dict) else config
        self.kind = str(self.text.get("model_type") or "")
        self._defaults = _defaults().get(self.kind, {})

    def get(self, *keys: str) -> Any:
        """Returns the value of the first key that the configuration has, or a default has; None if there is none.

        A null in the configuration overrides the default of that key.
        """
        for key in keys:
            if self.text.get(key) is not None:
                return self.text[key]
        return next((self._defaults[key] for key in keys if key in self._defaults and key not in self.text), None)

    def size(self, name: str) -> int:
        """Returns a size under any of its names; 0 if it is missing or not a number."""
        found = self.get(*_ALIASES.get(name, (name,)))
        return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0

    def needed(self, name: str) -> int:
        """Returns a size.

        Raises:
            MemdiagError: The configuration does not have it.
        """
        found = self.size(name)
        if not found:
            raise MemdiagError(phrase("serve_fit.missing", key=name), phrase("serve_fit.hint"))
        return found

    def flag(self, name: str, default: bool) -> bool:
        """Returns a value of the decoder, or of the whole model, that is true or false."""
        for values in (self.text, self.whole, self._defaults):
            if isinstance(values.get(name), bool):
                return bool(values[name])
        return default

    def names(self, *keys: str) -> list[str]:
        """Returns a list of names, such as ``layer_types``; empty if there is none."""
        found = self.get(*keys)
        return [str(one) for one in found] if isinstance(found, list) else []

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether an encoder feeds the decoder through cross-attention."""
        return self.whole.get("is_encoder_decoder") is True or self.kind in _ENCODER_DECODERS


def part(config: Mapping[str, Any], *names: str) -> Configuration | None:
    """Returns another part of a configuration, such as that of the vision encoder; None if there is none."""
    found = next((config[name] for name in names if isinstance(config.get(name), dict)), None)
    return Configuration(found) if found is not None else None


@functools.cache
def _defaults() -> Mapping[str, Mapping[str, Any]]:
    text = resources.files("memdiag.serving").joinpath("defaults.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, Any]] = json.loads(text)
    return found
