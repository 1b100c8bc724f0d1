"""TensorFlow: its allocator, operators and device layer, on CUDA, ROCm and CPUs; all wordings since 0.x.

Its hint ("add report_tensor_allocations_upon_oom to RunOptions") only lists tensors and frees nothing; eager mode has
no RunOptions at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.diagnosis import thresholds
from memdiag.oom.dialects import bfc
from memdiag.oom.dialects.host_memory import WATCH
from memdiag.oom.dialects.parts import number, shown, shrinking
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Judgement
from memdiag.text import phrase

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
            "E tensorflow/stream_executor/cuda/cuda_driver.cc:924] failed to allocate 1.00G (1073741824 bytes) "
            "from device: "
            "CUDA_ERROR_OUT_OF_MEMORY"
        ),
    ),
)


_WHO = LazyFix("oom_shared.who", "flag", "nvidia-smi  # AMD: rocm-smi --showpids")
_GROWTH = LazyFix("oom_libraries.tf-growth", "env", "export TF_FORCE_GPU_ALLOW_GROWTH=true")
_ASYNC = LazyFix("oom_tensorflow.async", "env", "export TF_GPU_ALLOCATOR=cuda_malloc_async")
_BATCH = LazyFix(
    "oom_shared.batch",
    "code",
    "model.fit(x, y, batch_size=8)",
    when="oom_tensorflow.batch.when",
    caveat="oom_tensorflow.batch.caveat",
)
_FEED = LazyFix(
    "oom_shared.batch",
    "code",
    "session.run(train_op, feed_dict={inputs: batch[:8]})",
    when="oom_tensorflow.feed.when",
    caveat="oom_tensorflow.batch.caveat",
)
_SESSION_GROWTH = LazyFix(
    "oom_libraries.tf-growth",
    "code",
    (
        "config = tf.compat.v1.ConfigProto(); config.gpu_options.allow_growth = True; "
        "session = tf.compat.v1.Session(config=config)"
    ),
    when="oom_tensorflow.session.when",
)
_MIXED = LazyFix("oom_tensorflow.mixed", "code", 'tf.keras.mixed_precision.set_global_policy("mixed_float16")')
_SHAPE = LazyFix("oom_tensorflow.shape", "code", "tf.debugging.assert_greater(tf.size(x), 0)")
# Sessions and feeds: TensorFlow 1, which has neither mixed precision policies nor the driver's pool.
_FIRST = re.compile(
    r"client/session\.py|tf\.Session|feed_dict|monitored_session|tensorflow_core/|contrib/|_do_run", re.IGNORECASE
)
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
            if device != "cuda":
                fixes = tuple(fix for fix in fixes if fix is not _ASYNC)
            yield Found(
                failure.start,
                failure.end,
                "tensorflow",
                "tensorflow",
                device,
                failure.fields,
                judgement,
                fixes,
                failure.mild,
            )


def judge(failure: bfc.BfcFailure) -> tuple[Judgement, tuple[LazyFix, ...]]:
    """Returns the cause of a failure and TensorFlow's remedies for it."""
    common = common_cause(failure)
    requested = number(failure.fields, "requested_bytes")
    if failure.on_host:
        why = phrase("oom_shared.why.host.size", size=shown(requested)) if requested else phrase("oom_shared.why.host")
        if "share" in failure.kinds:
            why = phrase("oom_tensorflow.why.remark", size=shown(requested))
        return Judgement("host", "low" if failure.mild else "high", (), (why,)), (_BATCH, WATCH)
    if failure.mild:
        why = phrase("oom_tensorflow.why.mild")
        return Judgement("unknown", "low", ("capacity",), (why,)), (_ASYNC,)
    if common:
        fixes = (_SHAPE,) if common.verdict == "unknown" else (_WHO, _GROWTH)
        return common, fixes
    if requested is None:
        others: tuple[Cause, ...] = (
            ("capacity", "other_process", "host") if "oom" not in failure.kinds else ("capacity", "host")
        )
        why = phrase("oom_tensorflow.why.nothing")
        return Judgement("unknown", "low", others, (why,)), (_BATCH, _WHO)
    return sized(failure, requested), (_BATCH, _MIXED, _ASYNC, _WHO)


def common_cause(failure: bfc.BfcFailure) -> Judgement | None:
    """Returns the cause if the lines of allocator and driver decide it, whoever prints them, or None."""
    requested = number(failure.fields, "requested_bytes")
    if requested == 0:
        return Judgement("unknown", "high", (), (phrase("oom_tensorflow.why.zero"),))
    if requested is not None and requested >= thresholds.ABSURD:
        why = phrase("oom_shared.why.shape", size=shown(requested))
        return Judgement("unknown", "high", (), (why,))
    if "context" in failure.kinds:
        why = phrase("oom_tensorflow.why.context")
        return Judgement("other_process", "high", ("unknown",), (why,))
    if set(failure.kinds) != {"driver"}:
        return None
    sizes = failure.sizes
    if shrinking(sizes) and len(sizes) > 1:
        why = phrase("oom_tensorflow.why.shrinking", count=len(sizes), first=shown(sizes[0]), last=shown(sizes[-1]))
        return Judgement("other_process", "high" if len(sizes) > 2 else "medium", ("unknown", "capacity"), (why,))
    why = phrase("oom_tensorflow.why.driver", size=shown(requested))
    return Judgement("other_process", "low", ("capacity", "unknown"), (why,))


def sized(failure: bfc.BfcFailure, requested: int) -> Judgement:
    """Returns the cause of a refused tensor, from its size and the pool's state if that is printed."""
    limit, used = number(failure.fields, "limit_bytes"), number(failure.fields, "allocated_bytes")
    if limit is not None and used is not None:
        left = limit - used
        amounts = {"limit": shown(limit), "used": shown(used), "left": shown(left)}
        if left >= requested:
            return Judgement(
                "fragmentation",
                "medium",
                ("capacity",),
                (phrase("oom_tensorflow.why.pieces", **amounts, size=shown(requested)),),
            )
        if limit < thresholds.SMALL_POOL:
            return Judgement(
                "other_process", "medium", ("limit", "capacity"), (phrase("oom_tensorflow.why.small-pool", **amounts),)
            )
        return Judgement(
            "capacity",
            "high",
            ("fragmentation",),
            (phrase("oom_tensorflow.why.pool", **amounts, size=shown(requested)),),
        )
    if requested >= thresholds.LARGE:
        return Judgement(
            "capacity",
            "medium",
            ("unknown", "fragmentation"),
            (phrase("oom_tensorflow.why.large", size=shown(requested)),),
        )
    why = phrase("oom_tensorflow.why.little", size=shown(requested))
    return Judgement("unknown", "low", ("capacity", "other_process"), (why,))
