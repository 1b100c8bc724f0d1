"""What the lines around a message say: who runs here, what is set already, and where a message without sizes failed.

``marks_around`` gives facts for the advice, as further ``Found.marks``:

* ``engine:…`` (vllm, sglang, comfyui, webui, diffusers; transformers for text generation): a program that serves or generates, for which
  advice on training is wrong;
* ``stage:load`` (weights are loaded or moved), ``stage:capture`` (graphs are captured): where in the life of an engine it failed; of any
  other program what the innermost frames tell, ``stage:checkpoint`` (a file is read straight onto the device) and ``stage:optimizer``
  (the first step makes the optimizer's state) among them;
* ``os:windows``: paths of Windows, so lines to paste are those of its command prompt;
* ``set:expandable_segments``, ``set:max_split_size_mb``: settings of the allocator that are printed as set.
"""

from __future__ import annotations

import re

from memdiag.oom.model import Cause, Judgement

# Words, the cause, runners-up, and what to say.
_CONTEXT: tuple[tuple[str, Cause, tuple[Cause, ...], str], ...] = (
    (
        r"wake_?up|cumem|create_and_map",
        "limit", ("other_process", "unknown"),
        "it failed while a sleeping engine mapped its memory again: others took it in the meantime, or the engine's share is too high",
    ),
    (
        r"capture_end|capture_begin|capture_model|graph_capture|cudaGraphInstantiate",
        "limit", ("workspace_or_comm", "capacity"),
        "it failed while CUDA graphs were captured: too little was left beside the share of memory that was set aside",
    ),
    (r"nccl|hccl|init_process_group|all_?reduce", "workspace_or_comm", ("capacity", "unknown"), "it failed in a communication library"),
    (r"cudnn|cublas|miopen|workspace", "workspace_or_comm", ("capacity", "unknown"), "it failed where a library takes its workspace"),
)  # fmt: skip


# Words in small letters, the first that occurs counts: an engine's log names the libraries it is built on as well.
_ENGINES = (
    ("sglang", ("sglang", "mem-fraction-static", "mem_fraction_static")),
    ("vllm", ("vllm/", "vllm\\", "(vllm", "vllm serve", "vllm.", "(enginecore", "gpu_memory_utilization", "gpu-memory-utilization")),
    ("comfyui", ("comfyui", "comfy/", "comfy\\")),
    ("webui", ("stable-diffusion-webui", "stable_diffusion_webui", "webui-user")),
    ("diffusers", ("/diffusers/", "\\diffusers\\", "diffusionpipeline")),
    ("transformers", ("transformers/generation/", "transformers\\generation\\", "model.generate(")),
)
_SERVING = frozenset({"vllm", "sglang"})
_TRAINING = (".backward(", "optimizer.step(", "update_actor", "update_policy", "training_step", "trainer.train(")
_TRAINERS = ("train.py", "trainer.py", "/trainer/")
_STAGES = (
    ("capture", ("capture_model", "capture cuda graph", "graph_capture", "capture_begin", "cuda_graph_runner", "cudagraph")),
    ("load", ("load_model", "model_loader", "load_weights", "initialize_model", "from_pretrained")),
)
# What the frames of a traceback say, in small letters; what stands furthest in counts.
_FRAMES = (
    (
        "load",
        (
            "set_module_tensor_to_device", "_load_pretrained_model", "_load_state_dict_into", "load_checkpoint_in_model", "dispatch_model(",
            "loading checkpoint shards", "caching_allocator_warmup", "in convert", "_apply(convert)", "t.cuda(device)",
        ),
    ),
    ("checkpoint", ("_cuda_deserialize", "restore_location", "persistent_load")),
    ("optimizer", ("in _init_group", 'state["exp_avg', "state['exp_avg", 'state["momentum_buffer', "state['momentum_buffer")),
    ("", ("in forward", "in backward", ".backward(", "in _call_impl", "in _wrapped_call_impl")),
)  # fmt: skip
_TRACEBACK = "traceback (most recent call last)"
_DRIVE = re.compile(r"(?<![a-z])[a-z]:[\\/]{1,2}(?:users|windows|program|[\w.-]{1,40}[\\/])")
_SET = re.compile(r"pytorch_(?:cuda_|hip_|npu_)?alloc_conf['\"\])]*\s{0,2}[=:]\s{0,2}['\"]?([a-z0-9_:.,\[\]>-]{4,300})")
_SETTINGS = (
    ("expandable_segments", re.compile(r"expandable_segments:true")),
    ("max_split_size_mb", re.compile(r"max_split_size_mb:\d")),
)
_SUGGESTED = re.compile(r"setting|\btry\b|consider|recommend|suggest")  # before it: what is suggested is not what is set


def marks_around(context: str, before: str = "") -> frozenset[str]:
    """Returns facts from the lines around a message, with whatever loggers and launchers put before them.

    Args:
        context: The lines around it.
        before: Those up to it, which end in the frames of its traceback, if it has one.
    """
    text = context.lower()
    marks = set()
    engine = next((name for name, words in _ENGINES if any(word in text for word in words)), "")
    if engine and not any(word in text for word in (_TRAINING if engine in _SERVING else (*_TRAINING, *_TRAINERS))):
        marks.add(f"engine:{engine}")
        stage = next((name for name, words in _STAGES if any(word in text for word in words)), "")
    else:
        stage = _innermost(before.lower())
    marks |= {f"stage:{stage}"} if stage else set()
    if ":\\" in text and _DRIVE.search(text):
        marks.add("os:windows")
    if "alloc_conf" in text:
        for match in _SET.finditer(text):
            before = text[max(match.start() - 160, 0) : match.start()]
            if not _SUGGESTED.search(before) and "toavoid" not in "".join(text[match.end() : match.end() + 80].split()):
                marks |= {f"set:{key}" for key, value in _SETTINGS if value.search(match[1])}
    return frozenset(marks)


def _innermost(text: str) -> str:
    """Returns the stage that the frames in ``text`` tell of, "" where they do not, or tell of a step of the model itself."""
    frames = text[text.rfind(_TRACEBACK) + 1 :]
    _place, stage = max((max(frames.rfind(word) for word in words), stage) for stage, words in _FRAMES)
    return stage if _place >= 0 else ""


def without_numbers(context: str) -> Judgement:
    """Returns the cause of a message that prints no sizes, from the lines around it."""
    for expression, cause, others, reason in _CONTEXT:
        if re.search(expression, context, re.IGNORECASE):
            return Judgement(cause, "low", others, (f"No sizes are printed; {reason}.",))
    return Judgement("unknown", "low", ("capacity",), ("No sizes are printed, so nothing can be worked out.",))
