"""CANN on Ascend: device memory that the runtime, the driver or the graph engine (GE) could not allocate.

These lines have no framework numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.oom.ascend import FailureLines, blocks
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase

FORMATS = ("cann_el0004",)
NAMES = {"cann": "CANN", "tensorflow-ge": "TensorFlow (Ascend GE)"}
ANCHORS = (
    "el0004",
    "207001",
    "devmm",
    "halmem",
    "mallocfail",
    "currentvarsize",
    "drivererror:outofmemory",
    "allocdevicememoryfailed",
    "allocatedevicememoryfailed",
)
_TRAILER = "[ERROR] 2025-03-04-05:06:07 (PID:4711, Device:2, RankID:-1) ERR00100 PTA call acl api failed"
_CODE = "EL0004: [PID: 4711] 2025-03-04-05:06:07.008.009 Failed to allocate memory."
_RESULT = "alloc device memory failed, runtime result = 207001[FUNC:ReportCallError][FILE:log_inner.cpp][LINE:162]"
_GRAPH = (
    "[ERROR] GE(4711,python3):2022-03-04-05:06:07.008.009 [graph_var_manager.cc:402]4712 AssignVarMem: "
    "ErrorNo: 1343225857"
)
WORDS = ("halmem",)
EXAMPLES = (
    (
        "cann_el0004",
        f"{_TRAILER}\n{_CODE}\n        Possible Cause: Available memory is insufficient.\n        {_RESULT}",
    ),
    ("cann_el0004", "[drv api] halMemCreate failed: device_id=5, size=4294967296, type=2, drvRetCode=6!"),
    ("cann_el0004", f"{_GRAPH} Out of memory:current var size[2147484160] exceeds total var size[2147483648]"),
)

# Framework messages for which CANN's lines are only the reason; their own dialects report them.
_FRAMEWORK = pattern(r"NPU out of memory | Malloc device memory failed | Out of Memory!!! | Memory not enough :")
_BESIDE = 700
_VARIABLES = pattern(
    r"(?:Out of memory :)? current var size\[{requested:bytes}\] exceeds total var size\[{limit:bytes}\]"
)
_GE_LOG = pattern(r"GE\({pid:int},")
_GE_REACH = 400

_WHO = LazyFix("oom_shared.who", "code", "npu-smi info", when="oom_ascend.who.when")
_FRACTION = LazyFix("oom_ascend.room", "code", "torch_npu.npu.set_per_process_memory_fraction(0.92)")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for block in blocks(text):
        if block.is_hccl(text.text) or _is_reported(text, block):
            continue
        stage = block.stage(text.text)
        yield Found(
            block.start,
            block.end,
            "cann_el0004",
            "cann",
            "npu",
            block.fields,
            _judge(block, stage),
            _fixes(stage),
        )
    for match in _VARIABLES.finditer(text.text):
        logs = list(_GE_LOG.finditer(text.text, max(match.start() - _GE_REACH, 0), match.start()))
        fields = {**(take(logs[-1]) if logs else {}), **take(match)}
        requested, limit = number(fields, "requested_bytes"), number(fields, "limit_bytes")
        missing = shown(requested - limit) if requested is not None and limit is not None else "more"
        reasons = (phrase("oom_ascend.why.variables", requested=shown(requested), limit=shown(limit), missing=missing),)
        fix = LazyFix(
            "oom_ascend.variables",
            "code",
            f'custom_op.parameter_map["variable_memory_max_size"].s = tf.compat.as_bytes("{requested}")'
            if requested
            else "",
        )
        start = logs[-1].start() if logs else match.start()
        yield Found(
            start,
            match.end(),
            "cann_el0004",
            "tensorflow-ge",
            "npu",
            fields,
            Judgement("limit", "high", ("capacity",), reasons),
            (fix,),
        )


def _is_reported(text: Squeezed, block: FailureLines) -> bool:
    """Returns whether a framework's own, more detailed message about the same failure is near these lines."""
    for match in _FRAMEWORK.finditer(text.text, max(block.start - _BESIDE, 0), block.end + _BESIDE):
        if not block.key or text.line_at(match.start()).key in {"", block.key}:
            return True
    return False


def _judge(block: FailureLines, stage: str) -> Judgement:
    requested = number(block.fields, "requested_bytes")
    size = shown(requested)
    if stage == "device":
        reasons = (phrase("oom_shared.why.opening"),)
        return Judgement("other_process", "high", ("unknown",), reasons)
    if stage == "launch":
        reasons = (phrase("oom_ascend.why.launch"),)
        return Judgement("workspace_or_comm", "medium", ("capacity", "unknown"), reasons)
    if stage == "operator":
        why = phrase("oom_ascend.why.operator.size", size=size) if requested else phrase("oom_ascend.why.operator")
        reasons = (why,)
        return Judgement("workspace_or_comm", "medium", ("capacity", "other_process"), reasons)
    why = phrase("oom_ascend.why.runtime.size", size=size) if requested else phrase("oom_ascend.why.runtime")
    return Judgement("unknown", "low", ("other_process", "capacity"), (why,))


def _fixes(stage: str) -> tuple[LazyFix, ...]:
    return (_WHO,) if stage == "device" else (_FRACTION, _WHO) if stage else (_WHO, _FRACTION)
