"""Evidence from call stacks: the training phase in which a stack was taken, and the purpose of the allocation.

Background:

* Autograd runs backward on its own thread. Tensors allocated there have no Python frame, or only frames of hooks; with
  C++ frames recorded, ``torch::autograd::Engine`` is one of them. Only the first allocation of ``loss.backward()`` has
  its frame.
* A forward inside backward is recomputation (checkpointing) and counts as backward. A forward inside an optimizer step
  is a closure and counts as forward.
* ``torch.optim.Optimizer`` wraps the ``step`` of every subclass, so a user-defined optimizer also has a frame of
  ``torch/optim/optimizer.py``.

Everything is computed once per frame and once per distinct stack, never per event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from memdiag.trace.schema import PHASES
from memdiag.trace.stacks import Frame, Stacks
from memdiag.trace.table import Array

UNKNOWN, INITIALISATION, FORWARD, BACKWARD, OPTIMIZER, OUTSIDE = range(len(PHASES))
# The result for a stack is a phase, SILENT (no Python frame) or OTHER (no frame that identifies a phase).
SILENT, OTHER = len(PHASES), len(PHASES) + 1

# Bits that describe one frame.
(
    _PYTHON,
    _CONSTRUCTOR,
    _MOVES,
    _FORWARD,
    _BACKWARD,
    _STEP,
    _STATE,
    _ZERO_GRAD,
    _COLLECTIVE,
    _REDISTRIBUTION,
    _WORKSPACE,
    _BUILDS,
    _CACHE,
    _PLAN,
) = (1 << bit for bit in range(14))

_BACKWARD_NAMES = frozenset({"backward", "custom_backward", "_engine_run_backward", "_make_grads"})
_BACKWARD_HOOK = re.compile(r"_?(root_)?(pre|post)_backward")
_MODULE_MOVES = frozenset(
    {"_apply", "to", "cuda", "npu", "xpu", "to_empty", "half", "bfloat16", "float", "double", "convert"}
)
_LOADS = frozenset(
    {"from_pretrained", "load_state_dict", "_load_from_state_dict", "reset_parameters", "setup_model_and_optimizer"}
)
_NOT_A_STEP = frozenset({"__init__", "add_param_group", "state_dict", "load_state_dict", "__setstate__", "<module>"})
_WEIGHTS = re.compile(
    r"(?!.*(grad|buffer|optim|state))_?(init|initialize|load|create|allocate|build)_(\w+_)?(weights?|parameters|params)"
    r"(_|$)"
)
_MODULES = re.compile(r"torch/nn/(modules/|parameter\.py)")
_KV_CACHE = re.compile(
    r"kv_?(cache|buffer|pool)|(key_?value|past_key_values)_?cache|^_?(init|initialize|setup|allocate)_caches?(_|$)",
    re.IGNORECASE,
)
_KV_CACHE_FILES = ("transformers/cache_utils.py", "/cache_engine.py", "/kv_cache.py", "/mem_cache/memory_pool.py")
_NEAR = 4  # number of innermost Python frames that identify the purpose of memory: outer frames call much else
_COLLECTIVE_NAME = re.compile(
    r"all_?gather|reduce_?scatter|all_?reduce|all_?to_?all|foreach_reduce|alloc_storage|unshard|broadcast"
)
_FUNCTIONAL_COLLECTIVES = "torch/distributed/_functional_collectives.py"
_REDUCER_CALLERS = frozenset({"_ddp_init_helper", "_pre_forward", "_rebuild_buckets"})
_WORKSPACE_NAME = re.compile(
    r"getNewWorkspace|getCurrentCUDABlasHandle|setWorkspaceForHandle|BlasLtWorkspace|[aA]llocate_?[wW]orkspace"
)
_PLAN_NAME = re.compile(r"\brun_conv(_fusion)?_plan\b|\bget_plans_from_find\b")  # Conv_v8.cpp
_CONVOLUTION = re.compile(r"(^|_)conv(olution|_transpose)?(\d|_|$)")
_SCRATCH_NAME = re.compile(r"^_?(get|allocate|create|ensure|init|reserve)_workspaces?(_buffers?|_size)?$")


@dataclass(frozen=True)
class StackEvidence:
    """The evidence from each stack.

    Arrays have one entry per stack and a last one for "no stack", so that index -1 finds it.

    Attributes:
        marker: int8: a phase (index into PHASES), SILENT or OTHER.
        loading: A constructor runs, or parameters are created, moved or loaded.
        moving: Parameters are created, moved or loaded.
        building: A module creates its parameters: a constructor of a PyTorch module runs, or one in a file with a
            forward that runs in this trace, or a function named after weights. Other constructors may create anything.
        kv_cache: A cache of keys and values is created.
        apply_line: int32: the line of ``Module._apply`` that moves a tensor, or 0 if none does.
        optimizer: An optimizer's step runs.
        state: An optimizer creates or loads its state.
        collective: A collective, or the sharding library, requests the memory.
        reducer: DistributedDataParallel's reducer requests its buckets.
        redistribution: A collective whose result is a tensor of the model requests it: a DTensor gets other shards.
        workspace: A library requests scratch memory that it retains.
        convolution: cuDNN runs a convolution (C++ frame), or a Python function for convolutions calls the operator.
    """

    marker: Array
    loading: Array
    moving: Array
    building: Array
    kv_cache: Array
    apply_line: Array
    optimizer: Array
    state: Array
    collective: Array
    reducer: Array
    redistribution: Array
    workspace: Array
    convolution: Array

    @property
    def found(self) -> bool:
        """Returns whether any stack identifies a phase."""
        return bool((self.marker < SILENT).any())


def read_stacks(stacks: Stacks) -> StackEvidence:
    """Returns the evidence from the stacks of a trace."""
    bits = np.array([_frame_bits(frame) for frame in stacks.frames], np.int32)
    modules = {frame.filename for frame in stacks.frames if frame.name == "forward"}
    own = np.array([frame.name == "__init__" and frame.filename in modules for frame in stacks.frames], bool)
    python = bits & _PYTHON != 0
    named = np.array([frame.is_python and bool(_CONVOLUTION.search(frame.name)) for frame in stacks.frames], bool)

    def holds(bit: int) -> Array:
        held = stacks.with_frame(bits & bit != 0) if len(bits) else np.zeros(len(stacks), bool)
        return np.append(held, False)

    forward, backward, step, zero_grad = holds(_FORWARD), holds(_BACKWARD), holds(_STEP), holds(_ZERO_GRAD)
    constructor, moves = holds(_CONSTRUCTOR), holds(_MOVES)
    marker = np.select(
        [backward, forward, zero_grad, step, constructor | moves, holds(_PYTHON)],
        [BACKWARD, FORWARD, OUTSIDE, OPTIMIZER, INITIALISATION, OTHER],
        SILENT,
    ).astype(np.int8)
    early = ~(forward | backward | step)
    return StackEvidence(
        marker=marker,
        loading=(constructor | moves) & early,
        moving=moves & early,
        building=np.append(_near(stacks, own | (bits & _BUILDS != 0), python), False) & early,
        kv_cache=np.append(_near(stacks, bits & _CACHE != 0, python), False),
        apply_line=_apply_lines(stacks),
        optimizer=step & ~forward & ~zero_grad,
        state=holds(_STATE) & ~forward,
        collective=holds(_COLLECTIVE),
        reducer=np.append(reducer_stacks(stacks), False),
        redistribution=holds(_REDISTRIBUTION),
        workspace=holds(_WORKSPACE),
        convolution=holds(_PLAN) | np.append(named[stacks.frame_ids[stacks.offsets[:-1]]], False),
    )


def is_reducer(frame: Frame) -> bool:
    """Returns whether a frame belongs to DistributedDataParallel's reducer (in C++), or to a function that calls it."""
    in_parallel = frame.filename.replace("\\", "/").endswith("nn/parallel/distributed.py")
    return "c10d::Reducer::" in frame.name or (in_parallel and frame.name in _REDUCER_CALLERS)


def reducer_stacks(stacks: Stacks) -> Array:
    """Returns, per stack, whether DistributedDataParallel's reducer requests the memory.

    The callers of the reducer call other functions too, so the innermost Python frame must be one of them.
    """
    mask = np.array([is_reducer(frame) for frame in stacks.frames], bool)
    found: Array = stacks.with_frame(mask) if len(mask) else np.zeros(len(stacks), bool)
    for stack in np.flatnonzero(found).tolist():
        inner = next((frame for frame in stacks[stack] if frame.is_python), None)
        found[stack] = inner is None or is_reducer(inner)
    return found


def _near(stacks: Stacks, mask: Array, python: Array) -> Array:
    """Returns, per stack, whether one of its innermost Python frames is in ``mask``.

    ``mask`` and ``python`` have one entry per frame.
    """
    near = stacks.with_frame(mask)
    for stack in np.flatnonzero(near):
        frames = stacks.frame_ids[stacks.offsets[stack] : stacks.offsets[stack + 1]]
        near[stack] = mask[frames[python[frames]][:_NEAR]].any()
    return near


def _apply_lines(stacks: Stacks) -> Array:
    """Returns, per stack and for no stack, the line of the innermost ``Module._apply``.

    Outer ``_apply`` frames call it for their child modules.
    """
    lines = np.zeros(len(stacks) + 1, np.int32)
    of_apply = np.array(
        [frame.name == "_apply" and frame.filename.endswith("nn/modules/module.py") for frame in stacks.frames], bool
    )
    for stack in np.flatnonzero(stacks.with_frame(of_apply)):
        frames = stacks.frame_ids[stacks.offsets[stack] : stacks.offsets[stack + 1]]
        lines[stack] = stacks.frames[frames[of_apply[frames]][0]].line
    return lines


def _frame_bits(frame: Frame) -> int:
    """Returns the bits that describe one frame."""
    name, file = frame.name, frame.filename
    if not frame.is_python:
        return _native_bits(name)
    file = file.replace("\\", "/")
    bits = _PYTHON
    if name == "forward" or (name.endswith("_call_impl") and file.endswith("nn/modules/module.py")):
        bits |= _FORWARD
    elif (
        name in _BACKWARD_NAMES
        or _BACKWARD_HOOK.match(name)
        or (name == "grad" and file.endswith("torch/autograd/__init__.py"))
    ):
        bits |= _BACKWARD
    elif name == "zero_grad":
        bits |= _ZERO_GRAD
    elif name == "__init__":
        bits |= (
            _CONSTRUCTOR
            | (_BUILDS if _MODULES.search(file) else 0)
            | (_STATE if "optim" in file.rsplit("/", 1)[-1].lower() else 0)
        )
    elif name in _LOADS or file.endswith("torch/nn/init.py") or (name in _MODULE_MOVES and file.endswith("module.py")):
        bits |= _MOVES | (_STATE if "torch/optim/" in file else 0)
    if _WEIGHTS.match(name):
        bits |= _BUILDS
    if _KV_CACHE.search(name) or file.endswith(_KV_CACHE_FILES):
        bits |= _CACHE
    if _SCRATCH_NAME.match(name):
        bits |= _WORKSPACE
    if "distributed" in file and _COLLECTIVE_NAME.search(name):
        bits |= _COLLECTIVE | (_REDISTRIBUTION if file.endswith(_FUNCTIONAL_COLLECTIVES) else 0)
    return bits | _optimizer_bits(name, file)


def _native_bits(name: str) -> int:
    """Returns the bits that describe a C++ frame."""
    marks = {
        _WORKSPACE: _WORKSPACE_NAME.search(name),
        _BACKWARD: "torch::autograd::Engine::" in name or "PythonEngine::" in name,
        _PLAN: _PLAN_NAME.search(name),
        _COLLECTIVE: "ProcessGroup" in name,
    }
    return sum(bit for bit, is_found in marks.items() if is_found)


def _optimizer_bits(name: str, file: str) -> int:
    """Returns whether a Python frame belongs to an optimizer's step, and whether it creates the optimizer's state."""
    if name == "_init_group":
        return _STEP | _STATE
    if "lr_scheduler" in file or "swa_utils" in file or name == "zero_grad":
        return 0
    if "torch/optim/" in file and name not in _NOT_A_STEP:
        return _STEP
    return _STEP if name == "step" and "optim" in file.lower() else 0
