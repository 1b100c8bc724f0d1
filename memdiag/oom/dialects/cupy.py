"""CuPy's memory pool (and Chainer on it), and RMM's, which RAPIDS puts beneath.

The old text's "total" already counts the request ("out of memory to allocate 1 bytes (total 3 bytes)": 2 are held); the new one counts
what is allocated so far, and names the pool's limit if it has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.findings import Fix
from memdiag.oom.dialects.parts import ABSURD, number, shown
from memdiag.oom.model import Cause, Fields, Found, Judgement
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.units import GIB

FORMATS = ("cupy",)
ANCHORS = (
    "outofmemorytoallocate",
    "outofmemoryallocating",
    "cudaruntimeerror:cudaerrormemory",
    "cudaruntimeerror:hiperror",
    "cudadrivererror:",
    "bad_alloc",
    "rmm_error_out",
)
EXAMPLES = (
    (
        "cupy",
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 4,294,967,296 bytes (allocated so far: 8,589,934,592 "
            "bytes, limit set to: 10,737,418,240 bytes)."
        ),
    ),
    ("cupy", "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 1073741824 bytes (total 12373894656 bytes)"),
)

_NEW = pattern(
    r"(?<!exhausted:) Out of memory allocating {requested:bytes} bytes (?: \( (?:allocated so far: {allocated:bytes} bytes)?"
    r" (?: ,? limit set"
    r" to: {limit:bytes} bytes)? \)? )?"
)
_OLD = pattern(
    r"out of memory to allocate {requested:bytes} bytes (?: \( total {with_request:bytes} bytes (?: , limit(?: set to)? :?"
    r" {limit:bytes} bytes)? \)? )?"
)
_RUNTIME = pattern(
    r"CUDA(?:Runtime|Driver)Error: (?:cudaErrorMemoryAllocation | CUDA_ERROR_OUT_OF_MEMORY | hipErrorOutOfMemory) (?: :? out of memory)?"
)
_RMM = pattern(
    r"(?:std::)?bad_alloc: (?:out_of_memory: )? (?:(?:CUDA|RMM) (?:error|failure)"
    r" (?:\( failed to allocate (?:{requested:bytes} bytes | {size:size}) \))? at: [^\s]{1,200}? : (?:\d+:)?)?"
    r" (?:(?P<pool>Maximum pool size exceeded) (?:\( failed to allocate {pooled:size} \))?"
    r" | cudaErrorMemoryAllocation :? (?:out of memory)?)"
    r" (?: -? Free memory: {free:size} -? Requested memory: {wanted:size} )?"
    # Cut behind the place, or before it: the file still tells which of RMM's resources refused.
    r" | (?:std::)?bad_alloc: (?:out_of_memory: )? (?:CUDA|RMM) (?:error|failure)"
    r" (?:\( failed to allocate (?:{cut_requested:bytes} bytes | {cut_size:size}) \))?"
    r" (?: at: [\w./+:-]{0,160}? (?:(?P<cut_pool>pool|limiting|arena)|cuda(?:_async)?|managed) _memory_resource"
    r" (?:\.hpp (?::\d{1,6})?)? :? )?"
    r" | (?<=[:'\"(=]) RMM_ERROR_OUT_OF_MEMORY"
)
_RMM_SIZES = ("requested_bytes", "wanted_bytes", "size_bytes", "pooled_bytes", "cut_requested_bytes", "cut_size_bytes")
_HIP = re.compile(r"hiperror|rocm", re.IGNORECASE)

_FREE = Fix(
    "Give the pool's free blocks back to the driver",
    "code",
    "cupy.get_default_memory_pool().free_all_blocks()",
    "CuPy, beside other libraries on the card or after shapes changed",
    "blocks of live arrays stay",
)
_LIMIT = Fix(
    "Raise the pool's limit, or remove it",
    "code",
    "cupy.get_default_memory_pool().set_limit(size=0)",
    "a limit is set (set_limit or CUPY_GPU_MEMORY_LIMIT)",
    "other libraries on the card lose what it protected",
)
_MANAGED = Fix(
    "Let arrays spill to the host",
    "code",
    "cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)",
    "CUDA on Linux with a GPU that can page",
    "many times slower once it spills",
)
_ASYNC = Fix(
    "Use the driver's stream-ordered pool, which packs better",
    "code",
    "cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)",
    "CUDA >= 11.2",
    "helps against fragmentation only",
)
_RMM_MANAGED = Fix(
    "Let RMM spill to the host",
    "code",
    "rmm.reinitialize(managed_memory=True, pool_allocator=True)",
    "RAPIDS",
    "many times slower once it spills",
)
_RMM_POOL = Fix(
    "Give the pool a larger maximum, or none",
    "code",
    "rmm.reinitialize(pool_allocator=True, initial_pool_size=2**30, maximum_pool_size=None)",
    "RAPIDS; dask_cuda: rmm_pool_size, rmm_maximum_pool_size",
    "other programs on the device lose what it protected",
)
_XGBOOST = Fix(
    "Keep the training data outside the card, quantised",
    "code",
    "xgboost.ExtMemQuantileDMatrix(iterator); xgboost.train({'device': 'cuda', 'max_bin': 128}, ...)",
    "XGBoost >= 3.0; before, xgboost.QuantileDMatrix, which needs less than DMatrix",
    "slower; fewer bins may cost accuracy",
)
_CHUNKS = Fix(
    "Work in pieces, in place and in a narrower type", "code", "cupy.multiply(x, y, out=x)  # x *= y makes no third array", "CuPy", ""
)
_WHO = Fix("See who else holds memory on the card", "flag", "nvidia-smi", "before the program starts", "")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for head in (_NEW, _OLD):
        for match in head.finditer(text.text):
            fields = take(match)
            held = fields.pop("with_request_bytes", None)
            requested = number(fields, "requested_bytes")
            if isinstance(held, int) and requested is not None and held >= requested:
                fields["allocated_bytes"] = held - requested
            backend = "hip" if _HIP.search(text.text, max(match.start() - 300, 0), match.end()) else "cuda"
            judgement, fixes = _judge(fields, head is _OLD)
            yield Found(match.start(), match.end(), "cupy", "cupy", backend, fields, judgement, fixes)
    for match in _RMM.finditer(text.text):
        pool = match["pool"] or match["cut_pool"]
        verdict: Cause = "limit" if pool else "capacity"
        why = "the pool of RMM has reached its largest size" if pool else "the driver refused memory to RMM; no size is printed"
        given = take(match)
        sizes = [given[name] for name in _RMM_SIZES if name in given]
        fields = {"requested_bytes": sizes[0]} if sizes else {}
        if "free_bytes" in given:
            fields["free_bytes"] = given["free_bytes"]
            why = f"{shown(number(fields, 'requested_bytes'))} asked for, {shown(number(fields, 'free_bytes'))} free on the card"
        elif sizes:
            why = f"{why.partition(';')[0]}: {shown(number(fields, 'requested_bytes'))} asked for"
        judgement = Judgement(verdict, "high" if match["pool"] else "low", ("unknown", "other_process"), (why,))
        backing = (_RMM_POOL, _RMM_MANAGED, _CHUNKS, _WHO) if pool else (_RMM_MANAGED, _CHUNKS, _WHO)
        around = text.text[max(match.start() - 1000, 0) : match.start()].lower()
        framework, fixes = ("xgboost", (_XGBOOST, _WHO)) if "xgboost" in around else ("rapids", backing)
        yield Found(match.start(), match.end(), "cupy", framework, "cuda", fields, judgement, fixes)
    for match in _RUNTIME.finditer(text.text):
        judgement = Judgement("unknown", "low", ("capacity", "other_process"), ("the driver refused; no size is printed",))
        yield Found(
            match.start(),
            match.end(),
            "cupy",
            "cupy",
            "hip" if "hip" in match[0].lower() else "cuda",
            {},
            judgement,
            (_FREE, _WHO, _CHUNKS),
        )


def _judge(fields: Fields, old: bool) -> tuple[Judgement, tuple[Fix, ...]]:
    requested, held, limit = (number(fields, f"{name}_bytes") for name in ("requested", "allocated", "limit"))
    if not requested or requested >= ABSURD:
        return Judgement("unknown", "high", (), (f"{shown(requested)} were asked for: a wrong shape, no lack of memory",)), ()
    sums = f"{shown(held)} held by the pool, {shown(requested)} more asked for" if held is not None else f"{shown(requested)} asked for"
    if limit is not None and limit > 0 and (held or 0) + requested > limit:
        return Judgement("limit", "high", ("capacity",), (f"{sums}: beyond the pool's limit of {shown(limit)}",)), (_LIMIT, _FREE, _CHUNKS)
    reasons = [f"{sums}; the size of the card is not printed"]
    if old and held is not None:
        reasons.append("the message's total counts the request itself, which is taken off here")
    if held is not None and held < GIB and requested < GIB:
        reasons.append("so little fits on any card: something else has the rest")
        return Judgement("other_process", "medium", ("capacity", "unknown"), tuple(reasons)), (_WHO, _FREE)
    return Judgement("capacity", "medium", ("unknown", "other_process", "fragmentation"), tuple(reasons)), (
        _CHUNKS,
        _FREE,
        _MANAGED,
        _ASYNC,
    )
