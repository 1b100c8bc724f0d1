"""Bytes of a parameter in a quantized checkpoint, by part of the model.

A method quantizes the projections of attention, MLPs and experts, and the configuration names the exceptions. It
leaves embeddings, norms and routers in 16 bits, and the output projection too unless the configuration says
otherwise. Scales and zero points count: a group of 128 numbers of 4 bits has a scale of 16 bits.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any

from memdiag.serving.parameters import Parameters, Part

PLAIN = 2.0
_NAMES: dict[Part, str] = {
    "attention": "layers.{}.self_attn.q_proj",
    "state": "layers.{}.linear_attn.in_proj",
    "mlp": "layers.{}.mlp.up_proj",
    "experts": "layers.{}.mlp.experts.0.up_proj",
    "shared": "layers.{}.mlp.shared_expert.up_proj",
    "head": "lm_head",
    "encoder": "visual.blocks.0.attn.qkv",
}
_ENCODERS = ("visual", "vision_tower", "vision_model", "vision_encoder", "multi_modal_projector", "audio_tower")
_LINEAR = frozenset({"attention", "state", "mlp", "experts", "shared"})
_EXPERTS_ONLY = frozenset({"mxfp4", "gpt_oss_mxfp4", "experts_int8", "moe_wna16"})
# Bytes of a number with its scale, of methods without a number of bits in the configuration
_FIXED = {
    **dict.fromkeys(("fp8", "fbgemm_fp8", "ptpc_fp8", "fp8_w8a8", "experts_int8"), 1.0),
    **dict.fromkeys(("mxfp4", "gpt_oss_mxfp4"), 4.25 / 8),
    **dict.fromkeys(("nvfp4", "modelopt_fp4"), 4.5 / 8),
    **dict.fromkeys(("mxfp8", "modelopt_mxfp8"), 8.25 / 8),
    "bitnet": 0.25,
}
_LONGEST_PATTERN = 400


class Quantization:
    """How a checkpoint stores each part.

    Args:
        config: Content of ``config.json``.
        text: Its part on the decoder.

    Attributes:
        method: Name of the method; "" if the model is not quantized.
        is_known: Whether the number of bits is known; if not, all parts count with 16 bits.
        has_fp8_cache: Whether the checkpoint asks for a KV cache of 8 bits.
    """

    def __init__(self, config: Mapping[str, Any], text: Mapping[str, Any]) -> None:
        found = config.get("quantization_config") or config.get("compression_config") or text.get("quantization_config")
        self._found: Mapping[str, Any] = found if isinstance(found, dict) else {}
        nested = self._found.get("quantization")
        if isinstance(nested, dict):  # NVIDIA's ModelOpt
            self._found = {"quant_method": "modelopt", **nested}
        self.method = str(self._found.get("quant_method") or "").lower() if self._found else ""
        self.has_fp8_cache = _fp8_cache(self._found)
        self._groups = _groups(self._found)
        self._bytes = _bytes_of_number(self._found, self.method)
        self.is_known = not self._found or bool(self._groups) or self._bytes is not None
        self._excluded = _Patterns(_exceptions(self._found))

    def bytes_of(self, parameters: Parameters) -> float:
        """Returns the mean bytes of a parameter of a part, with its scales."""
        part = parameters.part
        if not self._found or not self.is_known or part not in _NAMES:
            return PLAIN
        if part == "head":
            return self._quantized("lm_head") if self._found.get("lm_head") is True else PLAIN
        if part == "encoder":
            return PLAIN if self._leaves_encoder() else self._quantized(_NAMES[part])
        if part not in _LINEAR or (self.method in _EXPERTS_ONLY and part != "experts"):
            return PLAIN
        names = [_NAMES[part].format(layer) for layer in parameters.layers or (0,)]
        return sum(self._quantized(name) for name in names) / len(names)

    def is_quantized(self, name: str) -> bool:
        """Returns whether a projection of a layer, such as "layers.0.self_attn.kv_b_proj", is stored in fewer bits."""
        if not self._found or not self.is_known or self.method in _EXPERTS_ONLY:
            return False
        return self._quantized(name) < PLAIN

    def _leaves_encoder(self) -> bool:
        """Returns whether the vision encoder stays in 16 bits: AWQ, GPTQ and FP8 checkpoints quantize the decoder."""
        if not self._groups:
            return self.method != "bitsandbytes"
        return any(any(word in text for word in _ENCODERS) for text in self._excluded.texts)

    def _quantized(self, name: str) -> float:
        if self._excluded.match(name):
            return PLAIN
        if not self._groups:
            return self._bytes if self._bytes is not None else PLAIN
        for targets, bytes_of_number in self._groups:
            if targets.match(name) or "Linear" in targets.texts:
                return bytes_of_number
        return PLAIN


class _Patterns:
    """Names of modules in a configuration: whole names, parts of names, globs, and regular expressions after "re:"."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(text for text in texts if len(text) <= _LONGEST_PATTERN)
        self._plain = {_from_layers(text) for text in self.texts}
        self._globs = [_from_layers(text) for text in self.texts if "*" in text and not text.startswith("re:")]
        self._regexes = [regex for text in self.texts if text.startswith("re:") and (regex := _compiled(text[3:]))]

    def match(self, name: str) -> bool:
        """Returns whether the patterns name a module, or a module that contains it."""
        words = name.split(".")
        inside = (".".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1))
        if any(one in self._plain for one in inside):
            return True
        if any(fnmatch.fnmatchcase(name, glob) or fnmatch.fnmatchcase(name, glob + ".*") for glob in self._globs):
            return True
        return any(regex.match(name) or regex.match(f"model.{name}") for regex in self._regexes)


def _from_layers(text: str) -> str:
    """Returns a name from "layers." on, because the names before it differ between checkpoints and engines."""
    at = text.find("layers.")
    return text[at:] if at > 0 else text


def _compiled(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except re.error:
        return None


def _exceptions(found: Mapping[str, Any]) -> list[str]:
    """Returns the modules that are not quantized."""
    names: list[str] = []
    for key in (
        "ignore",
        "modules_to_not_convert",
        "ignored_layers",
        "exclude_modules",
        "llm_int8_skip_modules",
        "exclude",
    ):
        listed = found.get(key)
        names += [str(one) for one in listed] if isinstance(listed, list) else []
    dynamic = found.get("dynamic")
    if isinstance(dynamic, dict):  # GPTQModel
        names += [f"re:{key[2:]}" for key in dynamic if str(key).startswith("-:")]
    return names


def _groups(found: Mapping[str, Any]) -> list[tuple[_Patterns, float]]:
    """Returns the groups of compressed-tensors: modules, and bytes of a number with its scale."""
    groups = found.get("config_groups")
    result = []
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        bits = weights.get("num_bits") if isinstance(weights, dict) else None
        if not isinstance(bits, int) or not isinstance(weights, dict):
            continue
        size = weights.get("group_size")
        form = str(group.get("format") or found.get("format") or "")
        scale = 8 if bits == 4 and weights.get("type") == "float" else 16
        zero = 0 if weights.get("symmetric", True) else bits
        extra = (scale + zero) / size if isinstance(size, int) and size > 0 else 0.0
        targets = [str(one) for one in group.get("targets") or ()]
        bits = 16 if "dense" in form and bits > 8 else bits
        result.append((_Patterns(targets), (bits + extra) / 8))
    return result


def _bytes_of_number(found: Mapping[str, Any], method: str) -> float | None:
    """Returns the bytes of a number with its scale, for methods with one number of bits; None if unknown."""
    name = str(found.get("quant_algo") or "").lower() or method
    for word, size in (("nvfp4", 4.5 / 8), ("mxfp4", 4.25 / 8), ("mxfp8", 8.25 / 8), ("fp8", 1.0)):
        if word in name and name not in _FIXED:
            return size
    if name in _FIXED:
        return _FIXED[name]
    if found.get("load_in_4bit") or found.get("_load_in_4bit"):
        return (4 + (8.5 if found.get("bnb_4bit_use_double_quant") else 32) / 64) / 8
    if found.get("load_in_8bit") or found.get("_load_in_8bit"):
        return 1.0
    bits = next((found[key] for key in ("bits", "w_bit", "wbits", "nbits", "weight_bits") if key in found), None)
    if not isinstance(bits, int) or isinstance(bits, bool) or not 0 < bits <= 16:
        return None
    group = found.get("group_size", found.get("q_group_size"))
    return (bits + (16 + bits) / group) / 8 if isinstance(group, int) and group > 0 else bits / 8


def _fp8_cache(found: Mapping[str, Any]) -> bool:
    scheme = found.get("kv_cache_scheme")
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8:
        return True
    return "fp8" in str(found.get("kv_cache_quant_algo") or "").lower()
