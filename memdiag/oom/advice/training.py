"""Remedies in the settings of the training program, in its own syntax.

The setting depends on the stage. A smaller training batch does not help evaluation, and no batch size helps while the
optimizer state is allocated. ``_SETTINGS`` has a row for each program with the setting of each stage. The catalogue has
the effect of the setting (``do.STAGE``) and its location (``in.PROGRAM``).
"""

from __future__ import annotations

import re
from typing import Literal

from memdiag.oom.advice.case import Case
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix

_DO = "micro-batch"  # text for a failure at no known stage
# Stages that use the setting of another stage if a program has no own setting.
_INSTEAD = {"gather": "evaluation", "update": "optimizer", "shard": "load"}

_HF_BATCH = "per_device_train_batch_size=1, gradient_accumulation_steps=16, gradient_checkpointing=True"
_HF_EVALUATION = "per_device_eval_batch_size=1, eval_accumulation_steps=1"
_HF_GATHER = "eval_accumulation_steps=1, prediction_loss_only=True"
_HF_OPTIMIZER = 'optim="adamw_bnb_8bit"'
_HF_LOAD = (
    "AutoModelForCausalLM.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True), "
    'device_map={"": rank})'
)
_DEEPSPEED_3 = (
    '"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}'
)
_VERL = "actor_rollout_ref."

# The setting of each stage, by program.
_SETTINGS: dict[str, dict[str, str]] = {
    "trainer": {
        "": f"TrainingArguments({_HF_BATCH})",
        "evaluation": f"TrainingArguments({_HF_EVALUATION})",
        "gather": (
            f"TrainingArguments({_HF_GATHER})  # predictions needed: preprocess_logits_for_metrics=lambda x, _: "
            "x.argmax(-1)"
        ),
        "generation": "TrainingArguments(per_device_eval_batch_size=1, generation_max_length=128)",
        "optimizer": f"TrainingArguments({_HF_OPTIMIZER})",
        "load": _HF_LOAD,
        "update": 'TrainingArguments(optim="adamw_torch_fused")  # or optim="adamw_bnb_8bit"',
        "logits": f"TrainingArguments({_HF_BATCH}, use_liger_kernel=True)",
    },
    "trl": {
        "": f"SFTConfig({_HF_BATCH}, max_length=1024)",
        "evaluation": f"SFTConfig({_HF_EVALUATION})",
        "load": _HF_LOAD,
        "gather": f"SFTConfig({_HF_GATHER})",
        "optimizer": f"SFTConfig({_HF_OPTIMIZER})",
        "generation": "max_completion_length=256",
        "logits": f"SFTConfig({_HF_BATCH}, max_length=1024, use_liger_kernel=True)",
    },
    "grpo": {
        "": (
            "GRPOConfig(per_device_train_batch_size=4, num_generations=4, max_completion_length=512, "
            "gradient_checkpointing=True)"
        ),
        "evaluation": f"GRPOConfig({_HF_EVALUATION})",
        "optimizer": f"GRPOConfig({_HF_OPTIMIZER})",
        "load": _HF_LOAD,
        "generation": "GRPOConfig(num_generations=4, max_completion_length=256)",
        "rollout": (
            'GRPOConfig(use_vllm=True, vllm_mode="colocate", vllm_gpu_memory_utilization=0.2, '
            "vllm_enable_sleep_mode=True)"
        ),
    },
    "llamafactory": {
        "": "per_device_train_batch_size: 1\ngradient_accumulation_steps: 16\ncutoff_len: 2048",
        "evaluation": "per_device_eval_batch_size: 1",
        "optimizer": "deepspeed: examples/deepspeed/ds_z3_offload_config.json",
        "load": (
            "quantization_bit: 4  # with finetuning_type: lora; else deepspeed: "
            "examples/deepspeed/ds_z3_offload_config.json"
        ),
    },
    "axolotl": {
        "": "micro_batch_size: 1\ngradient_accumulation_steps: 16\ngradient_checkpointing: true",
        "evaluation": "eval_batch_size: 1",
        "optimizer": "optimizer: adamw_bnb_8bit",
        "load": "load_in_4bit: true\nadapter: qlora",
    },
    "swift": {
        "": "--per_device_train_batch_size 1 --gradient_accumulation_steps 16 --max_length 2048",
        "evaluation": "--per_device_eval_batch_size 1",
        "optimizer": "--deepspeed zero3_offload",
        "load": "--quant_bits 4 --quant_method bnb",
    },
    "unsloth": {
        "": f'SFTConfig({_HF_BATCH.partition(", gradient_ch")[0]}), use_gradient_checkpointing="unsloth"',
        "evaluation": f"SFTConfig({_HF_EVALUATION}, fp16_full_eval=True)",
        "optimizer": 'SFTConfig(optim="adamw_8bit")',
        "load": "FastLanguageModel.from_pretrained(name, load_in_4bit=True, max_seq_length=2048)",
    },
    "verl": {
        "": f"{_VERL}actor.ppo_micro_batch_size_per_gpu=1 {_VERL}model.enable_gradient_checkpointing=True",
        "log_prob": (
            f"{_VERL}rollout.log_prob_micro_batch_size_per_gpu=1 {_VERL}ref.log_prob_micro_batch_size_per_gpu=1"
        ),
        "critic": "critic.ppo_micro_batch_size_per_gpu=1 critic.model.enable_gradient_checkpointing=True",
        "optimizer": f"{_VERL}actor.fsdp_config.optimizer_offload=True {_VERL}actor.fsdp_config.param_offload=True",
        "load": f"{_VERL}actor.fsdp_config.param_offload=True {_VERL}ref.fsdp_config.param_offload=True",
        "rollout": f"{_VERL}rollout.gpu_memory_utilization=0.4 {_VERL}rollout.free_cache_engine=True",
    },
    "openrlhf": {
        "": "--micro_train_batch_size 1 --gradient_checkpointing",
        "log_prob": "--micro_rollout_batch_size 1",
        "optimizer": "--adam_offload --zero_stage 3",
        "load": "--zero_stage 3",
        "rollout": "--vllm_gpu_memory_utilization 0.4 --vllm_enable_sleep",
    },
    "megatron": {
        "": "--micro-batch-size 1 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "optimizer": "--use-distributed-optimizer",
        "load": "--tensor-model-parallel-size 2 --sequence-parallel",
    },
    "torchtitan": {
        "": "--training.local_batch_size 1 --activation_checkpoint.mode full",
        "optimizer": "--training.enable_cpu_offload",
        "load": "--parallelism.data_parallel_shard_degree -1",
    },
    "torchtune": {
        "": "batch_size=1 gradient_accumulation_steps=16 enable_activation_checkpointing=True",
        "optimizer": "optimizer=bitsandbytes.optim.PagedAdamW8bit",
        "load": "fsdp_cpu_offload=True",
    },
    "litgpt": {
        "": "--train.micro_batch_size 1",
        "optimizer": "--optimizer bitsandbytes.optim.PagedAdamW",
        "load": "--quantize bnb.nf4",
    },
    "nemo": {
        "": "model.micro_batch_size=1 model.activations_checkpoint_granularity=full",
        "optimizer": "model.optim.name=distributed_fused_adam",
        "load": "model.tensor_model_parallel_size=2",
        "evaluation": "model.data.validation_ds.micro_batch_size=1",
    },
    "kohya": {
        "": "--train_batch_size 1 --gradient_checkpointing --cache_latents",
        "optimizer": "--optimizer_type AdamW8bit",
        "load": "--fp8_base --lowram",
    },
    "diffusers-training": {
        "": "--train_batch_size=1 --gradient_accumulation_steps=4 --gradient_checkpointing --mixed_precision=fp16",
        "optimizer": "--use_8bit_adam",
        "evaluation": "--num_validation_images=1",
        "load": "--mixed_precision=fp16",
    },
    "ultralytics": {
        "": "batch=-1 imgsz=640",
        "evaluation": "val=False  # or a smaller batch: validation takes twice the batch of the training",
    },
    "detectron2": {
        "": "SOLVER.IMS_PER_BATCH 2 INPUT.MAX_SIZE_TRAIN 1024",
        "evaluation": "INPUT.MIN_SIZE_TEST 640 INPUT.MAX_SIZE_TEST 1024",
    },
    "mmengine": {
        "": "--cfg-options train_dataloader.batch_size=1",
        "evaluation": "--cfg-options val_dataloader.batch_size=1",
    },
    "fairseq": {
        "": "--max-tokens 2048 --update-freq 4",
        "evaluation": "--max-tokens-valid 2048 --batch-size-valid 4",
        "optimizer": "--optimizer adafactor --memory-efficient-fp16",
    },
    "espnet": {"": "batch_bins: 2000000\naccum_grad: 4"},
    "colossalai": {
        "": "--batch_size 1 --grad_checkpoint",
        "optimizer": 'GeminiPlugin(placement_policy="static", offload_optim_frac=1.0)',
        "load": "with LazyInitContext(default_device=get_current_device()):",
    },
    "lightning": {
        "": (
            'Trainer(accumulate_grad_batches=8, precision="bf16-mixed")  # with a smaller batch_size in '
            "train_dataloader"
        ),
        "evaluation": (
            "DataLoader(val_set, batch_size=1)  # in val_dataloader; keep what validation_step returns "
            "small, on the CPU"
        ),
        "optimizer": 'Trainer(strategy="deepspeed_stage_2_offload")',
        "load": 'Trainer(strategy="fsdp")  # model made in configure_model()',
    },
    "deepspeed": {
        "": '"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 16',
        "optimizer": _DEEPSPEED_3,
        "load": _DEEPSPEED_3 + "  # and with deepspeed.zero.Init(): around the model",
    },
}

_FSDP = LazyFix(
    "oom_training.fsdp",
    "code",
    (
        "FSDP(model, auto_wrap_policy=policy, device_id=torch.cuda.current_device(), sync_module_states=True)  # model "
        "on the CPU, no .cuda()"
    ),
)
_ON_THE_COMMAND_LINE = re.compile(r"--|[\w.]+=[^\s(]+(?:\s|$)")
_CUDA_ONLY = re.compile(r"bnb|bitsandbytes|8bit|4bit|nf4|quant")


def training(case: Case) -> Fix | None:
    """Returns the training program's setting for the stage at which it failed, or None if either is unknown."""
    stage = case.stage
    if case.sharing == "fsdp" and stage == "shard" and case.program not in {"verl", "llamafactory", "axolotl"}:
        return _FSDP.fix()
    program = case.program
    if case.sharing == "deepspeed" and stage in {"optimizer", "shard"}:
        program = program if program in {"llamafactory", "swift", "openrlhf"} else "deepspeed"
    if program not in _SETTINGS:
        return None
    settings = _SETTINGS[program]
    stage = stage if stage in settings else _INSTEAD.get(stage, stage)
    if stage in {"evaluation", "generation", "optimizer", "load", "gather"} and stage not in settings:
        return None  # no own setting: the general remedy of the stage is right, one for the training batch is not
    stage = stage if stage in settings else ""
    key = "logits" if not stage and case.operation == "logits" and "logits" in settings else stage
    if case.backend not in {"cuda", "hip"} and _CUDA_ONLY.search(settings[key]):
        return None
    kind: Literal["flag", "code"] = "flag" if _ON_THE_COMMAND_LINE.match(settings[key]) else "code"
    caveat = "oom_shared.fewer-tokens" if stage == "rollout" else ""
    return LazyFix(
        f"oom_training.do.{stage or _DO}", kind, settings[key], when=f"oom_training.in.{program}", caveat=caveat
    ).fix()
