"""Folders with the configuration of a published model, and weights that are all zeros: a sparse file takes no disk.

The shapes are those of the models' own config.json; the counts of parameters are the published ones.
"""

from __future__ import annotations

import json
import math
import struct
import subprocess
from pathlib import Path

_QWEN35 = {
    "model_type": "qwen3_5_text",
    "architectures": ["Qwen3_5ForCausalLM"],
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "linear_num_value_heads": 16,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}
MODELS = {
    "qwen3.5-0.8b": _QWEN35 | {"hidden_size": 1024, "intermediate_size": 3584},
    "qwen3.5-2b": _QWEN35 | {"hidden_size": 2048, "intermediate_size": 6144},
    "qwen3-8b": {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "tie_word_embeddings": False,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000,
        "dtype": "bfloat16",
    },
}
_NAMES_AND_SHAPES = """
import json, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(sys.argv[1]))
tied = set(getattr(model, "_tied_weights_keys", None) or ()) if model.config.tie_word_embeddings else set()
print(json.dumps({name: list(each.shape) for name, each in model.state_dict().items() if name not in tied}))
"""


def make_model(name: str, folder: Path, python: str) -> None:
    """Writes config.json and model.safetensors into ``folder / name``, unless they exist."""
    place = folder / name
    weights = place / "model.safetensors"
    if weights.exists():
        return
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(json.dumps(MODELS[name]), encoding="utf-8")
    done = subprocess.run([python, "-c", _NAMES_AND_SHAPES, str(place)], capture_output=True, text=True, check=True)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor, shape in json.loads(done.stdout.splitlines()[-1]).items():
        begin, end = end, end + 2 * math.prod(shape)
        header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with weights.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
