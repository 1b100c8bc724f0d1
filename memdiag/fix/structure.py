"""Parts of a program that cannot be recomputed: compiled code, custom autograd Functions, and some frameworks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from memdiag.fix.base import Refusal
from memdiag.fix.case import FixCase
from memdiag.offload.passes import FORWARD
from memdiag.text import phrase
from memdiag.trace.stacks import Frame
from memdiag.trace.table import Array

_SHARE = 0.01  # of the bytes that forward allocates
_SHOWN = 4
_COMPILED = (
    "/torch/_functorch/_aot_autograd/",
    "/torch/_functorch/aot_autograd.py",
)
_WRAPPER = ("/torch/_dynamo/eval_frame.py", "compile_wrapper")  # around all code of a compiled function
_GRAPHS = ("GraphModule", "OptimizedModule")  # modules that torch.compile makes
_APPLY = ("/torch/autograd/function.py", "apply")
_BUDGET = "torch._functorch.config.activation_memory_budget = 0.5  # before the first step"
_EXPANDABLE = "export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True"
HALF_BATCH = "(loss / 2).backward()  # with half the batch; optimizer.step() after every second batch"
_SAVE_ON_CPU = "with torch.autograd.graph.save_on_cpu(pin_memory=True): x = block(x)"
_IN_CTX = "ctx.save_for_backward(x)  # in place of ctx.x = x; then torch.autograd.graph.save_on_cpu moves it"
_BY_HAND = (
    "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)  # if ctx.save_for_backward keeps all tensors"
)


@dataclass(frozen=True)
class Framework:
    """A framework whose models PyTorch's checkpointing cannot recompute from outside, or which has a simpler switch.

    Attributes:
        name: Its name.
        folders: Parts of the paths of its files that run in forward.
        switch: Its own switch.
        offload: Its own switch that moves activations to the host; "": it has none.
    """

    name: str
    folders: tuple[str, ...]
    switch: str
    offload: str = ""


# The random states of tensor parallelism, sharded weights and pipelines of these are known to themselves only.
REFUSED = (
    Framework(
        "Megatron-LM",
        ("/megatron/core/", "/megatron/legacy/", "/megatron/model/", "/mindspeed/", "/mindspeed_llm/"),
        "--recompute-activations  # or --recompute-granularity full --recompute-method block --recompute-num-layers N",
        "--cpu-offloading-num-layers N  # with Transformer Engine; MindSpeed: --swap-attention",
    ),
    Framework("torchtitan", ("/torchtitan/",), "--activation_checkpoint.mode selective  # or full"),
    Framework(
        "DeepSpeed ZeRO-3",
        ("/deepspeed/runtime/zero/parameter_offload.py", "/deepspeed/runtime/zero/partitioned_param_coordinator.py"),
        "deepspeed.checkpointing.checkpoint(block, x)  # transformers: gradient_checkpointing=True",
        '"activation_checkpointing": {"cpu_checkpointing": true}  # with deepspeed.checkpointing',
    ),
    Framework(
        "NeMo",
        ("/nemo/collections/",),
        "model.activations_checkpoint_granularity=selective  # or full",
        "model.cpu_offloading=True model.cpu_offloading_num_layers=N",
    ),
    Framework(
        "FSDP1",
        ("/torch/distributed/fsdp/fully_sharded_data_parallel.py",),
        (
            "apply_activation_checkpointing(model, check_fn=lambda each: isinstance(each, Block))  # Lightning: "
            "FSDPStrategy(activation_checkpointing_policy={Block})"
        ),
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.offload_wrapper(block)",
    ),
)
SWITCHES = (
    Framework(
        "transformers",
        ("/transformers/models/", "/transformers/modeling_utils.py"),
        "model.gradient_checkpointing_enable()  # all blocks; Trainer: gradient_checkpointing=True",
    ),
    Framework("diffusers", ("/diffusers/models/",), "model.enable_gradient_checkpointing()  # all blocks"),
    Framework("timm", ("/timm/models/",), "model.set_grad_checkpointing()  # all blocks"),
)


@dataclass(frozen=True)
class Barrier:
    """Code that a remedy must leave alone.

    Attributes:
        refusal: The refusal, for readers.
        rows: Tensors that it allocates in forward, as rows in Tensors.
    """

    refusal: Refusal
    rows: Array


def barriers(case: FixCase, remedy: str, *, is_offload: bool = False) -> list[Barrier]:
    """Returns the code that the remedy, which recomputes or offloads blocks, must leave alone.

    Args:
        case: The recording.
        remedy: Name of the remedy.
        is_offload: Whether it offloads them.
    """
    frames = case.trace.stacks.frames
    found = []
    compiled = np.union1d(rows_with(case, [is_compiled(frame) for frame in frames]), _rows_of(case, _GRAPHS))
    if len(compiled):
        callers = [frame for frame in case.callers(compiled) if frame.filename.endswith(".py")]  # not generated
        where = tuple(frame.label for frame in callers[-1:])
        found.append(Barrier(Refusal(remedy, phrase("fix.refused.compiled"), where, _BUDGET), compiled))
    functions = _functions(case)
    own = rows_with(case, functions)
    if len(own):
        labels = [frame.label for frame, is_one in zip(frames, functions, strict=True) if is_one]
        found.append(
            Barrier(
                Refusal(remedy, phrase("fix.refused.function"), few(labels), _IN_CTX if is_offload else _BY_HAND), own
            )
        )
    for framework in REFUSED:
        rows = rows_with(case, [is_of(frame, framework) for frame in frames])
        if len(rows):
            reason = phrase("fix.refused.framework", name=framework.name)
            switch = framework.offload if is_offload else framework.switch
            found.append(Barrier(Refusal(remedy, reason, (), switch or _SAVE_ON_CPU), rows))
    sizes, made = case.device.tensors.block_bytes, case.device.tensors.phase_alloc == FORWARD
    least = _SHARE * int(sizes[made].sum())
    return [each for each in found if int(sizes[each.rows].sum()) > least]


def is_sharded(case: FixCase) -> bool:
    """Returns whether FSDP shards the model, so that its parameters and states are no plain tensors."""
    return any("/torch/distributed/fsdp/" in frame.filename.replace("\\", "/") for frame in case.trace.stacks.frames)


def refusals_in(folder: Path) -> list[Refusal]:
    """Returns the refusals that remedies noted while the program ran (see ``memdiag.recorder.fixing``).

    Args:
        folder: Folder with a file for each process; a line has the remedy, the reason and the module.
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    for file in sorted(folder.glob("*.txt")):
        for line in file.read_text(encoding="utf-8").splitlines():
            remedy, reason, module = line.split("\t")
            found.setdefault((remedy, reason), {})[module] = None
    return [_refused(remedy, reason, list(paths)) for (remedy, reason), paths in found.items()]


def lines_in(folder: Path) -> frozenset[str]:
    """Returns the modules that return several tensors, or facts about the program (see ``memdiag.recorder.fixing``).

    Args:
        folder: Folder with a file for each process; a line has the path of a module, or a fact.
    """
    files = sorted(folder.glob("*.txt"))
    return frozenset(line for file in files for line in file.read_text(encoding="utf-8").splitlines())


def _refused(remedy: str, reason: str, paths: list[str]) -> Refusal:
    """Returns a refusal by the part of a remedy in the program.

    Its reason is "compiled", "batch", the name of a framework, or "pools" with an option that MindSpeed forbids.
    """
    if reason == "pools":
        reason = phrase("fix.refused.pools.exclusive", name=paths[0])
        return Refusal(remedy, reason, (), _EXPANDABLE, is_whole=True)
    if reason == "batch":
        return Refusal(remedy, phrase("fix.refused.batch.model"), few(paths), HALF_BATCH, is_whole=True)
    framework = next((each for each in REFUSED if each.name == reason), None)
    if framework is None:
        return Refusal(remedy, phrase("fix.refused.compiled"), few(paths), _BUDGET)
    return Refusal(remedy, phrase("fix.refused.framework", name=reason), few(paths), framework.switch)


def few(names: list[str]) -> tuple[str, ...]:
    """Returns the first names, and an ellipsis if there are more."""
    return (*names[:_SHOWN], *(("…",) if len(names) > _SHOWN else ()))


def switch_of(case: FixCase) -> str:
    """Returns the switch of the library whose models allocate in forward; "": none is known."""
    frames = case.trace.stacks.frames
    for framework in SWITCHES:
        if len(rows_with(case, [is_of(frame, framework) for frame in frames])):
            return framework.switch
    return ""


def rows_with(case: FixCase, mask: list[bool], phase: int = FORWARD) -> Array:
    """Returns the tensors that are allocated in a phase below some frames, as rows in Tensors.

    Args:
        case: The recording.
        mask: Whether a frame is one of them, for each frame of the recording.
        phase: The phase.
    """
    if not any(mask):
        return np.empty(0, np.int64)
    below = np.append(case.trace.stacks.with_frame(np.array(mask, bool)), False)
    tensors = case.device.tensors
    rows: Array = np.flatnonzero(below[tensors.stack] & (tensors.phase_alloc == phase))
    return rows


def _rows_of(case: FixCase, modules: tuple[str, ...]) -> Array:
    """Returns the tensors that forward allocates in some modules, as rows in Tensors; they need no stacks."""
    tensors = case.device.tensors
    inside = np.zeros(case.device.num_events + 1, bool)
    for path in modules:
        for begin, end in case.modules.spans.get(path, ()):
            inside[begin:end] = True
    rows: Array = np.flatnonzero((tensors.alloc_at >= 0) & inside[tensors.alloc_at] & (tensors.phase_alloc == FORWARD))
    return rows


def is_compiled(frame: Frame) -> bool:
    """Returns whether code below a frame is compiled by torch.compile."""
    path = frame.filename.replace("\\", "/")
    return frame.is_compiled or any(part in path for part in _COMPILED) or _is_at(frame, _WRAPPER)


def _functions(case: FixCase) -> list[bool]:
    """Returns for each frame whether it is the forward of an autograd Function that the program defines."""
    stacks = case.trace.stacks
    forwards = np.array([frame.name == "forward" and frame.is_user for frame in stacks.frames] or [False], bool)
    applies = np.array([_is_at(frame, _APPLY) for frame in stacks.frames] or [False], bool)
    ids = stacks.frame_ids
    is_last = np.zeros(len(ids) + 1, bool)
    is_last[stacks.offsets[1:] - 1] = True
    called = forwards[ids[:-1]] & applies[ids[1:]] & ~is_last[: max(len(ids) - 1, 0)]
    chosen = np.zeros(len(stacks.frames), bool)
    chosen[ids[:-1][called]] = True
    return [bool(each) for each in chosen]


def is_of(frame: Frame, framework: Framework) -> bool:
    """Returns whether a frame is code of a framework."""
    path = frame.filename.replace("\\", "/")
    return any(folder in path for folder in framework.folders)


def _is_at(frame: Frame, place: tuple[str, str]) -> bool:
    return frame.name == place[1] and frame.filename.replace("\\", "/").endswith(place[0])
