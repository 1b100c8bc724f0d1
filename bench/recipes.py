"""Runs the recipes of ``memdiag fit --model`` for public model configurations, and writes reports/recipes.md.

    python bench/recipes.py --python PYTHON --work FOLDER

PYTHON has a CUDA build of torch, transformers, peft, diffusers, deepspeed and megatron-core. The configurations are the
numbers of the models' own config.json. FOLDER keeps the runs, so that an interrupted bench continues.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPORTS = Path(__file__).parents[1] / "reports"
DEVICE = "cuda:h100-80g"
PACKAGES = ("torch", "transformers", "peft", "diffusers", "deepspeed", "megatron-core")
RANK_OF_8 = ("--world", "8", "--ranks", "0")


def decoder(
    kind: str, size: tuple[int, int, int], heads: tuple[int, int], vocabulary: int, **more: Any
) -> dict[str, Any]:
    """Returns the configuration of a decoder: (hidden, intermediate, layers), (heads, heads of keys and values)."""
    return {
        "model_type": kind,
        "hidden_size": size[0],
        "intermediate_size": size[1],
        "num_hidden_layers": size[2],
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
        **more,
    }


@dataclass(frozen=True)
class Model:
    """A public model, and how it is run."""

    name: str
    config: dict[str, Any]
    recipe: str = "train"
    grid: str = "mbs=1 seq=2048 ckpt=full"
    options: tuple[str, ...] = field(default=())


LLAMA_8B = decoder("llama", (4096, 14336, 32), (32, 8), 128256)
MIXTRAL = decoder("mixtral", (4096, 14336, 32), (32, 8), 32000, num_local_experts=8, num_experts_per_tok=2)
QWEN_VL_3B = {
    "model_type": "qwen2_5_vl",
    "text_config": decoder(
        "qwen2_5_vl_text",
        (2048, 11008, 36),
        (16, 2),
        151936,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
    ),
    "vision_config": {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "out_hidden_size": 2048,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
    },
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
    "tie_word_embeddings": True,
}
LLAVA_7B = {
    "model_type": "llava",
    "text_config": decoder("llama", (4096, 11008, 32), (32, 32), 32064),
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 336,
        "patch_size": 14,
    },
    "image_token_index": 32000,
    "vision_feature_layer": -2,
}
VIT = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
DEEPSEEK_V2_LITE = {
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
QWEN3_30B = {
    "head_dim": 128,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
}
MODELS = (
    Model("Llama-3.2-1B", decoder("llama", (2048, 8192, 16), (32, 8), 128256, head_dim=64, tie_word_embeddings=True)),
    Model("Llama-3.1-8B", LLAMA_8B, "fsdp2", options=RANK_OF_8),
    Model("Llama-3.1-8B", LLAMA_8B, "zero3", options=RANK_OF_8),
    Model("Llama-3.1-8B", LLAMA_8B, "megatron", "tp=2 pp=2 mbs=1 seq=8192 ckpt=selective", RANK_OF_8),
    Model("Qwen2.5-0.5B", decoder("qwen2", (896, 4864, 24), (14, 2), 151936, tie_word_embeddings=True)),
    Model("Qwen3-8B", decoder("qwen3", (4096, 12288, 36), (32, 8), 151936, head_dim=128), "lora"),
    Model("Mistral-7B-v0.3", decoder("mistral", (4096, 14336, 32), (32, 8), 32768, sliding_window=None), "lora"),
    Model(
        "Gemma-2-2B",
        decoder("gemma2", (2304, 9216, 26), (8, 4), 256000, head_dim=256, tie_word_embeddings=True),
        grid="mbs=1 seq=2048 ckpt=full attention=eager",
    ),
    Model(
        "OLMoE-1B-7B",
        decoder("olmoe", (2048, 1024, 16), (16, 16), 50304, num_experts=64, num_experts_per_tok=8),
        "lora",
        options=("--expert-load", "balanced"),
    ),
    Model(
        "DeepSeek-V2-Lite",
        decoder("deepseek_v2", (2048, 10944, 27), (16, 16), 102400, **DEEPSEEK_V2_LITE),
        "lora",
        grid="mbs=1 seq=2048 ckpt=full precision=bf16",
        options=("--expert-load", "balanced"),
    ),
    Model(
        "Qwen3-30B-A3B",
        decoder("qwen3_moe", (2048, 6144, 48), (32, 4), 151936, **QWEN3_30B),
        "lora",
        grid="mbs=1 seq=2048 ckpt=full precision=bf16",
        options=("--expert-load", "balanced"),
    ),
    Model(
        "Mixtral-8x7B",
        MIXTRAL,
        "megatron",
        "tp=1 pp=4 ep=8 mbs=1 seq=4096 ckpt=full",
        ("--world", "32", "--ranks", "0", "--expert-load", "balanced"),
    ),
    Model(
        "Mixtral-8x7B",
        MIXTRAL,
        "megatron",
        "tp=1 pp=4 ep=8 mbs=1 seq=4096 ckpt=full capacity=1.25",
        ("--world", "32", "--ranks", "0"),
    ),
    Model("Qwen2.5-VL-3B", QWEN_VL_3B, "lora", "mbs=1 seq=2048 image=896 ckpt=full precision=bf16"),
    Model("LLaVA-1.5-7B", LLAVA_7B, "lora", "mbs=1 seq=2048 ckpt=full precision=bf16"),
    Model("ViT-L/16", {"model_type": "vit", "image_size": 224, "patch_size": 16, **VIT}, grid="mbs=32 ckpt=none"),
    Model(
        "Stable Diffusion 1.5 (U-Net)",
        {
            "_class_name": "UNet2DConditionModel",
            "sample_size": 64,
            "in_channels": 4,
            "out_channels": 4,
            "cross_attention_dim": 768,
            "attention_head_dim": 8,
            "block_out_channels": [320, 640, 1280, 1280],
            "layers_per_block": 2,
        },
        grid="mbs=4 ckpt=none",
    ),
    Model(
        "DiT-XL/2 256",
        {
            "_class_name": "DiTTransformer2DModel",
            "sample_size": 32,
            "patch_size": 2,
            "in_channels": 4,
            "out_channels": 8,
            "num_layers": 28,
            "num_attention_heads": 16,
            "attention_head_dim": 72,
            "num_embeds_ada_norm": 1000,
        },
        grid="mbs=16 ckpt=none",
    ),
)


def search(model: Model, python: str, work: Path) -> dict[str, Any]:
    """Returns the configuration of a model on the device."""
    name = f"{model.name} {model.recipe} {model.grid}"
    folder = work / "".join(letter if letter.isalnum() else "-" for letter in name)
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.json"
    config.write_text(json.dumps(model.config), encoding="utf-8")
    words = [
        "--device",
        DEVICE,
        "--model",
        str(config),
        "--recipe",
        model.recipe,
        "--python",
        python,
        "--tune-seconds",
        "0",
    ]
    command = [sys.executable, "-m", "memdiag", "fit", *words, "--grid", model.grid, *model.options, "--json", "-q"]
    done = subprocess.run([*command, "-o", str(folder / "runs")], stdout=subprocess.PIPE, text=True, check=False)
    (cell,) = json.loads(done.stdout)["cells"]
    print(model.name, cell["on"][0]["outcome"], cell["error"], flush=True)
    found: dict[str, Any] = cell
    return found


def row(model: Model, cell: dict[str, Any]) -> str:
    """Returns a row of the table."""
    on = cell["on"][0]
    sizes = [on["peak_allocated_bytes"], on["peak_reserved_bytes"]]
    shown = ["-" if size is None else f"{size / (1 << 30):.2f}" for size in sizes]
    options = " ".join((model.grid, *model.options))
    outcome = cell["error"] or on["outcome"]
    return f"| {model.name} | {model.recipe} | `{options}` | {shown[0]} | {shown[1]} | {outcome} |"


def main() -> None:
    """Runs the models and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    rows = [row(model, search(model, given.python, given.work.resolve())) for model in MODELS]
    (REPORTS / "recipes.md").write_text(page(rows, versions(given.python)), encoding="utf-8")


def versions(python: str) -> str:
    """Returns the versions of the packages that the programs use."""
    script = "import importlib.metadata as m, sys; print(*(f'{p} {m.version(p)}' for p in sys.argv[1:]), sep=', ')"
    return subprocess.run(
        [python, "-c", script, *PACKAGES], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


def page(rows: list[str], packages: str) -> str:
    """Returns the report."""
    table = "\n".join(rows)
    return f"""# Recipes of `memdiag fit --model` for public models

`python bench/recipes.py --python PYTHON --work FOLDER` reproduces this page. Each model is built from the numbers of
its own config.json with random data. The recipe runs two steps (or two prompts) on a simulated {DEVICE}, without a
GPU. Rows with `--world` are one rank of that many. Peaks are GiB; they are simulated, and these rows have no published
figure to compare with.

| model | recipe | values | peak allocated | peak reserved | outcome |
|---|---|---|---:|---:|---|
{table}

Training rows of the programs with transformers use fp32 weights with bf16 autocast and AdamW unless the values say
otherwise. `zero3` and `megatron` use bf16 weights with fp32 states; `megatron` divides the states among the ranks with
the same part of the model (distributed optimizer), and takes twice as many micro-batches as pipeline stages in a step.
Mixtures of experts run under a stated load of the experts (`--expert-load balanced`), or pad each expert to a capacity
(`capacity`). With the versions used, peft's `all-linear` adapts their experts, too. Each sequence of a vision-language
model has one image.

{packages}.
"""


if __name__ == "__main__":
    main()
