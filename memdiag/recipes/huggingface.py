"""Trains or runs a model that a configuration file describes, with random data: the program of ``memdiag fit --model``.

The Python that runs it needs torch and transformers (diffusers for its models, peft for LoRA, deepspeed for ZeRO-3),
not memdiag. Each recipe is a function.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

Batch = dict[str, torch.Tensor]
BatchMaker = Callable[[], Batch]

IMAGES = "AutoModelForImageClassification"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "amp": torch.float32}
PROMPT_TOKENS = 77  # of text-to-image models


def options() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("cuda", "npu"), default="cuda")
    parser.add_argument("--model", type=Path, required=True, help="config.json, or a folder with it")
    parser.add_argument("--recipe", choices=sorted(RECIPES), default="train")
    parser.add_argument("--mbs", type=int, default=1, help="sequences or images in a batch")
    parser.add_argument("--seq", type=int, default=2048, help="tokens of a sequence; for inference, of the prompt")
    parser.add_argument("--image", type=int, default=448, help="pixels of a side, where the model takes any size")
    parser.add_argument("--new", type=int, default=128, help="tokens that inference generates")
    parser.add_argument("--ckpt", choices=("none", "full"), default="none", help="activation checkpointing")
    parser.add_argument("--precision", choices=sorted(DTYPES), default="amp", help="amp: fp32 weights, bf16 autocast")
    parser.add_argument("--optimizer", choices=("adamw", "adamw-fused", "sgd"), default="adamw")
    parser.add_argument("--attention", default="sdpa", help="attn_implementation of transformers")
    parser.add_argument("--lora-rank", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches in a step")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layers", type=int, help="instead of the configuration's number of layers")
    return parser.parse_args()


# ---------------------------------------------------------------------------------------------------------- the model


def read(path: Path) -> dict[str, Any]:
    """Returns the configuration of the model."""
    model_config: dict[str, Any] = json.loads(
        (path / "config.json" if path.is_dir() else path).read_text(encoding="utf-8")
    )
    return model_config


def build(given: argparse.Namespace) -> tuple[Any, BatchMaker]:
    """Returns the model on the device, and the function that makes a batch for it."""
    model_config = read(given.model)
    if "_class_name" in model_config:
        return build_diffusers(given, model_config)
    import transformers
    from transformers.models.auto import modeling_auto

    config = transformers.AutoConfig.for_model(model_config.pop("model_type"), **model_config)
    text = config.get_text_config()
    if given.layers:
        text.num_hidden_layers = given.layers
    config.use_cache = given.recipe == "inference"
    kinds = (
        ("AutoModelForCausalLM", modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
        ("AutoModelForSeq2SeqLM", modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES),
        ("AutoModelForImageTextToText", modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES),
        (IMAGES, modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES),
        ("AutoModelForMaskedLM", modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES),
    )
    named = set(model_config.get("architectures") or ())
    fitting = [kind for kind, names in kinds if named & {names.get(config.model_type)}]
    fitting += [kind for kind, names in kinds if config.model_type in names]
    if not fitting:
        raise SystemExit(f"{given.model}: no recipe trains a model of type {config.model_type}")
    dtype = DTYPES[given.precision]
    with torch.device(given.backend):
        model = getattr(transformers, fitting[0]).from_config(config, dtype=dtype, attn_implementation=given.attention)
    if given.ckpt == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if fitting[0] == IMAGES:
        return model, functools.partial(image_batch, given, config)
    return model, functools.partial(token_batch, given, config, frozenset(inspect.signature(model.forward).parameters))


def build_diffusers(given: argparse.Namespace, model_config: dict[str, Any]) -> tuple[Any, BatchMaker]:
    """Returns a model of diffusers, and the function that makes a batch for it."""
    import diffusers

    with torch.device(given.backend):
        model = getattr(diffusers, model_config["_class_name"]).from_config(model_config).to(DTYPES[given.precision])
    if given.ckpt == "full":
        model.enable_gradient_checkpointing()
    return model, functools.partial(latent_batch, given, model.config)


def token_batch(given: argparse.Namespace, config: Any, inputs: frozenset[str]) -> Batch:
    """Returns token ids, and an image for each sequence of a model that sees; ``inputs`` are those that it takes."""
    images, num_tokens = seen(given, config) if getattr(config, "vision_config", None) else ({}, 0)
    if num_tokens >= given.seq:
        raise SystemExit(f"an image has {num_tokens} tokens, but --seq has {given.seq}: give a larger --seq")
    tokens = torch.zeros(given.mbs, given.seq, dtype=torch.long)
    kinds = torch.zeros_like(tokens)  # 1: a token of an image
    kinds[:, 1 : 1 + num_tokens] = 1
    if num_tokens:
        tokens[kinds == 1] = image_token(config)
    ids = tokens.to(given.backend)
    if images:
        names = inputs & {"mm_token_type_ids", "token_type_ids"}
        images |= {name: kinds.to(given.backend) for name in names}
    if given.recipe == "inference":
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **images}
    return {"input_ids": ids, "labels": ids, **images}


def is_any_size(config: Any) -> bool:
    """Returns whether a model takes images of any size, as rows of patches (Qwen-VL)."""
    return hasattr(config.vision_config, "spatial_merge_size")


def image_token(config: Any) -> int:
    """Returns the token that stands for a part of an image."""
    model_config = getattr(config, "image_token_id", None)
    return int(config.image_token_index if model_config is None else model_config)


def seen(given: argparse.Namespace, config: Any) -> tuple[Batch, int]:
    """Returns an image for each sequence, and the number of its tokens."""
    vision = config.vision_config
    if is_any_size(config):
        side = given.image // (vision.patch_size * vision.spatial_merge_size) * vision.spatial_merge_size
        channels = getattr(vision, "in_channels", getattr(vision, "in_chans", 3))
        width = channels * vision.temporal_patch_size * vision.patch_size**2
        patches = torch.empty(given.mbs * side**2, width, dtype=activation_type(given), device=given.backend)
        grid = torch.tensor([[1, side, side]] * given.mbs).to(given.backend)
        return {"pixel_values": patches, "image_grid_thw": grid}, side**2 // vision.spatial_merge_size**2
    images = pixels(given, vision)
    num_patches = (images.shape[-1] // vision.patch_size) ** 2
    scale = getattr(config, "scale_factor", None)
    tokens = getattr(config, "mm_tokens_per_image", None) or num_patches // (scale or 1) ** 2
    return {"pixel_values": images[:, None] if scale else images}, tokens


def image_batch(given: argparse.Namespace, config: Any) -> Batch:
    """Returns images and their classes."""
    return {
        "pixel_values": pixels(given, config),
        "labels": torch.zeros(given.mbs, dtype=torch.long, device=given.backend),
    }


def pixels(given: argparse.Namespace, config: Any) -> torch.Tensor:
    """Returns images of the size that a model expects."""
    size = config.image_size if isinstance(config.image_size, int) else config.image_size[0]
    return torch.empty(given.mbs, config.num_channels, size, size, dtype=activation_type(given), device=given.backend)


def latent_batch(given: argparse.Namespace, config: Any) -> Batch:
    """Returns the input of a step of a diffusion model."""
    size, dtype = config.sample_size, activation_type(given)
    shape: tuple[int, ...] = (given.mbs, config.in_channels, size, size)
    name = "hidden_states" if "Transformer" in config["_class_name"] else "sample"
    batch = {name: torch.zeros(shape, dtype=dtype, device=given.backend)}
    batch["timestep"] = torch.zeros(given.mbs, dtype=torch.long, device=given.backend)
    if width := config.get("cross_attention_dim"):
        shape = (given.mbs, PROMPT_TOKENS, width)
        batch["encoder_hidden_states"] = torch.zeros(shape, dtype=dtype, device=given.backend)
    if config.get("num_embeds_ada_norm"):
        batch["class_labels"] = torch.zeros(given.mbs, dtype=torch.long, device=given.backend)
    return batch


def activation_type(given: argparse.Namespace) -> torch.dtype:
    """Returns the type of the model's inputs."""
    return (
        torch.bfloat16 if given.precision == "bf16" else torch.float16 if given.precision == "fp16" else torch.float32
    )


# -------------------------------------------------------------------------------------------------------- the recipes


def optimizer_of(given: argparse.Namespace, model: Any) -> torch.optim.Optimizer:
    """Returns the optimizer of the trainable weights."""
    parameters = [each for each in model.parameters() if each.requires_grad]
    if given.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=1e-3)
    return torch.optim.AdamW(parameters, lr=1e-4, fused=given.optimizer == "adamw-fused")


def loss_of(output: Any) -> Any:
    """Returns the loss of a model's output; for a diffusion model, the mean square."""
    loss = getattr(output, "loss", None)
    return output.sample.float().square().mean() if loss is None else loss


def steps(given: argparse.Namespace, model: Any, batch_of: BatchMaker, optimizer: torch.optim.Optimizer) -> None:
    """Trains for the given number of steps."""
    is_amp = given.precision == "amp"
    for _ in range(given.steps):
        for _ in range(given.accumulate):
            with torch.autocast(given.backend, torch.bfloat16) if is_amp else nullcontext():
                loss = loss_of(model(**batch_of())) / given.accumulate
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def train(given: argparse.Namespace) -> None:
    """Trains all weights on one device."""
    model, batch_of = build(given)
    steps(given, model.train(), batch_of, optimizer_of(given, model))


def lora(given: argparse.Namespace) -> None:
    """Trains LoRA adapters of all linear layers on one device."""
    import peft

    model, batch_of = build(given)
    if given.ckpt == "full":
        model.enable_input_require_grads()
    config = peft.LoraConfig(r=given.lora_rank, lora_alpha=2 * given.lora_rank, target_modules="all-linear")
    model = peft.get_peft_model(model, config)
    steps(given, model.train(), batch_of, optimizer_of(given, model))


def ddp(given: argparse.Namespace) -> None:
    """Trains all weights, with copies of the model on all ranks."""
    start(given)
    model, batch_of = build(given)
    model = torch.nn.parallel.DistributedDataParallel(model.train(), gradient_as_bucket_view=True)
    steps(given, model, batch_of, optimizer_of(given, model))


def zero1(given: argparse.Namespace) -> None:
    """Trains as ``ddp``, with the states of the optimizer divided among the ranks."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    start(given)
    model, batch_of = build(given)
    model = torch.nn.parallel.DistributedDataParallel(model.train(), gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-4)
    steps(given, model, batch_of, optimizer)


def fsdp2(given: argparse.Namespace) -> None:
    """Trains with weights, gradients and states divided among the ranks, layer by layer (fully_shard)."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    start(given)
    model, batch_of = build(given)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if given.precision == "amp" else MixedPrecisionPolicy()
    for layers in [each for each in model.modules() if isinstance(each, torch.nn.ModuleList)]:
        for layer in layers:
            if sum(1 for _ in layer.parameters()) > 1:
                fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    given.precision = "fp32"  # FSDP casts by itself
    steps(given, model.train(), batch_of, optimizer_of(given, model))


def zero3(given: argparse.Namespace) -> None:
    """Trains with weights, gradients and states divided among the ranks by DeepSpeed."""
    import deepspeed
    from torch import _dynamo  # noqa: F401 - it cannot be imported while DeepSpeed replaces constructors of tensors

    if given.precision in {"amp", "fp32"}:
        given.precision = "bf16"  # with weights and states of the optimizer in fp32
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "adamw": ("AdamW", {"torch_adam": True}),  # DeepSpeed's own would be compiled by nvcc
        "adamw-fused": ("AdamW", {"torch_adam": True, "fused": True}),
        "sgd": ("SGD", {}),
    }
    kind, parameters = kinds[given.optimizer]
    settings = {
        "train_micro_batch_size_per_gpu": given.mbs,
        "gradient_accumulation_steps": given.accumulate,
        given.precision: {"enabled": True},
        "zero_optimization": {"stage": 3, "overlap_comm": True, "contiguous_gradients": True},
        "optimizer": {"type": kind, "params": {"lr": 1e-4, **parameters}},
        "zero_allow_untested_optimizer": True,
    }
    deepspeed.init_distributed("nccl" if given.backend == "cuda" else "hccl")
    with deepspeed.zero.Init(config_dict_or_path=settings):
        model, batch_of = build(given)
    engine, *_ = deepspeed.initialize(model=model.train(), config=settings)
    for _ in range(given.steps * given.accumulate):
        engine.backward(loss_of(engine(**batch_of())))
        engine.step()


def inference(given: argparse.Namespace) -> None:
    """Reads a prompt and generates tokens, with a cache of keys and values."""
    if given.precision == "amp":
        given.precision = "bf16"
    model, batch_of = build(given)
    model.eval()
    with torch.inference_mode():
        for _ in range(given.steps):
            batch = batch_of()
            if not hasattr(model, "generate") or "input_ids" not in batch:
                model(**{name: value for name, value in batch.items() if name != "labels"})
                continue
            model.generate(**batch, max_new_tokens=given.new, min_new_tokens=given.new, do_sample=False)


def start(given: argparse.Namespace) -> None:
    """Joins the other ranks."""
    getattr(torch, given.backend).set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group("nccl" if given.backend == "cuda" else "hccl")


RECIPES = {
    "train": train,
    "lora": lora,
    "ddp": ddp,
    "zero1": zero1,
    "zero3": zero3,
    "fsdp2": fsdp2,
    "inference": inference,
}

if __name__ == "__main__":
    chosen = options()
    if chosen.backend == "npu":
        import torch_npu  # noqa: F401 - adds the device
    RECIPES[chosen.recipe](chosen)
