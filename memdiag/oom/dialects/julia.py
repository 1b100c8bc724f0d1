"""CUDA.jl, Julia's arrays on GPUs: the request, and the usage of the device and of its pool.

Since CUDA.jl 3.0, the pool is the driver's stream-ordered one ("usage … (… reserved)"). Before, it was Julia's
("allocated", "cached"), which JULIA_CUDA_MEMORY_LIMIT may cap.
"""

# ruff: noqa: RUF001 - Chinese has full-width signs

from __future__ import annotations

from collections.abc import Iterator

from memdiag.diagnosis import thresholds
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Judgement
from memdiag.text import Texts, phrase, phrase_of

FORMATS = ("julia",)
ANCHORS = ("outofgpumemorytrying", ",error_out_of_memory)")
EXAMPLES = (
    (
        "julia",
        (
            "ERROR: Out of GPU memory trying to allocate 4.000 GiB\n"
            "Effective GPU memory usage: 90.00% (9.000 GiB/10.000 GiB)\n"
            "Memory pool usage: 7.250 GiB (7.500 GiB reserved)"
        ),
    ),
    ("julia", "ERROR: CUDA error: out of memory (code 2, ERROR_OUT_OF_MEMORY)"),
)

TEXTS: Texts = {
    "reclaim": {
        "en": "Drop references to arrays that are no longer needed, and run the garbage collector",
        "zh": "去掉对不再需要的数组的引用，并运行垃圾回收",
    },
    "reclaim.when": {"en": "CUDA.jl", "zh": "CUDA.jl"},
    "reclaim.caveat": {
        "en": "CUDA.unsafe_free!(x) frees one array without waiting for the collector",
        "zh": "CUDA.unsafe_free!(x) 可立即释放一个数组，无需等待回收器",
    },
    "smaller.when": {"en": "CUDA.jl", "zh": "CUDA.jl"},
    "limit.when": {
        "en": "CUDA.jl; before 4.0: JULIA_CUDA_MEMORY_LIMIT",
        "zh": "CUDA.jl；4.0 之前：JULIA_CUDA_MEMORY_LIMIT",
    },
    "why.request": {
        "en": "The program requested {size}. The message contains no other size.",
        "zh": "请求了 {size}。消息中没有其他大小。",
    },
    "why.over": {
        "en": "CUDA.jl's pool holds {held}. With the requested {size}, it would exceed its limit of {limit}.",
        "zh": "CUDA.jl 的内存池占用 {held}；加上请求的 {size} 后会超过其上限 {limit}。",
    },
    "why.near": {
        "en": "CUDA.jl's pool holds {held}. With the requested {size}, it would come close to its limit of {limit}.",
        "zh": "CUDA.jl 的内存池占用 {held}；加上请求的 {size} 后会接近其上限 {limit}。",
    },
    "why.rounded": {
        "en": "The pool asks the driver for larger blocks than the program requests.",
        "zh": "内存池向驱动申请的块大于程序请求的大小。",
    },
    "why.free": {
        "en": "{free} of {total} on the device is free, and the program requested {size}.",
        "zh": "设备的 {total} 中空闲 {free}，程序请求了 {size}。",
    },
    "why.outside": {
        "en": "Other users of the device hold {size} outside the memory pool of this process.",
        "zh": "此进程的内存池之外，设备上另有 {size} 被占用。",
    },
    "why.refused": {
        "en": "The driver may keep memory for itself, or have no single block of that size.",
        "zh": "驱动可能为自己保留了内存，或没有这么大的连续块。",
    },
    "why.fragments": {
        "en": "The memory pool has {size} of unused memory, but not in one block of the requested size.",
        "zh": "内存池中还有 {size} 未使用，但没有一个块达到请求的大小。",
    },
}

_MESSAGE = pattern(
    r"Out of GPU memory trying to allocate {requested:size}"
    r" (?: Effective GPU memory usage : [\d.]{1,8} % \( {used:size} / {total:size} \) )?"
    r" (?: (?:CUDA|CuArrays) allocator usage : {held:size} (?: \( capped at {limit:size} \) )? )?"
    r" (?: (?:Memory pool|\w{0,20} Pool|binned|split|simple|dummy) usage : {pool:size} \( (?: {reserved:size} reserved"
    r" | {allocated:size} allocated , {cached:size} cached ) \) )?"
)

# CUDAdrv, and CUDA.jl where it calls the driver itself.
_DRIVER = pattern(r"CUDA error : out of memory \( code \#? 2 , ERROR_OUT_OF_MEMORY \)")

_RECLAIM = LazyFix("reclaim", "code", "x = nothing; GC.gc(true); CUDA.reclaim()", texts=TEXTS)
_SMALLER = LazyFix(
    "oom_cupy.chunks", "code", "x .= f.(x)  # Float32 instead of Float64", when="smaller.when", texts=TEXTS
)
_WHO = LazyFix("oom_shared.who", "flag", "nvidia-smi")
_LIMIT = LazyFix("oom_cupy.limit", "env", "export JULIA_CUDA_HARD_MEMORY_LIMIT=95%", when="limit.when", texts=TEXTS)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _MESSAGE.finditer(text.text):
        given = take(match)
        used, total, pool = (number(given, f"{name}_bytes") for name in ("used", "total", "pool"))
        fields: Fields = {
            name: value for name, value in given.items() if name not in {"used_bytes", "held_bytes", "pool_bytes"}
        }
        if pool is not None and "reserved_bytes" in fields:
            fields["allocated_bytes"] = pool
        elif "held_bytes" in given:
            fields["reserved_bytes"] = given["held_bytes"]
        if used is not None and total is not None:
            fields["free_bytes"] = max(total - used, 0)
        judgement, fixes = _judge(fields)
        yield Found(match.start(), match.end(), "julia", "julia", "cuda", fields, judgement, fixes, allocator="CUDA.jl")
    for match in _DRIVER.finditer(text.text):
        why = phrase("oom_shared.why.driver")
        judgement = Judgement("unknown", "low", ("capacity", "other_process"), (why,))
        yield Found(match.start(), match.end(), "julia", "julia", "cuda", {}, judgement, (_RECLAIM, _WHO, _SMALLER))


def _judge(fields: Fields) -> tuple[Judgement, tuple[LazyFix, ...]]:
    requested, total, free, limit, allocated, reserved, cached = (
        number(fields, f"{name}_bytes")
        for name in ("requested", "total", "free", "limit", "allocated", "reserved", "cached")
    )
    if requested is None or total is None or free is None:
        return Judgement(
            "unknown", "low", ("capacity", "other_process"), (phrase_of(TEXTS, "why.request", size=shown(requested)),)
        ), (_RECLAIM,)
    sums = phrase_of(TEXTS, "why.free", free=shown(free), total=shown(total), size=shown(requested))
    if limit is not None and (reserved or 0) + requested > thresholds.NEAR_LIMIT * limit:
        over = (reserved or 0) + requested > limit
        amounts = {"held": shown(reserved), "size": shown(requested), "limit": shown(limit)}
        why = phrase_of(TEXTS, "why.over", **amounts) if over else phrase_of(TEXTS, "why.near", **amounts)
        rounded = () if over else (phrase_of(TEXTS, "why.rounded"),)
        return Judgement("limit", "high" if over else "medium", ("capacity",), (why, *rounded)), (
            _LIMIT,
            _RECLAIM,
            _SMALLER,
        )
    outside = total - free - reserved if reserved is not None else 0
    is_foreign = outside > max(thresholds.ALLOWANCE, total * thresholds.PLENTY)
    if reserved is not None and is_foreign and outside - thresholds.ALLOWANCE >= requested - free:
        why = phrase_of(TEXTS, "why.outside", size=shown(outside))
        return Judgement("other_process", "medium", ("capacity",), (sums, why)), (_WHO, _RECLAIM, _SMALLER)
    if free >= requested:
        refused = (sums, phrase_of(TEXTS, "why.refused"))
        return Judgement("unknown", "low", ("fragmentation", "limit"), refused), (_RECLAIM, _SMALLER, _WHO)
    unused = cached if cached is not None else (reserved or 0) - (allocated or 0)
    if free + unused >= requested:
        why = phrase_of(TEXTS, "why.fragments", size=shown(unused))
        return Judgement("fragmentation", "medium", ("capacity",), (sums, why)), (_RECLAIM, _SMALLER)
    others: tuple[Cause, ...] = ("other_process",) if reserved is None else ()
    return Judgement("capacity", "medium" if others else "high", others, (sums,)), (_SMALLER, _RECLAIM, _WHO)
