"""Facts from the lines around a message: running programs, existing settings, and the stage of the failure.

``marks_around`` returns facts for the advice, as additional ``Found.marks``:

* ``engine:…`` and ``program:…``: a program that serves or generates, for which advice on training is wrong, or one that
  trains (``programs``); ``sharing:…``: DeepSpeed or FSDP;
* ``stage:…``: the stage of the failure, from the traceback before the message or, without one, after it (``stages``);
* ``operation:attention``, ``operation:logits``, ``operation:vae``: the operation of the innermost frames;
* ``uses:mc2``: Ascend kernels that communicate, which use HCCL's buffers, so these must not be reduced;
* ``os:windows``: paths of Windows, so lines to paste use its command prompt;
* ``utilization:0.98``, ``allocates:cache``: of vLLM, its memory fraction, and a traceback that ends in its KV cache;
* ``set:expandable_segments``, ``set:max_split_size_mb``: allocator settings that are printed as set;
  ``set:lifetime_pools``: lines that only MindSpeed's allocator with lifetime-segregated pools prints, or its frames.
"""

from __future__ import annotations

import re

from memdiag.diagnosis.memory_fraction import allocates_cache, utilization_in
from memdiag.oom.programs import ENGINES, FUSED_COMMUNICATION, REINFORCED, SERVING, SHARING, TRAINERS, first_of
from memdiag.oom.stages import engine_stage, frames_after, frames_before, operation_of, stage_of
from memdiag.results.oom import Cause, Judgement
from memdiag.text import phrase

# Words, cause, runners-up, and the key of the reason.
_CONTEXT: tuple[tuple[str, Cause, tuple[Cause, ...], str], ...] = (
    (
        r"wake_?up|cumem|create_and_map",
        "limit",
        ("other_process", "unknown"),
        "asleep",
    ),
    (
        r"capture_end|capture_begin|capture_model|graph_capture|cudaGraphInstantiate",
        "limit",
        ("workspace_or_comm", "capacity"),
        "capture",
    ),
    (r"nccl|hccl|init_process_group|all_?reduce", "workspace_or_comm", ("capacity", "unknown"), "communication"),
    (r"cudnn|cublas|miopen|workspace", "workspace_or_comm", ("capacity", "unknown"), "workspace"),
)


# Training that calls an engine, or a training script that uses generating libraries.
_TRAINING = (".backward(", "optimizer.step(", "update_actor", "update_policy", "training_step", "trainer.train(")
_SCRIPTS = ("train.py", "trainer.py", "/trainer/")
_DRIVE = re.compile(r"(?<![a-z])[a-z]:[\\/]{1,2}(?:users|windows|program|[\w.-]{1,40}[\\/])")
_SET = re.compile(r"pytorch_(?:cuda_|hip_|npu_)?alloc_conf['\"\])]*\s{0,2}[=:]\s{0,2}['\"]?([a-z0-9_:.,\[\]>-]{4,300})")
_SETTINGS = (
    ("expandable_segments", re.compile(r"expandable_segments:true")),
    ("max_split_size_mb", re.compile(r"max_split_size_mb:\d")),
)
_POOLS = re.compile(r"seg info: dev \d|(?:long|default)_lc pool fail|(?:small|large)(?:long|default)-allocated cnt")
_POOLS_FRAME = "/memory/memory_fragmentation/"
# Words before a setting: a suggested setting is not in effect. The last ones occur in memdiag's own reports, which may
# be in the same log.
_SUGGESTED = re.compile(r"setting|\btry\b|consider|recommend|suggest|do first|not possible|首先")


def marks_around(context: str, before: str = "", after: str = "") -> frozenset[str]:
    """Returns facts from the lines around a message, including logger and launcher prefixes.

    Args:
        context: The lines around it.
        before: The lines up to it, which end in the frames of its traceback, if it has one.
        after: The lines after it, which may begin with the traceback.
    """
    text, own = context.lower(), frames_before(before.lower())
    behind = frames_after(after.lower())
    known = stage_of(own)
    frames = own if known is not None or not behind else behind
    everything = f"{text}\n{own}" if own not in text else text
    engine, trainer = _programs(everything)
    marks = set()
    if engine:
        marks.add(f"engine:{engine}")
        stage = engine_stage(frames, text)
    else:
        stage = (known if known is not None else stage_of(behind)) or ""
        marks |= {f"program:{trainer}"} if trainer else set()
        sharing = first_of(SHARING, everything)
        marks |= {f"sharing:{sharing}"} if sharing else set()
    marks |= {f"stage:{stage}"} if stage else set()
    operation = operation_of(frames)
    marks |= {f"operation:{operation}"} if operation else set()
    if FUSED_COMMUNICATION.search(everything):
        marks.add("uses:mc2")
    if ":\\" in text and _DRIVE.search(text):
        marks.add("os:windows")
    if "alloc_conf" in text:
        for match in _SET.finditer(text):
            preceding = text[max(match.start() - 160, 0) : match.start()]
            if not _SUGGESTED.search(preceding) and "toavoid" not in "".join(
                text[match.end() : match.end() + 80].split()
            ):
                marks |= {f"set:{key}" for key, value in _SETTINGS if value.search(match[1])}
    if _POOLS_FRAME in everything or _POOLS.search(everything):
        marks.add("set:lifetime_pools")
    if engine == "vllm" and (utilization := utilization_in(everything)) is not None:
        marks.add(f"utilization:{utilization}")
    if engine == "vllm" and allocates_cache(everything):
        marks.add("allocates:cache")
    return frozenset(marks)


def _programs(text: str) -> tuple[str, str]:
    """Returns the serving engine and the training program: one of them, or none."""
    engine, trainer = first_of(ENGINES, text), first_of(TRAINERS, text)
    trains = trainer in REINFORCED or any(word in text for word in _TRAINING)
    if engine not in SERVING:
        trains = trains or bool(trainer) or any(word in text for word in _SCRIPTS)
    return ("", trainer) if trains or not engine else (engine, "")


def without_numbers(context: str) -> Judgement:
    """Infers the cause of a message without sizes from the surrounding lines."""
    for expression, cause, others, reason in _CONTEXT:
        if re.search(expression, context, re.IGNORECASE):
            return Judgement(cause, "low", others, (phrase(f"cause.around.{reason}"), phrase("cause.no_sizes")))
    return Judgement("unknown", "low", ("capacity",), (phrase("cause.no_sizes"),))
