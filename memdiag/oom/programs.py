"""Names of programs that run out of memory, and regular expressions that recognize them in the lines around a message.

``memdiag.oom.advice`` looks up a program's settings under these names. The first match counts: list a program before the libraries it uses.
All expressions are lower case.
"""

from __future__ import annotations

import re

# Programs that serve a model or generate with it.
ENGINES = (
    ("sglang", r"sglang|sgl[_-]kernel|mem[-_]fraction[-_]static|\d\d:\d\d:\d\d (?:dp\d{1,4} )?tp\d{1,4}(?: \w{1,9})?\]"),
    ("tensorrt-llm", r"tensorrt[-_]llm|trt-llm|trtllm"),
    ("lmdeploy", r"lmdeploy|turbomind|\[tm\]\["),
    ("tgi", r"text_generation_server|text-generation-(?:launcher|server)"),
    (
        "vllm",
        (
            r"vllm[/\\._]|\(vllm|vllm serve|enginecore|\(worker_(?:tp|pp|dp|ep)|multiproc_(?:executor|worker_utils)\.py"
            r"|gpu_model_runner\.py|gpu[-_]memory[-_]utilization|\(apiserver"
        ),
    ),
    ("comfyui", r"comfyui|comfy[/\\]"),
    ("webui", r"stable[-_]diffusion[-_]webui|webui-user|sd-webui"),
    ("diffusers", r"[/\\]diffusers[/\\]|diffusionpipeline"),
    ("transformers", r"transformers[/\\]generation[/\\]|model\.generate\("),
)
SERVING = frozenset({"vllm", "sglang", "tensorrt-llm", "lmdeploy", "tgi"})

# Programs that train. Those for reinforcement learning run an engine inside, whose names then stand in their tracebacks.
TRAINERS = (
    ("verl", r"verl[/\\.]|actor_rollout|\(workerdict"),
    ("openrlhf", r"openrlhf"),
    ("llamafactory", r"llama[-_]?factory|llmtuner"),
    ("axolotl", r"axolotl"),
    ("swift", r"ms-swift|[/\\]swift[/\\](?:cli|llm|trainers|megatron)"),
    ("unsloth", r"unsloth"),
    ("grpo", r"grpo_?trainer|rloo_?trainer|_grpo\b|grpo\.py"),
    ("trl", r"[/\\]trl[/\\]|trl\.trainer|(?:sft|dpo|kto|orpo|ppo|reward)_?trainer"),
    ("megatron", r"megatron|mindspeed"),
    ("torchtitan", r"torchtitan"),
    ("torchtune", r"torchtune|tune run"),
    ("litgpt", r"lit_?gpt"),
    ("nemo", r"[/\\]nemo[/\\]|nemo_toolkit"),
    ("kohya", r"kohya|sd-scripts|(?:sdxl?_|flux_)?train_(?:network|db)\.py|sdxl_train|flux_train"),
    ("diffusers-training", r"train_(?:text_to_image|dreambooth|controlnet|instruct_pix2pix|unconditional)|textual_inversion\.py"),
    ("ultralytics", r"ultralytics|yolov?\d{1,2}[/\\]"),
    ("detectron2", r"detectron2"),
    ("mmengine", r"[/\\]mm(?:engine|det|cv|seg|action|pose|pretrain|rotate)"),
    ("fairseq", r"fairseq[/\\](?!2)|fairseq[-_](?:cli|train|hydra)"),
    ("espnet", r"espnet"),
    ("colossalai", r"colossalai"),
    ("lightning", r"pytorch_lightning|lightning[/\\.](?:pytorch|fabric)"),
    ("trainer", r"transformers[/\\]trainer|_inner_training_loop|trainer_(?:pt_utils|seq2seq)|trainer\.py:\d{1,6}, in trainer\."),
    ("deepspeed", r"deepspeed[/\\.]|\[deepspeed\]"),
)
REINFORCED = frozenset({"verl", "openrlhf", "grpo"})
# Libraries that distribute a training over devices.
SHARING = (("deepspeed", r"deepspeed[/\\.]"), ("fsdp", r"distributed[/\\]fsdp|fully_shard"))

# Kernels of Ascend that compute and communicate in one (MC2), experts' dispatch and combine among them: they work in HCCL's buffers.
FUSED_COMMUNICATION = re.compile(
    r"moe_?distribute|\bmc2|mc2(?:num|_)|npu_moe|all_?gather_?matmul|matmul_?(?:reduce_?scatter|all_?reduce)|alltoallv?_?(?:grouped_?)?matmul"
    r"|alloccomresourcebytiling|moe_(?:dispatch|combine)",
    re.IGNORECASE,
)

_COMPILED = {words: re.compile(words) for table in (ENGINES, TRAINERS, SHARING) for _name, words in table}


def first_of(table: tuple[tuple[str, str], ...], text: str) -> str:
    """Returns the first program of a table whose words stand in ``text`` (lower case); "" if none do."""
    return next((name for name, words in table if _COMPILED[words].search(text)), "")
