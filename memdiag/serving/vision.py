"""Parameters of vision and audio encoders, and of the projector that feeds the decoder.

Covers encoders of the ViT and Whisper families. Projectors differ by model; the number of their matrices is inferred
from the kind of the model, so the part is less exact than the decoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memdiag.serving.configuration import Configuration, part

_GATED = frozenset({"pixtral", "qwen2_5_vl", "qwen2_5_omni_vision_encoder", "glm4v", "glm4v_vision"})
_ONE_MATRIX = frozenset({"gemma3", "paligemma", "paligemma2"})


def encoder_parameters(config: Mapping[str, Any], hidden: int) -> int:
    """Returns the parameters of the encoders of a model; 0 without encoders, or if they are of another family.

    Args:
        config: Content of ``config.json``.
        hidden: Hidden size of the decoder.
    """
    vision = part(config, "vision_config", "visual_config", "vision_tower_config")
    audio = part(config, "audio_config")
    return (_vision(config, vision, hidden) if vision else 0) + (_audio(audio, hidden) if audio else 0)


def _vision(config: Mapping[str, Any], vision: Configuration, hidden: int) -> int:
    whole = str(config.get("model_type") or "")
    width = vision.size("embed_dim") or vision.size("hidden_size")
    layers = vision.size("depth") or vision.size("num_hidden_layers")
    inner = vision.size("intermediate_size") or int(float(vision.get("mlp_ratio") or 4) * width)
    patch, image = (_first(vision.get(key)) for key in ("patch_size", "image_size"))
    patch = patch or 14
    channels = (vision.size("num_channels") or vision.size("in_chans") or 3) * (vision.size("temporal_patch_size") or 1)
    is_gated = vision.kind in _GATED or whole in {"qwen2_5_vl", "mistral3"}
    each = 4 * width * (width + 1) + (3 if is_gated else 2) * width * inner + inner + 5 * width
    rows = (image // patch) ** 2 if not is_gated and not vision.size("depth") else 0
    positions = (rows + vision.size("num_position_embeddings")) * width
    return (
        layers * each + channels * patch * patch * width + positions + _projector(config, vision, whole, width, hidden)
    )


def _first(found: Any) -> int:
    """Returns a size, or the first of several equal ones; 0 if there is none."""
    found = found[0] if isinstance(found, list) and found else found
    return found if isinstance(found, int) else 0


def _projector(config: Mapping[str, Any], vision: Configuration, whole: str, width: int, hidden: int) -> int:
    if whole in _ONE_MATRIX:
        return width * hidden
    merge = vision.get("spatial_merge_size") or config.get("spatial_merge_size") or 1
    merged = width * merge * merge if isinstance(merge, int) else width
    if vision.size("depth"):  # Qwen2-VL merges patches inside the encoder, Qwen3-VL also after some of its layers
        return (merged * merged + merged * hidden) * (1 + len(vision.names("deepstack_visual_indexes")))
    if whole == "llama4":
        projected = vision.size("projector_output_dim") or hidden
        return merged * projected + projected * projected + projected * hidden
    if whole.startswith("internvl"):
        ratio = float(config.get("downsample_ratio") or 0.5)
        return int(width / ratio / ratio) * hidden + hidden * hidden
    merging = merged * width if merged != width else 0
    return merging + width * hidden + hidden * hidden


def _audio(audio: Configuration, hidden: int) -> int:
    width = audio.size("d_model") or audio.size("hidden_size")
    layers = audio.size("encoder_layers") or audio.size("num_hidden_layers")
    inner = audio.size("encoder_ffn_dim") or audio.size("intermediate_size")
    return layers * (4 * width * width + 2 * width * inner) + width * hidden
