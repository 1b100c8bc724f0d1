"""CuPy's memory pool (and Chainer on it), and the pool of RMM, which RAPIDS uses.

The old text's "total" includes the request ("out of memory to allocate 1 bytes (total 3 bytes)" means 2 are reserved).
The new one prints the allocated bytes so far, and the pool's limit if it has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.diagnosis import thresholds
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Confidence, Judgement
from memdiag.text import phrase

FORMATS = ("cupy",)
NAMES = {"cupy": "CuPy", "rapids": "RAPIDS", "xgboost": "XGBoost"}
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
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 4,294,967,296 bytes (allocated so far: "
            "8,589,934,592 "
            "bytes, limit set to: 10,737,418,240 bytes)."
        ),
    ),
    ("cupy", "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 1073741824 bytes (total 12373894656 bytes)"),
)

_NEW = pattern(
    r"(?<!exhausted:) Out of memory allocating {requested:bytes} bytes"
    r" (?: \( (?:allocated so far: {allocated:bytes} bytes)?"
    r" (?: ,? limit set"
    r" to: {limit:bytes} bytes)? \)? )?"
)
_OLD = pattern(
    r"out of memory to allocate {requested:bytes} bytes"
    r" (?: \( total {with_request:bytes} bytes (?: , limit(?: set to)? :?"
    r" {limit:bytes} bytes)? \)? )?"
)
_RUNTIME = pattern(
    r"CUDA(?:Runtime|Driver)Error: (?:cudaErrorMemoryAllocation | CUDA_ERROR_OUT_OF_MEMORY | hipErrorOutOfMemory)"
    r" (?: :? out of memory)?"
)
_RMM = pattern(
    r"(?:std::)?bad_alloc: (?:out_of_memory: )? (?:(?:CUDA|RMM) (?:error|failure)"
    r" (?:\( failed to allocate (?:{requested:bytes} bytes | {size:size}) \))? at: [^\s]{1,200}? : (?:\d+:)?)?"
    r" (?:(?P<pool>Maximum pool size exceeded) (?:\( failed to allocate {pooled:size} \))?"
    r" | cudaErrorMemoryAllocation :? (?:out of memory)?)"
    # XGBoost prints both with units only since 2.1.
    r" (?: -? Free memory: (?:{free:size} | {free_count:bytes}) -? Requested memory:"
    r" (?:{wanted:size} | {wanted_count:bytes}) )?"
    # Truncated after or before the location: the file still identifies which of RMM's resources refused.
    r" | (?:std::)?bad_alloc: (?:out_of_memory: )? (?:CUDA|RMM) (?:error|failure)"
    r" (?:\( failed to allocate (?:{cut_requested:bytes} bytes | {cut_size:size}) \))?"
    r" (?: at: [\w./+:-]{0,160}? (?:(?P<cut_pool>pool|limiting|arena)|cuda(?:_async)?|managed) _memory_resource"
    r" (?:\.hpp (?::\d{1,6})?)? :? )?"
    r" | (?<=[:'\"(=]) RMM_ERROR_OUT_OF_MEMORY"
)
_RMM_SIZES = tuple(
    f"{name}_bytes" for name in ("requested", "wanted", "wanted_count", "size", "pooled", "cut_requested", "cut_size")
)
_HIP = re.compile(r"hiperror|rocm", re.IGNORECASE)

_FREE = LazyFix("oom_cupy.free", "code", "cupy.get_default_memory_pool().free_all_blocks()")
_LIMIT = LazyFix("oom_cupy.limit", "code", "cupy.get_default_memory_pool().set_limit(size=0)")
_MANAGED = LazyFix(
    "oom_cupy.managed", "code", "cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)"
)
_ASYNC = LazyFix("oom_cupy.async", "code", "cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)")
_RMM_MANAGED = LazyFix(
    "oom_cupy.rmm-managed",
    "code",
    "rmm.reinitialize(managed_memory=True, pool_allocator=True)",
    caveat="oom_cupy.managed.caveat",
)
_RMM_POOL = LazyFix(
    "oom_cupy.rmm-pool",
    "code",
    "rmm.reinitialize(pool_allocator=True, initial_pool_size=2**30, maximum_pool_size=None)",
    caveat="oom_cupy.limit.caveat",
)
_XGBOOST = LazyFix(
    "oom_cupy.xgboost",
    "code",
    "xgboost.ExtMemQuantileDMatrix(iterator); xgboost.train({'device': 'cuda', 'max_bin': 128}, ...)",
)
_CHUNKS = LazyFix("oom_cupy.chunks", "code", "cupy.multiply(x, y, out=x)  # x *= y makes no third array")
_WHO = LazyFix("oom_shared.who", "flag", "nvidia-smi")


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
    yield from _rmm(text)
    for match in _RUNTIME.finditer(text.text):
        judgement = Judgement("unknown", "low", ("capacity", "other_process"), (phrase("oom_shared.why.driver"),))
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


def _rmm(text: Squeezed) -> Iterator[Found]:
    """Yields messages of RMM, and those of XGBoost, which repeats them or has its own allocator."""
    for match in _RMM.finditer(text.text):
        around = text.text[max(match.start() - 1000, 0) : match.start()].lower()
        framework = "xgboost" if "xgboost" in around else "rapids"
        pool = match["pool"] or match["cut_pool"]
        given = take(match)
        requested = next((size for size in (number(given, name) for name in _RMM_SIZES) if size is not None), None)
        free = number(given, "free_bytes")
        free = number(given, "free_count_bytes") if free is None else free
        fields: Fields = {
            name: size for name, size in (("requested_bytes", requested), ("free_bytes", free)) if size is not None
        }
        if pool:
            why = phrase("oom_cupy.why.rmm.pool")
            if requested is not None:
                why = phrase("oom_cupy.why.rmm.pool.size", size=shown(requested))
            confidence: Confidence = "high" if match["pool"] else "low"
            judgement = Judgement("limit", confidence, ("unknown", "other_process"), (why,))
        else:
            judgement = _refused(requested, free, framework)
        backing = (_RMM_POOL, _RMM_MANAGED, _CHUNKS, _WHO) if pool else (_RMM_MANAGED, _CHUNKS, _WHO)
        fixes = (_XGBOOST, _WHO) if framework == "xgboost" else backing
        yield Found(match.start(), match.end(), "cupy", framework, "cuda", fields, judgement, fixes)


def _refused(requested: int | None, free: int | None, framework: str) -> Judgement:
    """Judges a request that the driver refused."""
    if requested is not None and free is not None:
        why = phrase("oom_cupy.why.rmm.free", size=shown(requested), free=shown(free))
        if requested > free:
            return Judgement("capacity", "medium", ("other_process",), (why,))
        # The driver was asked before XGBoost read the free memory.
        return Judgement("unknown", "low", ("capacity", "other_process"), (why, phrase("oom_cupy.why.rmm.enough")))
    why = phrase("oom_cupy.why.rmm.driver") if framework == "rapids" else phrase("oom_shared.why.driver")
    if requested is not None:
        size = shown(requested)
        why = (
            phrase("oom_cupy.why.rmm.driver.size", size=size)
            if framework == "rapids"
            else phrase("oom_shared.why.driver.size", size=size)
        )
    return Judgement("capacity", "low", ("unknown", "other_process"), (why,))


def _judge(fields: Fields, old: bool) -> tuple[Judgement, tuple[LazyFix, ...]]:
    requested, held, limit = (number(fields, f"{name}_bytes") for name in ("requested", "allocated", "limit"))
    if not requested or requested >= thresholds.ABSURD:
        return Judgement("unknown", "high", (), (phrase("oom_shared.why.shape", size=shown(requested)),)), ()
    size = shown(requested)
    if limit is not None and limit > 0 and (held or 0) + requested > limit:
        why = phrase("oom_cupy.why.limit", size=size, limit=shown(limit))
        if held is not None:
            why = phrase("oom_cupy.why.limit.held", held=shown(held), size=size, limit=shown(limit))
        return Judgement("limit", "high", ("capacity",), (why,)), (_LIMIT, _FREE, _CHUNKS)
    reasons = [phrase("oom_cupy.why.request", size=size)]
    if held is not None:
        reasons = [phrase("oom_cupy.why.request.held", held=shown(held), size=size)]
    if old and held is not None:
        reasons.append(phrase("oom_cupy.why.total"))
    if held is not None and held < thresholds.SMALL_POOL and requested < thresholds.SMALL_POOL:
        reasons.append(phrase("oom_cupy.why.little"))
        return Judgement("other_process", "medium", ("capacity", "unknown"), tuple(reasons)), (_WHO, _FREE)
    return Judgement("capacity", "medium", ("unknown", "other_process", "fragmentation"), tuple(reasons)), (
        _CHUNKS,
        _FREE,
        _MANAGED,
        _ASYNC,
    )
