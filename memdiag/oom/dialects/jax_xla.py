"""JAX, and XLA under it, on GPUs and CPUs.

JAX reserves 75 % of each device at the first operation. So a second process finds the device full, and nvidia-smi shows
that pool instead of the memory needed. "Resource exhausted" became RESOURCE_EXHAUSTED in 2021. The text after
"BufferAssignment OOM Debugging" is about one program: its "total allocation" is the total that this program needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.diagnosis import thresholds
from memdiag.oom.dialects import bfc
from memdiag.oom.dialects.host_memory import WATCH
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.dialects.tensorflow import common_cause, sized
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase
from memdiag.units import GIB

FORMATS = ("jax_xla",)
ANCHORS = bfc.ANCHORS
EXAMPLES = (
    (
        "jax_xla",
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
            "17179869184 bytes."
        ),
    ),
)

_PROGRAM = pattern(r"total allocation: {program:size}")
_SCRATCH = re.compile(r"algorithm_picker|autotun|scratch|redzone|conv_algorithm|profil", re.IGNORECASE)

_WHO = LazyFix("oom_shared.who", "flag", "nvidia-smi", caveat="oom_jax.who.caveat")
_NO_POOL = LazyFix("oom_libraries.jax-growth", "env", "export XLA_PYTHON_CLIENT_PREALLOCATE=false")
_FRACTION = LazyFix("oom_jax.fraction", "env", "export XLA_PYTHON_CLIENT_MEM_FRACTION=.92")
_LESS = LazyFix("oom_libraries.jax-fraction", "env", "export XLA_PYTHON_CLIENT_MEM_FRACTION=.65")
_SMALLER = LazyFix("oom_jax.smaller", "code", "result = jax.lax.map(f, inputs, batch_size=8)")
_UNIFIED = LazyFix("oom_jax.unified", "env", "export TF_FORCE_UNIFIED_MEMORY=1 XLA_PYTHON_CLIENT_MEM_FRACTION=4.0")
_FOLDING = re.compile(r"alphafold|colabfold|localcolabfold", re.IGNORECASE)
_REMAT = LazyFix("remedies.recompute", "code", "loss = jax.checkpoint(loss_fn)", when="oom_shared.training")
_DONATE = LazyFix("oom_shared.donate", "code", "step = jax.jit(step, donate_argnums=(0,))")
_LESS_NEED = (_SMALLER, _FRACTION, _REMAT, _DONATE)
_SHAPES = LazyFix("oom_jax.check", "flag", 'python -c "import jax; print(jax.devices(), jax.numpy.ones(8).sum())"')


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
        # Such small sizes are refused only by a CPU allocator (alignment).
        is_unaligned = requested is not None and 0 < requested < thresholds.HOST_ALIGNED
        device = "cpu" if is_unaligned else bfc.backend(text, failure)
        yield Found(failure.start, end, "jax_xla", "jax", device, failure.fields, judgement, fixes, failure.mild)


def _judge(failure: bfc.BfcFailure, scratch: bool) -> tuple[Judgement, tuple[LazyFix, ...]]:
    requested, program = number(failure.fields, "requested_bytes"), number(failure.fields, "program_bytes")
    if failure.on_host:
        return Judgement("host", "high", (), (phrase("oom_jax.why.host", size=shown(requested)),)), (WATCH,)
    if failure.mild:
        why = phrase("oom_jax.why.mild")
        return Judgement("unknown", "low", ("capacity",), (why,)), (_LESS,)
    if requested is not None and 0 < requested < thresholds.TINY and (program or 0) < thresholds.LARGE:
        why = phrase("oom_jax.why.broken", bytes=requested)
        return Judgement("unknown", "high", (), (why,)), (_SHAPES,)
    common = common_cause(failure)
    if common:
        return common, (_SHAPES,) if common.verdict == "unknown" else (_WHO, _NO_POOL)
    if "load" in failure.kinds:
        why = phrase("oom_jax.why.load")
        return Judgement("workspace_or_comm", "medium", ("other_process", "capacity"), (why,)), (_LESS, _WHO)
    if scratch and "request" in failure.kinds:
        why = phrase("oom_jax.why.scratch", size=shown(requested))
        return Judgement("workspace_or_comm", "medium", ("unknown", "capacity"), (why,)), (_LESS,)
    if requested is None:
        return Judgement("unknown", "low", ("capacity", "other_process"), (phrase("oom_shared.why.no-size"),)), (
            _WHO,
            _NO_POOL,
        )
    if program is not None and program < thresholds.SMALL_POOL and requested < thresholds.LARGE:
        why = phrase("oom_jax.why.small-program", size=shown(requested), program=shown(program))
        return Judgement("unknown", "medium", ("other_process", "limit"), (why,)), (_WHO, _NO_POOL)
    if program is not None and program >= GIB:
        why = phrase("oom_jax.why.program", program=shown(program), size=shown(requested))
        return Judgement("capacity", "medium", ("fragmentation", "unknown", "other_process"), (why,)), _LESS_NEED
    judgement = sized(failure, requested)
    return judgement, _LESS_NEED if judgement.verdict == "capacity" else (_WHO, _NO_POOL)
