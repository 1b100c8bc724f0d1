"""CANN on Ascend: device memory that the runtime, the driver or the graph engine (GE) could not get, without a framework's numbers."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.findings import Fix
from memdiag.oom.ascend import Block, blocks
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Found, Judgement
from memdiag.oom.squeezed import Squeezed, pattern, take

FORMATS = ("cann_el0004",)
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
_GRAPH = "[ERROR] GE(4711,python3):2022-03-04-05:06:07.008.009 [graph_var_manager.cc:402]4712 AssignVarMem: ErrorNo: 1343225857"
EXAMPLES = (
    ("cann_el0004", f"{_TRAILER}\n{_CODE}\n        Possible Cause: Available memory is insufficient.\n        {_RESULT}"),
    ("cann_el0004", "[drv api] halMemCreate failed: device_id=5, size=4294967296, type=2, drvRetCode=6!"),
    ("cann_el0004", f"{_GRAPH} Out of memory:current var size[2147484160] exceeds total var size[2147483648]"),
)

# Messages of frameworks for which CANN's lines are only the reason: their own dialects report them.
_FRAMEWORK = pattern(r"NPU out of memory | Malloc device memory failed | Out of Memory!!! | Memory not enough :")
_BESIDE = 700
_VARIABLES = pattern(r"(?:Out of memory :)? current var size\[{requested:bytes}\] exceeds total var size\[{limit:bytes}\]")
_GE_LOG = pattern(r"GE\({pid:int},")
_GE_REACH = 400

_WHO = Fix(
    "See who holds the card",
    "code",
    "npu-smi info",
    "Ascend",
    "In a container, processes of others are listed on the host only.",
)
_FRACTION = Fix(
    "Leave memory outside the pool: kernels, workspaces and HCCL take theirs there",
    "code",
    "torch_npu.npu.set_per_process_memory_fraction(0.92)",
    "torch_npu; vLLM: a lower --gpu-memory-utilization",
    "The pool gets smaller by as much.",
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for block in blocks(text):
        if block.is_hccl(text.text) or _is_told_of(text, block):
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
        reasons = (f"The graph's variables need {shown(requested)}, variable_memory_max_size allows {shown(limit)}: {missing} too few.",)
        fix = Fix(
            "Give variables more of the card",
            "code",
            f'custom_op.parameter_map["variable_memory_max_size"].s = tf.compat.as_bytes("{requested}")' if requested else "",
            "TensorFlow on Ascend (GE)",
            "graph_memory_max_size, for everything else, has to shrink by as much: both come out of the same card.",
        )
        start = logs[-1].start() if logs else match.start()
        yield Found(
            start, match.end(), "cann_el0004", "tensorflow-ge", "npu", fields, Judgement("limit", "high", ("capacity",), reasons), (fix,)
        )


def _is_told_of(text: Squeezed, block: Block) -> bool:
    """Whether a framework's own message, which says more, stands beside these lines and is about the same failure."""
    for match in _FRAMEWORK.finditer(text.text, max(block.start - _BESIDE, 0), block.end + _BESIDE):
        if not block.key or text.line_at(match.start()).key in {"", block.key}:
            return True
    return False


def _judge(block: Block, stage: str) -> Judgement:
    requested = number(block.fields, "requested_bytes")
    asked = f" of {shown(requested)}" if requested else ""
    if stage == "device":
        reasons = ("The device could not even be opened: this process holds nothing on it yet, so others had filled it.",)
        return Judgement("other_process", "high", ("unknown",), reasons)
    if stage == "launch":
        reasons = ("No room was left to load a kernel: its code lies outside the framework's pool, which has taken the rest.",)
        return Judgement("workspace_or_comm", "medium", ("capacity", "unknown"), reasons)
    if stage == "operator":
        reasons = (f"The graph engine asked the driver for a block{asked} of its own, outside the framework's pool.",)
        return Judgement("workspace_or_comm", "medium", ("capacity", "other_process"), reasons)
    reasons = (f"The runtime could not get device memory{asked}; it prints neither what is free nor who holds the rest.",)
    return Judgement("unknown", "low", ("other_process", "capacity"), reasons)


def _fixes(stage: str) -> tuple[Fix, ...]:
    return (_WHO,) if stage == "device" else (_FRACTION, _WHO) if stage else (_WHO, _FRACTION)
