"""JAX, and XLA under it, on GPUs and CPUs.

JAX takes 75 % of each card at the first operation, so a second process on the card finds it full, and nvidia-smi shows that pool, not
what is needed. "Resource exhausted" became RESOURCE_EXHAUSTED in 2021. The text after "BufferAssignment OOM Debugging" is about one
program: its "total allocation" is what that program needs in all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.findings import Fix
from memdiag.oom.dialects import bfc
from memdiag.oom.dialects.host_memory import WATCH
from memdiag.oom.dialects.parts import TINY, number, shown
from memdiag.oom.dialects.tensorflow import LARGE, common_cause, sized
from memdiag.oom.model import Found, Judgement
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.units import GIB

FORMATS = ("jax_xla",)
ANCHORS = bfc.ANCHORS
EXAMPLES = (
    ("jax_xla", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes."),
)

_PROGRAM = pattern(r"total allocation: {program:size}")
_SCRATCH = re.compile(r"algorithm_picker|autotun|scratch|redzone|conv_algorithm|profil", re.IGNORECASE)

_WHO = Fix(
    "See who else holds memory on the card",
    "flag",
    "nvidia-smi",
    "before the program starts",
    "another JAX process takes 75 % of the card whether it needs it or not",
)
_NO_POOL = Fix(
    "Take memory as it is needed, in every JAX process of the card",
    "env",
    "export XLA_PYTHON_CLIENT_PREALLOCATE=false",
    "JAX on GPUs; set before jax is imported",
    "more fragmentation, and a little slower; the need stays the same",
)
_FRACTION = Fix(
    "Give the pool more of the card",
    "env",
    "export XLA_PYTHON_CLIENT_MEM_FRACTION=.92",
    "JAX on GPUs, alone on the card (default .75); called XLA_CLIENT_MEM_FRACTION in later releases",
    "CUDA, cuDNN and NCCL need the rest: too much and they fail instead",
)
_LESS = Fix(
    "Leave more of the card outside the pool, for libraries and autotuning",
    "env",
    "export XLA_PYTHON_CLIENT_MEM_FRACTION=.65",
    "JAX on GPUs",
    "less for arrays",
)
_SMALLER = Fix(
    "Use a smaller batch, or work on it in pieces", "code", "result = jax.lax.map(f, inputs, batch_size=8)",
    "JAX; training: accumulate gradients over micro-batches", "a step takes longer",
)  # fmt: skip
_UNIFIED = Fix(
    "Let arrays spill to the host's memory", "env", "export TF_FORCE_UNIFIED_MEMORY=1 XLA_PYTHON_CLIENT_MEM_FRACTION=4.0",
    "AlphaFold and ColabFold on NVIDIA GPUs: long sequences; 4.0 is four times the card", "many times slower once it spills",
)  # fmt: skip
_FOLDING = re.compile(r"alphafold|colabfold|localcolabfold", re.IGNORECASE)
_REMAT = Fix(
    "Recompute activations instead of keeping them", "code", "loss = jax.checkpoint(loss_fn)", "training", "about a third more arithmetic"
)
_DONATE = Fix(
    "Let the step reuse the buffers of what it replaces",
    "code",
    "step = jax.jit(step, donate_argnums=(0,))",
    "a step that returns new parameters and optimizer state",
    "the arguments cannot be used afterwards",
)
_LESS_NEED = (_SMALLER, _FRACTION, _REMAT, _DONATE)
_SHAPES = Fix(
    "Run a small operation on the device, to tell a broken installation from a full one",
    "flag",
    'python -c "import jax; print(jax.devices(), jax.numpy.ones(8).sum())"',
    "JAX",
    "",
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    found = [failure for failure in bfc.failures(text) if bfc.speaker(text, failure) == "jax"]
    for failure, following in zip(found, [*found, None][1:], strict=True):
        stop = min(following.start if following else len(text.text), failure.end + 4000)
        end = failure.end
        program = _PROGRAM.search(text.text, end, stop) if {"xla", "request"} & set(failure.kinds) else None
        if program:
            failure.fields |= take(program)
            end = program.end()
        scratch = bool(_SCRATCH.search(text.text, max(failure.start - 200, 0), failure.end))
        judgement, fixes = _judge(failure, scratch)
        if fixes is _LESS_NEED and _FOLDING.search(text.text, max(failure.start - 3000, 0), end + 1500):
            fixes = (_UNIFIED, *fixes)
        requested = number(failure.fields, "requested_bytes")
        # so little is refused by a CPU's allocator only (alignment): pools of devices hand out multiples of 256 bytes
        device = "cpu" if requested is not None and 0 < requested < 256 else bfc.backend(text, failure)
        yield Found(failure.start, end, "jax_xla", "jax", device, failure.fields, judgement, fixes, failure.mild)


def _judge(failure: bfc.Failure, scratch: bool) -> tuple[Judgement, tuple[Fix, ...]]:
    requested, program = number(failure.fields, "requested_bytes"), number(failure.fields, "program_bytes")
    if failure.on_host:
        return Judgement("host", "high", (), (f"{shown(requested)} of host memory refused (pinned, or on a CPU)",)), (WATCH,)
    if failure.mild:
        why = "the caller says that this is not a failure: it goes on with another algorithm"
        return Judgement("unknown", "low", ("capacity",), (why,)), (_LESS,)
    if requested is not None and 0 < requested < TINY and (program or 0) < LARGE:
        why = f"{requested} bytes refused: no device is too full for that; the installation or the allocator is broken"
        return Judgement("unknown", "high", (), (why,)), (_SHAPES,)
    common = common_cause(failure)
    if common:
        return common, (_SHAPES,) if common.verdict == "unknown" else (_WHO, _NO_POOL)
    if "load" in failure.kinds:
        why = "code or a graph of a program found no room beside the pool: memory that the pool does not manage"
        return Judgement("workspace_or_comm", "medium", ("other_process", "capacity"), (why,)), (_LESS, _WHO)
    if scratch and "request" in failure.kinds:
        why = (
            f"{shown(requested)} of scratch for trying out algorithms, beside a pool that has most of the card; the program "
            f"goes on with others"
        )
        return Judgement("workspace_or_comm", "medium", ("unknown", "capacity"), (why,)), (_LESS,)
    if requested is None:
        return Judgement("unknown", "low", ("capacity", "other_process"), ("no size is printed",)), (_WHO, _NO_POOL)
    if program is not None and program < GIB and requested < LARGE:
        why = f"{shown(requested)} refused to a program that needs {shown(program)} in all: something else has the pool or the card"
        return Judgement("unknown", "medium", ("other_process", "limit"), (why,)), (_WHO, _NO_POOL)
    if program is not None and program >= GIB:
        why = f"the program needs {shown(program)} in all, of which {shown(requested)} was refused"
        return Judgement("capacity", "medium", ("fragmentation", "unknown", "other_process"), (why,)), _LESS_NEED
    judgement = sized(failure, requested)
    return judgement, _LESS_NEED if judgement.verdict == "capacity" else (_WHO, _NO_POOL)
