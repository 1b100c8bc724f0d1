"""Names of programs that run out of memory, and regular expressions that recognize them in the lines around a message.

``memdiag.oom.advice`` looks up a program's settings under these names. The first match wins: list a program before the
libraries it uses. All expressions are lower case.
"""

from __future__ import annotations

import re

from memdiag.oom.lazily import Words

# Programs that serve a model or generate with it.
ENGINES = (
    (
        "sglang",
        Words(
            r"sglang|sgl[_-]kernel|mem[-_]fraction[-_]static|\d\d:\d\d:\d\d (?:dp\d{1,4} )?tp\d{1,4}(?: \w{1,9})?\]",
            ("sgl", "fraction", "tp"),
        ),
    ),
    ("tensorrt-llm", Words(r"tensorrt[-_]llm|trt-llm|trtllm", ("tensorrt", "trt"))),
    ("lmdeploy", Words(r"lmdeploy|turbomind|\[tm\]\[", ("lmdeploy", "turbomind", "[tm]["))),
    (
        "tgi",
        Words(r"text_generation_server|text-generation-(?:launcher|server)", ("text_generation", "text-generation")),
    ),
    (
        "vllm",
        Words(
            r"vllm[/\\._]|\(vllm|vllm serve|enginecore|\(worker_(?:tp|pp|dp|ep)|multiproc_(?:executor|worker_utils)\.py"
            r"|gpu_model_runner\.py|gpu[-_]memory[-_]utilization|\(apiserver",
            ("vllm", "enginecore", "(worker_", "multiproc_", "gpu_model_runner", "utilization", "(apiserver"),
        ),
    ),
    ("comfyui", Words(r"comfyui|comfy[/\\]", ("comfy",))),
    ("webui", Words(r"stable[-_]diffusion[-_]webui|webui-user|sd-webui", ("webui",))),
    ("diffusers", Words(r"[/\\]diffusers[/\\]|diffusionpipeline", ("diffusers", "diffusionpipeline"))),
    ("transformers", Words(r"transformers[/\\]generation[/\\]|model\.generate\(", ("transformers", "generate("))),
)
SERVING = frozenset({"vllm", "sglang", "tensorrt-llm", "lmdeploy", "tgi"})

# Programs that train. Reinforcement learning programs run an engine, whose name then occurs in their tracebacks.
TRAINERS = (
    ("verl", Words(r"verl[/\\.]|actor_rollout|\(workerdict", ("verl", "actor_rollout", "workerdict"))),
    ("openrlhf", Words(r"openrlhf", ("openrlhf",))),
    ("llamafactory", Words(r"llama[-_]?factory|llmtuner", ("factory", "llmtuner"))),
    ("axolotl", Words(r"axolotl", ("axolotl",))),
    ("swift", Words(r"ms-swift|[/\\]swift[/\\](?:cli|llm|trainers|megatron)", ("swift",))),
    ("unsloth", Words(r"unsloth", ("unsloth",))),
    ("grpo", Words(r"grpo_?trainer|rloo_?trainer|_grpo\b|grpo\.py", ("grpo", "rloo"))),
    ("trl", Words(r"[/\\]trl[/\\]|trl\.trainer|(?:sft|dpo|kto|orpo|ppo|reward)_?trainer", ("trl", "trainer"))),
    ("megatron", Words(r"megatron|mindspeed", ("megatron", "mindspeed"))),
    ("torchtitan", Words(r"torchtitan", ("torchtitan",))),
    ("torchtune", Words(r"torchtune|tune run", ("torchtune", "tune run"))),
    ("litgpt", Words(r"lit_?gpt", ("gpt",))),
    ("nemo", Words(r"[/\\]nemo[/\\]|nemo_toolkit", ("nemo",))),
    (
        "kohya",
        Words(
            r"kohya|sd-scripts|(?:sdxl?_|flux_)?train_(?:network|db)\.py|sdxl_train|flux_train",
            ("kohya", "sd-scripts", "train_", "sdxl_train", "flux_train"),
        ),
    ),
    (
        "diffusers-training",
        Words(
            r"train_(?:text_to_image|dreambooth|controlnet|instruct_pix2pix|unconditional)|textual_inversion\.py",
            ("train_", "textual_inversion"),
        ),
    ),
    ("ultralytics", Words(r"ultralytics|yolov?\d{1,2}[/\\]", ("ultralytics", "yolo"))),
    ("detectron2", Words(r"detectron2", ("detectron2",))),
    ("mmengine", Words(r"[/\\]mm(?:engine|det|cv|seg|action|pose|pretrain|rotate)", ("/mm", "\\mm"))),
    ("fairseq", Words(r"fairseq[/\\](?!2)|fairseq[-_](?:cli|train|hydra)", ("fairseq",))),
    ("espnet", Words(r"espnet", ("espnet",))),
    ("colossalai", Words(r"colossalai", ("colossalai",))),
    ("lightning", Words(r"pytorch_lightning|lightning[/\\.](?:pytorch|fabric)", ("lightning",))),
    (
        "trainer",
        Words(
            (
                r"transformers[/\\]trainer|_inner_training_loop|trainer_(?:pt_utils|seq2seq)"
                r"|trainer\.py:\d{1,6}, in trainer\."
            ),
            ("transformers", "_inner_training_loop", "trainer"),
        ),
    ),
    ("deepspeed", Words(r"deepspeed[/\\.]|\[deepspeed\]", ("deepspeed",))),
)
REINFORCED = frozenset({"verl", "openrlhf", "grpo"})
# Libraries that distribute training over devices.
SHARING = (
    ("deepspeed", Words(r"deepspeed[/\\.]", ("deepspeed",))),
    ("fsdp", Words(r"distributed[/\\]fsdp|fully_shard", ("fsdp", "fully_shard"))),
)

# Ascend kernels that fuse computation and communication (MC2), such as dispatch and combine of experts: they use HCCL's
# buffers.
FUSED_COMMUNICATION = Words(
    r"moe_?distribute|\bmc2|mc2(?:num|_)|npu_moe|all_?gather_?matmul|matmul_?(?:reduce_?scatter|all_?reduce)"
    r"|alltoallv?_?(?:grouped_?)?matmul"
    r"|alloccomresourcebytiling|moe_(?:dispatch|combine)",
    ("moe", "mc2", "matmul", "alloccomresource"),
    re.IGNORECASE,
)


def first_of(table: tuple[tuple[str, Words], ...], text: str) -> str:
    """Returns the first program of a table that ``text`` (in lower case) names, or ""."""
    return next((name for name, words in table if words.search(text)), "")
