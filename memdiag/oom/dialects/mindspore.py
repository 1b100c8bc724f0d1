"""MindSpore on Ascend and GPU: the static pool of graph mode, the start-up check, and the dynamic pool of 2.x.

MindSpore reserves its pool (max_device_memory) at the start: "used" below is the size of that pool, not of its
contents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from memdiag.diagnosis import thresholds
from memdiag.oom.dialects.parts import gather, number, shown, stretches
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase
from memdiag.units import GIB

FORMATS = ("mindspore_pool", "mindspore_malloc", "mindspore_misc")
NAMES = {"mindspore": "MindSpore"}
ANCHORS = (
    "outofmemory!!!",
    "mallocdevicememoryfailed",
    "memorynotenough:",
    "totalusedmemstatistics",
    "allocdevicemembyeagerfree",
    "ismorethantotalmemsize",
    "memoryisn'tenoughandallocfailed",
    "memorymallocfailed",
    "cudahostallocfailed",
    "failed,ret[2],outofmemory",
    "mallocforkernel",
)
_STATISTIC = (
    "Memory Statistic:\nDevice HBM memory size: 62432M\nMindSpore Used memory size: 60384M\n"
    "Total Static Memory size: 412M"
)
_SIZES = "Device 3 Device HBM total size:34359738368 Device HBM free size:5368709120"
_LOG = "[ERROR] PRE_ACT(4711,fffd12345678,python):2024-03-04-05:06:07.008.009 [mindspore/ccsrc/x.cc:39] AddMemBlock]"
_SUM = "TotalUsedMemStatistics : 28991029248 plus TotalUsedByEventMemStatistics : 0 and plus alloc size : 1073741824"
EXAMPLES = (
    ("mindspore_pool", f"Out of Memory!!! Request memory size: 64424509440B, {_STATISTIC}"),
    (
        "mindspore_malloc",
        f"Malloc device memory failed, free memory size is less than half of total memory size.{_SIZES}",
    ),
    ("mindspore_misc", f"{_LOG} {_SUM} is more than total mem size : 29464985600."),
    (
        "mindspore_misc",
        "Memory not enough: current free memory size[1048576] is smaller than required size[268435456B]",
    ),
    (
        "mindspore_misc",
        "RuntimeError: Malloc for kernel input failed, Memory isn't enough, node:Default/network/Conv2D-op7",
    ),
    (
        "mindspore_misc",
        "Device(id:2) memory isn't enough and alloc failed, kernel name: Default/MatMul-op1, alloc size: 536870912B.",
    ),
)

_POOL = pattern(r"Out of Memory !{1,3} (?:Request memory size : {requested:bytes} B?)?")
_POOL_CLAUSES = (
    pattern(r"Device (?:HBM|MOC|DDR)? memory size : {total:size}"),
    pattern(r"MindSpore Used memory size : {limit:size}"),
    pattern(r"Total Static Memory size : {static:size}"),
)
_PEAKS = pattern(
    r"peak memory usage \( without fragments \) : {tight:size} Actual peak memory usage \( with fragments \) :"
    r" {loose:size}"
)
_MALLOC = pattern(r"Malloc device memory failed")
_MALLOC_CLAUSES = (
    pattern(r"size \[ {requested:bytes} \]"),
    pattern(r"(?<!\w) Device {device_index:int} (?: Device | Available | may | [.,;] )"),
    pattern(r"total size : {total:bytes}"),
    pattern(r"free size : {free:bytes}"),
)
_MISC = {
    "sum": pattern(
        r"TotalUsedMemStatistics : {allocated:bytes} (?:plus TotalUsedByEventMemStatistics : \d{1,24})? (?:and)?"
        r" plus alloc size : {requested:bytes} is more than total mem size : {limit:bytes}"
    ),
    "eager": pattern(r"AllocDeviceMemByEagerFree failed [,.]? (?: alloc size : {requested:bytes} )?"),
    "enough": pattern(r"Memory not enough : (?:\#umsg\#)?"),
    "free": pattern(
        r"current free memory size \[ {free:bytes} B? \] is smaller than required size \[ {requested:bytes} B? \]"
        r" (?: ,? dynamic offset \[ \d{1,24} \] ,? memory pool total size \[ {limit:bytes} B? \] )?"
    ),
    "device": pattern(r"(?:Device \( id : {device_index:int} \))? memory isn't enough and alloc failed"),
    "kernel": pattern(
        r"Malloc for (?:kernel)? \w{3,20} (?:memory)? failed [,.]? (?: Memory isn't enough)?"
        r" (?: [,.]? node (?:name)? : [\w./-]{1,200} )?"
    ),
    "size": pattern(r"(?<!plus) alloc size : {requested:bytes} B? (?!is)"),
    "reserve": pattern(r"Reserve memory address failed"),
    "driver": pattern(r"cuda(?!HostAlloc)[A-Z]\w{2,40} failed , ret\[2\] , out of memory"),
    "host": pattern(r"cudaHostAlloc failed , ret\[2\] | Out of memory \. Memory malloc failed"),
}
_TELLING = frozenset({"sum", "eager", "enough", "free", "device", "kernel", "driver", "host"})
_PROCESS = pattern(r"\b [A-Z_]{2,20} \( {pid:int} ,[0-9a-f]{6,16}[,.]")
_REACH = 600
_GPU = re.compile(r"device/gpu|GPUMemory|cuda", re.IGNORECASE)
_ASCEND = re.compile(r"ascend|hbm|\bnpu|davinci", re.IGNORECASE)
_RUNTIME = 2  # GiB of a device that MindSpore leaves to the runtime by default


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for head, stop in stretches(text, _POOL, _REACH):
        fields, end = gather(text, head.end(), stop, _POOL_CLAUSES)
        fields = take(head) | fields
        if fields:
            peaks, end_of_peaks = gather(text, head.end(), stop, (_PEAKS,))
            yield _pool(head.start(), max(end, end_of_peaks), fields | _process(text, head.start()), peaks)
    for head, stop in stretches(text, _MALLOC, _REACH):
        fields, end = gather(text, head.end(), stop, _MALLOC_CLAUSES)
        if not text.is_code(head.start()):
            yield _malloc(head.start(), end, fields | _process(text, head.start()))
    yield from _misc(text)


def _pool(start: int, end: int, fields: Fields, peaks: Fields) -> Found:
    """Judges a graph's request to the static pool: either the pool or the device is too small."""
    requested, limit, total = (
        number(fields, "requested_bytes"),
        number(fields, "limit_bytes"),
        number(fields, "total_bytes"),
    )
    size = shown(requested)
    if limit is None or total is None:
        judgement = Judgement("capacity", "low", ("limit",), (phrase("oom_mindspore.why.cut", size=size),))
    elif limit < thresholds.WHOLE_POOL * total and (requested is None or requested < total):
        judgement = Judgement(
            "limit",
            "high",
            ("capacity",),
            (phrase("oom_mindspore.why.pool", size=size, limit=shown(limit), total=shown(total)),),
        )
    else:
        why = phrase(
            "oom_mindspore.why.full",
            size=size,
            limit=shown(limit),
            share=f"{limit / total if total else 1:.0%}",
            total=shown(total),
        )
        over = bool(requested and requested > limit)
        judgement = Judgement("capacity", "high" if over else "medium", ("limit",), (why,))
    judgement = _with_peaks(judgement, peaks, requested, limit)
    more = _memory_fix(total, "whole")
    fixes = (more,) if judgement.verdict == "limit" else (_RECOMPUTE, _offload(total), _moving(total), more)
    return Found(start, end, "mindspore_pool", "mindspore", "npu", fields, judgement, fixes)


def _with_peaks(judgement: Judgement, peaks: Fields, requested: int | None, limit: int | None) -> Judgement:
    """Adds the pool's own statistics: how much of its peak is fragmented."""
    tight, loose = number(peaks, "tight_bytes"), number(peaks, "loose_bytes")
    if tight is None or loose is None:
        return judgement
    lost = max(loose - tight, 0)
    said = phrase("oom_mindspore.why.peaks", loose=shown(loose), lost=shown(lost))
    others = judgement.alternatives
    if requested is not None and limit is not None and lost >= requested // 2 and limit - tight < requested + lost:
        others = ("fragmentation", *others)
    return replace(judgement, alternatives=others, reasons=(*judgement.reasons, said))


def _malloc(start: int, end: int, fields: Fields) -> Found:
    """Judges the start-up: the pool is reserved before anything runs, so other processes hold the missing memory."""
    free, total = number(fields, "free_bytes"), number(fields, "total_bytes")
    if free is not None and total:
        held = shown(max(total - free, 0))
        outside = phrase("oom_mindspore.why.start", free=shown(free), total=shown(total), held=held)
        sure = free < total * thresholds.HALF
        judgement = Judgement(
            "other_process", "high" if sure else "medium", () if sure else ("limit", "capacity"), (outside,)
        )
    else:
        reasons = (phrase("oom_mindspore.why.start.unknown"),)
        judgement = Judgement("other_process", "medium", ("limit", "capacity"), reasons)
    fixes = (_WHO, _memory_fix(free, "free")) if free and free > (_RUNTIME + 1) * GIB else (_WHO,)
    return Found(start, end, "mindspore_malloc", "mindspore", "npu", fields, judgement, fixes)


def _misc(text: Squeezed) -> Iterator[Found]:
    """Yields failures of the dynamic pool, with the lines of one failure grouped."""
    pieces = sorted(
        ((match.start(), kind, match) for kind, regex in _MISC.items() for match in regex.finditer(text.text)),
        key=lambda piece: piece[:2],
    )
    group: list[tuple[str, re.Match[str]]] = []
    for start, kind, match in pieces:
        if group and (start - group[-1][1].end() > _REACH or kind in {name for name, _ in group}):
            yield from _misc_message(text, group)
            group = []
        group.append((kind, match))
    yield from _misc_message(text, group)


def _misc_message(text: Squeezed, group: list[tuple[str, re.Match[str]]]) -> Iterator[Found]:
    kinds = {kind for kind, _ in group}
    if not kinds & _TELLING or text.is_code(group[0][1].start()):
        return
    fields: Fields = {}
    for _, match in group:
        fields = {name: value for name, value in take(match).items() if name != "requested_bytes" or value} | fields
    start, end = group[0][1].start(), max(match.end() for _, match in group)
    fields |= _process(text, start)
    around = max(start - 300, 0)
    # The pool's text is the same on both, and older releases print it more often on GPUs.
    gpu = bool("free" in kinds or _GPU.search(text.text, around, end)) and not _ASCEND.search(text.text, around, end)
    judgement = _misc_judgement(kinds, fields)
    fixes: tuple[LazyFix, ...]
    if judgement.verdict == "host":
        fixes = (_WORKERS,)
    elif "driver" in kinds:
        fixes = (_ROOM, _CARD)
    else:
        fixes = (_memory_fix(None, "more"), _RECOMPUTE, _offload(None))
    yield Found(start, end, "mindspore_misc", "mindspore", "cuda" if gpu else "npu", fields, judgement, fixes)


def _misc_judgement(kinds: set[str], fields: Fields) -> Judgement:
    requested, allocated, limit = (
        number(fields, name) for name in ("requested_bytes", "allocated_bytes", "limit_bytes")
    )
    if "host" in kinds:
        return Judgement("host", "medium", (), (phrase("oom_mindspore.why.pipeline"),))
    if requested is not None and allocated is not None and limit is not None:
        needed = allocated + requested
        reasons = (
            phrase(
                "oom_mindspore.why.sum",
                allocated=shown(allocated),
                requested=shown(requested),
                needed=shown(needed),
                over=shown(needed - limit),
                limit=shown(limit),
            ),
        )
        return Judgement("capacity", "high", ("limit",), reasons)
    if requested is not None:
        free = number(fields, "free_bytes")
        if free is not None and limit is not None:
            reasons = (
                phrase("oom_mindspore.why.left", requested=shown(requested), free=shown(free), limit=shown(limit)),
            )
            return Judgement("capacity", "medium", ("limit", "fragmentation"), reasons)
        why = phrase("oom_mindspore.why.no-room", requested=shown(requested))
        if free is not None:
            why = phrase("oom_mindspore.why.free", requested=shown(requested), free=shown(free))
        return Judgement("capacity", "medium", ("other_process", "limit"), (why,))
    if "driver" in kinds:
        reasons = (phrase("oom_mindspore.why.outside"),)
        return Judgement("unknown", "low", ("capacity", "other_process", "workspace_or_comm"), reasons)
    if "kernel" in kinds:
        reasons = (phrase("oom_mindspore.why.kernel"),)
        return Judgement("capacity", "low", ("unknown", "limit"), reasons)
    return Judgement("unknown", "low", ("capacity", "limit"), (phrase("oom_mindspore.why.grow"),))


def _process(text: Squeezed, start: int) -> Fields:
    """Returns the process in MindSpore's log prefix: "[ERROR] PRE_ACT(4711,ffff12345678,python)"."""
    names = list(_PROCESS.finditer(text.text, max(start - 400, 0), start))
    return take(names[-1]) if names else {}


def _memory_fix(available: int | None, which: str) -> LazyFix:
    """Returns how to set the pool's size, leaving enough for the runtime."""
    size = f"{max(available // GIB - _RUNTIME, 1)}GB" if available else "60GB"
    return LazyFix(
        f"oom_mindspore.pool.{which}",
        "code",
        f'mindspore.set_context(max_device_memory="{size}")',
        {"size": size, "runtime": _RUNTIME},
        when="oom_mindspore.pool.when" if available else "oom_mindspore.pool.when.64",
        caveat="oom_mindspore.pool.caveat",
    )


def _moving(available: int | None) -> LazyFix:
    """Returns how to estimate the cost of offloading to host and disk, within the pool's limit."""
    card = available // GIB if available else 64
    return LazyFix(
        "oom_mindspore.moving",
        "record",
        f"memdiag record --phantom npu:910b-64g,capacity={4 * card}GiB -- python train.py\n"
        f"memdiag simulate --policy offload --max-device-memory {max(card - _RUNTIME, 1)}GB",
    )


def _offload(available: int | None) -> LazyFix:
    """Returns how to enable MindSpore's memory offload, for a pool of ``available`` bytes."""
    size = f"{max(available // GIB - _RUNTIME, 1)}GB" if available else "30GB"
    return LazyFix(
        "oom_mindspore.offload",
        "code",
        'mindspore.set_context(mode=mindspore.GRAPH_MODE, jit_level="O0", memory_offload="ON", '
        f'max_device_memory="{size}")\n'
        'mindspore.set_offload_context(offload_config={"offload_param": "cpu", "auto_offload": True, '
        '"offload_cpu_size": "512GB"})',
    )


_WHO = LazyFix("oom_shared.who", "code", "npu-smi info", when="oom_ascend.who.when")
_CARD = LazyFix("oom_shared.who", "code", "nvidia-smi", when="oom_mindspore.who.gpu")
_ROOM = LazyFix("oom_mindspore.room", "code", 'mindspore.set_context(max_device_memory="8GB")')
_RECOMPUTE = LazyFix(
    "remedies.recompute",
    "code",
    "cell.recompute()",
    when="oom_mindspore.recompute.when",
    caveat="oom_mindspore.recompute.caveat",
)
_WORKERS = LazyFix("oom_mindspore.workers", "code", "mindspore.dataset.config.set_prefetch_size(2)")
