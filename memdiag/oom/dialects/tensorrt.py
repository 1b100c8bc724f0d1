"""TensorRT: the runtime, and the builder, which tries algorithms in a workspace and skips those that do not fit.

During a build, "OutOfMemory" is usually not a failure: the builder skips the tactic. The build stops only after the
last tactic fails ("Could not find any implementation for node"). Several lines report one attempt; they form one
message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from memdiag.oom.dialects import tensorrt_llm
from memdiag.oom.dialects.parts import number, runs, shown
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Judgement
from memdiag.text import phrase
from memdiag.units import MIB

FORMATS = ("tensorrt",)
ANCHORS = (
    "errorcode2:outofmemory",
    "requestedamountof",
    "skippingtactic",
    "cudaruntime(outofmemory)",
    "insufficientworkspace",
    "tacticdevicerequest",
    "cudaerrorin",
    "outofmemoryerrorin",
    "getbesttactic",
)
EXAMPLES = (
    (
        "tensorrt",
        (
            "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::140] Error Code 2: OutOfMemory (Requested size was "
            "2147483648 bytes.)"
        ),
    ),
    (
        "tensorrt",
        (
            "[TRT] Requested amount of GPU memory (4294967296 bytes) could not be allocated. "
            "There may not be enough free memory "
            "for allocation to succeed."
        ),
    ),
)

_FUNCTION = r"[\w:<>~`'-]{3,120}?"  # "allocate", "nvinfer1::builder::`anonymous-namespace'::LeafCNode::computeCosts"
_LINES = (
    (
        r"Error Code 2: OutOfMemory"
        r" (?: \(? (?:no further information | Requested size was {size_a:bytes} bytes\.? ) \)? )?"
    ),
    r"Requested amount of (?:GPU)? memory \({size_b:bytes} bytes\) could not be allocated",
    (
        r"Skipping tactic (?:0x)?[\da-f]{1,20} due to (?:(?:insufficient memory | (?:oom|out of memory) error)"
        r" (?: on requested size of {size_c:bytes} )? | exception [^.]{0,60}OutOfMemory)"
    ),
    r"Error Code 1: Cuda Runtime \(out of memory\)",
    r"Could not find any implementation for node .{1,300}? due to insufficient workspace",
    (
        r"Tactic Device request: {request:int}MB Available: {available:int}MB\.?"
        r" (?:Device memory is insufficient to use tactic)?"
    ),
    rf"Cuda Error in {_FUNCTION}: 2 \(out of memory\)",
    rf"OutOfMemory Error in {_FUNCTION}: \d+",
    r"(?:Out of memory | GPU memory allocation) error during getBestTactic",
    r"Try decreasing the workspace size with (?:IBuilderConfig::setMemoryPoolLimit|IBuilder::setMaxWorkspaceSize)\(\)",
)
_HEAD = pattern("|".join(f"(?:{line})" for line in _LINES))
_BUILDING = re.compile(
    r"tactic|workspace|resizephysical|builder|optimizer\.cpp|myelin|requestedamountofgpu|autotun", re.IGNORECASE
)
# An existing engine is loaded or run: the same lines are then about the engine itself.
_RUNNING = re.compile(r"deserializ|loadedenginesize|executioncontext", re.IGNORECASE)
_FATAL = re.compile(
    (
        r"couldnotfindanyimplementation|engine(?:could not be|couldnotbe)created|buildserializednetworkfailed"
        r"|failedtobuild|enginebuildfailed"
    ),
    re.IGNORECASE,
)

_POOL = LazyFix("oom_tensorrt.pool", "code", "config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, %d << 20)")
_MORE = LazyFix("oom_tensorrt.more", "code", "config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 4096 << 20)")
_SHAPES = LazyFix("oom_tensorrt.shapes", "code", "profile.set_shape(name, min, opt, max)")
_HALF = LazyFix("oom_tensorrt.half", "code", "config.set_flag(trt.BuilderFlag.FP16)")
_FREE = LazyFix("oom_tensorrt.free", "flag", "nvidia-smi")
_CONTEXTS = LazyFix(
    "oom_tensorrt.contexts", "code", "context = engine.create_execution_context_without_device_memory()"
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for group in runs(_HEAD.finditer(text.text), 900):
        if all(match[0].lower().startswith("trydecreasing") for match in group):
            continue
        yield _message(text, group)


def _message(text: Squeezed, group: list[re.Match[str]]) -> Found:
    start, end = group[0].start(), group[-1].end()
    fields: Fields = {}
    for match in group:
        given = take(match)
        size = next((given[name] for name in ("size_a_bytes", "size_b_bytes", "size_c_bytes") if name in given), None)
        request, available = number(given, "request"), number(given, "available")
        if size is not None:
            fields.setdefault("requested_bytes", size)
        elif request is not None and available is not None and "requested_bytes" not in fields:
            fields |= {"requested_bytes": request * MIB, "free_bytes": available * MIB}
    requested, free = number(fields, "requested_bytes"), number(fields, "free_bytes")
    around = text.text[max(start - 300, 0) : end + 200]
    running = bool(_RUNNING.search(around))
    building = not running and bool(_BUILDING.search(around))
    pool = max(64, (free or (requested or 0) // 2) // MIB)
    limit = replace(_POOL, change=_POOL.change % pool, values={"mib": str(pool)})
    if "insufficientworkspace" in around.lower():
        why = phrase("oom_tensorrt.why.workspace")
        judgement = Judgement("workspace_or_comm", "high", ("limit", "capacity"), (why,))
        return Found(start, end, "tensorrt", "tensorrt", "cuda", fields, judgement, (_MORE, _FREE, _SHAPES))
    if building:
        size, left = shown(requested), shown(free)
        reasons = [
            phrase("oom_tensorrt.why.tactic.size", size=size) if requested else phrase("oom_tensorrt.why.tactic")
        ]
        if requested and free is not None:
            reasons = [phrase("oom_tensorrt.why.tactic.free", size=size, free=left)]
        if not _FATAL.search(text.text, end, end + 2000):
            reasons.append(phrase("oom_tensorrt.why.skips"))
        others: tuple[Cause, ...] = ("capacity", "other_process")
        fixes = (limit, _FREE, _SHAPES, _HALF) if requested else (_FREE, _SHAPES, _HALF)
        return Found(
            start,
            end,
            "tensorrt",
            "tensorrt",
            "cuda",
            fields,
            Judgement("workspace_or_comm", "medium", others, tuple(reasons)),
            fixes,
        )
    if requested:
        size = shown(requested)
        why = phrase("oom_tensorrt.why.loading", size=size) if running else phrase("oom_tensorrt.why.run", size=size)
    else:
        why = phrase("oom_tensorrt.why.loaded") if running else phrase("oom_tensorrt.why.room")
    others = (
        ("other_process", "workspace_or_comm", "unknown")
        if running
        else ("workspace_or_comm", "other_process", "unknown")
    )
    judgement = Judgement("capacity", "medium" if running else "low", others, (why,))
    if tensorrt_llm.is_llm(around + text.line_at(start).key):
        fixes = (
            (tensorrt_llm.SPREAD, tensorrt_llm.BITS, _FREE)
            if running
            else (tensorrt_llm.TOKENS, tensorrt_llm.CACHE, _FREE)
        )
        return Found(start, end, "tensorrt", "tensorrt-llm", "cuda", fields, judgement, fixes)
    fixes = (_HALF, _FREE, _CONTEXTS) if running else (_SHAPES, _CONTEXTS, _HALF, _FREE)
    return Found(start, end, "tensorrt", "tensorrt", "cuda", fields, judgement, fixes)
