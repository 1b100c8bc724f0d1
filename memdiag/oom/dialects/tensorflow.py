"""TensorFlow: its allocator, operators and device layer, on CUDA, ROCm and CPUs; all wordings since 0.x.

Its hint ("add report_tensor_allocations_upon_oom to RunOptions") only lists tensors, it frees nothing; in eager mode there are no
RunOptions at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.findings import Fix
from memdiag.oom.dialects import bfc
from memdiag.oom.dialects.host_memory import WATCH
from memdiag.oom.dialects.parts import ABSURD, number, shown, shrinking
from memdiag.oom.model import Cause, Found, Judgement
from memdiag.oom.squeezed import Squeezed
from memdiag.units import MIB

FORMATS = ("tensorflow",)
ANCHORS = bfc.ANCHORS
EXAMPLES = (
    (
        "tensorflow",
        (
            "ResourceExhaustedError: OOM when allocating tensor with shape[64,256,56,56] and type float on "
            "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
        ),
    ),
    (
        "tensorflow",
        (
            "E tensorflow/stream_executor/cuda/cuda_driver.cc:924] failed to allocate 1.00G (1073741824 bytes) from device: "
            "CUDA_ERROR_OUT_OF_MEMORY"
        ),
    ),
)

LARGE = 256 * MIB

_WHO = Fix(
    "See who else holds memory on the card",
    "flag",
    "nvidia-smi  # AMD: rocm-smi --showpids",
    "before the program starts",
    "in a container, other containers' processes are not listed",
)
_GROWTH = Fix(
    "Take memory as it is needed, not the whole card at start-up",
    "env",
    "export TF_FORCE_GPU_ALLOW_GROWTH=true",
    "TensorFlow >= 1.14; it helps where the card is shared",
    "what the process needs stays the same: a full card stays full",
)
_ASYNC = Fix(
    "Let the driver's own pool do the packing",
    "env",
    "export TF_GPU_ALLOCATOR=cuda_malloc_async",
    "TensorFlow >= 2.5, CUDA >= 11.2",
    "helps against fragmentation only",
)
_BATCH = Fix(
    "Use a smaller batch",
    "code",
    "model.fit(x, y, batch_size=8)",
    "Keras; Keras 3 can accumulate gradients: Adam(gradient_accumulation_steps=4)",
    "batch normalisation sees the smaller batch",
)
_FEED = Fix(
    "Use a smaller batch: feed fewer examples at a time", "code", "session.run(train_op, feed_dict={inputs: batch[:8]})", "TensorFlow 1",
    "batch normalisation sees the smaller batch",
)  # fmt: skip
_SESSION_GROWTH = Fix(
    "Take memory as it is needed, not the whole card at start-up", "code",
    "config = tf.compat.v1.ConfigProto(); config.gpu_options.allow_growth = True; session = tf.compat.v1.Session(config=config)",
    "TensorFlow 1 (before 1.13 without compat.v1); it helps where the card is shared", "a full card stays full",
)  # fmt: skip
_MIXED = Fix(
    "Compute in 16 bits",
    "code",
    'tf.keras.mixed_precision.set_global_policy("mixed_float16")',
    "TensorFlow >= 2.4",
    "activations halve, weights stay in 32 bits; keep the last softmax in float32",
)
_SHAPE = Fix(
    "Look for the empty or wrong shape in the operator named",
    "code",
    "tf.debugging.assert_greater(tf.size(x), 0)",
    "TensorFlow",
    "no setting of memory helps",
)
# Sessions and feeds: TensorFlow 1, which knows neither mixed precision by policy nor the driver's own pool.
_FIRST = re.compile(r"client/session\.py|tf\.Session|feed_dict|monitored_session|tensorflow_core/|contrib/|_do_run", re.IGNORECASE)
_AROUND = 4000
_OF_FIRST = {_BATCH: _FEED, _GROWTH: _SESSION_GROWTH}
_LATER = frozenset({_MIXED, _ASYNC})


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for failure in bfc.failures(text):
        if bfc.speaker(text, failure) == "tensorflow":
            judgement, fixes = judge(failure)
            if _FIRST.search(text.text, max(failure.start - _AROUND, 0), failure.end + _AROUND):
                fixes = tuple(_OF_FIRST.get(fix, fix) for fix in fixes if fix not in _LATER)
            device = bfc.backend(text, failure)
            yield Found(failure.start, failure.end, "tensorflow", "tensorflow", device, failure.fields, judgement, fixes, failure.mild)


def judge(failure: bfc.Failure) -> tuple[Judgement, tuple[Fix, ...]]:
    """Returns the cause of a failure and TensorFlow's remedies for it."""
    common = common_cause(failure)
    requested = number(failure.fields, "requested_bytes")
    if failure.on_host:
        why = f"{shown(requested)} of host memory refused" if requested else "memory of the host was refused, not of a card"
        if "share" in failure.kinds:
            why = f"only a remark: {shown(requested)} is more than a tenth of the host's free memory"
        return Judgement("host", "low" if failure.mild else "high", (), (why,)), (_BATCH, WATCH)
    if failure.mild:
        why = "the caller says that this is not a failure: it goes on with a slower algorithm that needs less"
        return Judgement("unknown", "low", ("capacity",), (why,)), (_ASYNC,)
    if common:
        fixes = (_SHAPE,) if common.verdict == "unknown" else (_WHO, _GROWTH)
        return common, fixes
    if requested is None:
        others: tuple[Cause, ...] = ("capacity", "other_process", "host") if "oom" not in failure.kinds else ("capacity", "host")
        why = "neither type nor device nor size is printed: it may be the card or the host"
        return Judgement("unknown", "low", others, (why,)), (_BATCH, _WHO)
    return sized(failure, requested), (_BATCH, _MIXED, _ASYNC, _WHO)


def common_cause(failure: bfc.Failure) -> Judgement | None:
    """Returns the cause where the lines of allocator and driver decide it, whoever prints them; None otherwise."""
    requested = number(failure.fields, "requested_bytes")
    if requested == 0:
        return Judgement("unknown", "high", (), ("0 bytes were asked for: an empty shape is a bug, and no lack of memory",))
    if requested is not None and requested >= ABSURD:
        why = f"{shown(requested)} is more than any card has: the size is garbage, of a broken memory query or a wrong shape"
        return Judgement("unknown", "high", (), (why,))
    if "context" in failure.kinds:
        why = "not even the device context fitted, before the program had taken anything: the card is full of somebody else"
        return Judgement("other_process", "high", ("unknown",), (why,))
    if set(failure.kinds) != {"driver"}:
        return None
    sizes = failure.sizes
    if shrinking(sizes) and len(sizes) > 1:
        why = (
            f"{len(sizes)} requests, from {shown(sizes[0])} down to {shown(sizes[-1])}, each smaller: the pool takes what it "
            f"can get at start-up, and the card has less"
        )
        return Judgement("other_process", "high" if len(sizes) > 2 else "medium", ("unknown", "capacity"), (why,))
    why = f"the driver refused {shown(requested)} to the pool: less than that is free on the card"
    return Judgement("other_process", "low", ("capacity", "unknown"), (why,))


def sized(failure: bfc.Failure, requested: int) -> Judgement:
    """Returns the cause of a refused tensor, from its size and the state of the pool if that is printed."""
    limit, used = number(failure.fields, "limit_bytes"), number(failure.fields, "allocated_bytes")
    if limit is not None and used is not None:
        left = limit - used
        sums = f"the pool has {shown(limit)}, {shown(used)} in use, {shown(left)} left"
        if left >= requested:
            return Judgement("fragmentation", "medium", ("capacity",), (f"{sums}: enough for {shown(requested)}, but not in one piece",))
        if limit < 1024 * MIB:
            return Judgement("other_process", "medium", ("limit", "capacity"), (f"{sums}: so small a pool means that others had the card",))
        return Judgement("capacity", "high", ("fragmentation",), (f"{sums}: less than {shown(requested)}",))
    if requested >= LARGE:
        return Judgement(
            "capacity", "medium", ("unknown", "fragmentation"), (f"{shown(requested)} at once; the state of the pool is not printed",)
        )
    why = f"{shown(requested)} is little for a card: what filled it before is not printed"
    return Judgement("unknown", "low", ("capacity", "other_process"), (why,))
