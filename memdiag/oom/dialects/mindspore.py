"""MindSpore on Ascend and GPU: the static pool of graph mode, the check at start-up, and the dynamic pool of 2.x.

MindSpore takes its pool (max_device_memory) from the driver at the start: "used" below is the size of that pool, not of what is in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from memdiag.findings import Fix
from memdiag.oom.dialects.parts import gather, number, shown, stretches
from memdiag.oom.model import Fields, Found, Judgement
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.units import GIB

FORMATS = ("mindspore_pool", "mindspore_malloc", "mindspore_misc")
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
_STATISTIC = "Memory Statistic:\nDevice HBM memory size: 62432M\nMindSpore Used memory size: 60384M\nTotal Static Memory size: 412M"
_SIZES = "Device 3 Device HBM total size:34359738368 Device HBM free size:5368709120"
_LOG = "[ERROR] PRE_ACT(4711,fffd12345678,python):2024-03-04-05:06:07.008.009 [mindspore/ccsrc/x.cc:39] AddMemBlock]"
_SUM = "TotalUsedMemStatistics : 28991029248 plus TotalUsedByEventMemStatistics : 0 and plus alloc size : 1073741824"
EXAMPLES = (
    ("mindspore_pool", f"Out of Memory!!! Request memory size: 64424509440B, {_STATISTIC}"),
    ("mindspore_malloc", f"Malloc device memory failed, free memory size is less than half of total memory size.{_SIZES}"),
    ("mindspore_misc", f"{_LOG} {_SUM} is more than total mem size : 29464985600."),
    ("mindspore_misc", "Memory not enough: current free memory size[1048576] is smaller than required size[268435456B]"),
    ("mindspore_misc", "RuntimeError: Malloc for kernel input failed, Memory isn't enough, node:Default/network/Conv2D-op7"),
    ("mindspore_misc", "Device(id:2) memory isn't enough and alloc failed, kernel name: Default/MatMul-op1, alloc size: 536870912B."),
)

_POOL = pattern(r"Out of Memory !{1,3} (?:Request memory size : {requested:bytes} B?)?")
_POOL_CLAUSES = (
    pattern(r"Device (?:HBM|MOC|DDR)? memory size : {total:size}"),
    pattern(r"MindSpore Used memory size : {limit:size}"),
    pattern(r"Total Static Memory size : {static:size}"),
)
_PEAKS = pattern(r"peak memory usage \( without fragments \) : {tight:size} Actual peak memory usage \( with fragments \) : {loose:size}")
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
        r"Malloc for (?:kernel)? \w{3,20} (?:memory)? failed [,.]? (?: Memory isn't enough)? (?: [,.]? node (?:name)? : [\w./-]{1,200} )?"
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
_NEARLY = 0.85  # of the card: a pool as large as this leaves only what the runtime itself needs
_RUNTIME = 2  # GiB of a card that MindSpore leaves to the runtime when nothing is set


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
    """Judges a graph's request of the static pool: is the pool small, or the card?"""
    requested, limit, total = number(fields, "requested_bytes"), number(fields, "limit_bytes"), number(fields, "total_bytes")
    asked = f"The graph asks for {shown(requested)}"
    if limit is None or total is None:
        judgement = Judgement("capacity", "low", ("limit",), (f"{asked}; how large the pool is was cut off.",))
    elif limit < _NEARLY * total and (requested is None or requested < total):
        judgement = Judgement(
            "limit", "high", ("capacity",), (f"{asked} of a pool set to {shown(limit)}, on a card of {shown(total)}: the rest lies idle.",)
        )
    else:
        of_all = f"; the pool of {shown(limit)} is {limit / total:.0%} of the card of {shown(total)}" if total else ""
        over = bool(requested and requested > limit)
        judgement = Judgement("capacity", "high" if over else "medium", ("limit",), (f"{asked}{of_all}, and the runtime needs some too.",))
    judgement = _with_peaks(judgement, peaks, requested, limit)
    more = _memory_fix(total, "Let MindSpore use the whole card")
    fixes = (more,) if judgement.verdict == "limit" else (_RECOMPUTE, _offload(total), _moving(total), more)
    return Found(start, end, "mindspore_pool", "mindspore", "npu", fields, judgement, fixes)


def _with_peaks(judgement: Judgement, peaks: Fields, requested: int | None, limit: int | None) -> Judgement:
    """Adds what the pool's own statistics say: how much of its peak lay in pieces."""
    tight, loose = number(peaks, "tight_bytes"), number(peaks, "loose_bytes")
    if tight is None or loose is None:
        return judgement
    lost = max(loose - tight, 0)
    said = f"The pool's peak was {shown(loose)}, of which {shown(lost)} lay in pieces between what was in use."
    others = judgement.alternatives
    if requested is not None and limit is not None and lost >= requested // 2 and limit - tight < requested + lost:
        others = ("fragmentation", *others)
    return replace(judgement, alternatives=others, reasons=(*judgement.reasons, said))


def _malloc(start: int, end: int, fields: Fields) -> Found:
    """Judges the start-up: the pool is taken before anything runs, so what is missing is somebody else's."""
    free, total = number(fields, "free_bytes"), number(fields, "total_bytes")
    if free is not None and total:
        held = shown(max(total - free, 0))
        outside = f"{shown(free)} of {shown(total)} were free before MindSpore had taken anything: {held} are held by others."
        sure = free < total / 2
        judgement = Judgement("other_process", "high" if sure else "medium", () if sure else ("limit", "capacity"), (outside,))
    else:
        reasons = (
            "The pool could not be taken at the start, before anything ran: other processes hold the card, or it is larger than the card.",
        )
        judgement = Judgement("other_process", "medium", ("limit", "capacity"), reasons)
    fixes = (_WHO, _memory_fix(free, "Or take no more than is free")) if free and free > (_RUNTIME + 1) * GIB else (_WHO,)
    return Found(start, end, "mindspore_malloc", "mindspore", "npu", fields, judgement, fixes)


def _misc(text: Squeezed) -> Iterator[Found]:
    """Yields failures of the dynamic pool, whose lines of one failure are put together."""
    pieces = sorted(
        ((match.start(), kind, match) for kind, regex in _MISC.items() for match in regex.finditer(text.text)), key=lambda piece: piece[:2]
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
    # The pool's text is the same on both, and older releases print it on GPUs more often.
    gpu = bool("free" in kinds or _GPU.search(text.text, around, end)) and not _ASCEND.search(text.text, around, end)
    judgement = _misc_judgement(kinds, fields)
    fixes: tuple[Fix, ...]
    if judgement.verdict == "host":
        fixes = (_WORKERS,)
    elif "driver" in kinds:
        fixes = (_ROOM, _CARD)
    else:
        fixes = (_memory_fix(None, "Give the pool more of the card"), _RECOMPUTE, _offload(None))
    yield Found(start, end, "mindspore_misc", "mindspore", "cuda" if gpu else "npu", fields, judgement, fixes)


def _misc_judgement(kinds: set[str], fields: Fields) -> Judgement:
    requested, allocated, limit = (number(fields, name) for name in ("requested_bytes", "allocated_bytes", "limit_bytes"))
    if "host" in kinds:
        return Judgement("host", "medium", (), ("The data pipeline could not pin memory of the host for its queue.",))
    if requested is not None and allocated is not None and limit is not None:
        needed = allocated + requested
        over = f"{shown(needed - limit)} more than the pool of {shown(limit)}"
        reasons = (f"{shown(allocated)} in use + {shown(requested)} asked for = {shown(needed)}, {over}.",)
        return Judgement("capacity", "high", ("limit",), reasons)
    if requested is not None:
        free = number(fields, "free_bytes")
        if free is not None and limit is not None:
            reasons = (f"{shown(requested)} asked for; of the pool of {shown(limit)}, {shown(free)} are left.",)
            return Judgement("capacity", "medium", ("limit", "fragmentation"), reasons)
        rest = f"; the pool has {shown(free)} free" if free is not None else "; the pool had no room"
        return Judgement("capacity", "medium", ("other_process", "limit"), (f"{shown(requested)} asked for{rest}.",))
    if "driver" in kinds:
        reasons = ("The driver refused what MindSpore takes beside its pool (streams, libraries); no number is printed.",)
        return Judgement("unknown", "low", ("capacity", "other_process", "workspace_or_comm"), reasons)
    if "kernel" in kinds:
        reasons = ("The pool had no room for what a kernel takes or makes; no number is printed.",)
        return Judgement("capacity", "low", ("unknown", "limit"), reasons)
    return Judgement("unknown", "low", ("capacity", "limit"), ("MindSpore's pool could not grow; no number is printed.",))


def _process(text: Squeezed, start: int) -> Fields:
    """Returns the process that MindSpore's log names before a message: "[ERROR] PRE_ACT(4711,ffff12345678,python)"."""
    names = list(_PROCESS.finditer(text.text, max(start - 400, 0), start))
    return take(names[-1]) if names else {}


def _memory_fix(available: int | None, title: str) -> Fix:
    """Returns how to set the pool's size, leaving the runtime what it needs."""
    size = f"{max(available // GIB - _RUNTIME, 1)}GB" if available else "60GB"
    card = "MindSpore" if available else "MindSpore on a card of 64 GB; 30GB on one of 32 GB"
    return Fix(
        title,
        "code",
        f'mindspore.set_context(max_device_memory="{size}")',
        f'{card}; mindspore.runtime.set_memory(max_size="{size}") since 2.5',
        f"the runtime and HCCL need about {_RUNTIME} GB beside the pool.",
    )


def _moving(available: int | None) -> Fix:
    """Returns how to see what moving to the host and to disk would take, within what the pool may hold."""
    card = available // GIB if available else 64
    return Fix(
        "See what moving to the host and to disk would take, before anything is changed",
        "record",
        f"memdiag record --phantom npu:910b-64g,capacity={4 * card}GiB -- python train.py\n"
        f"memdiag simulate --policy offload --max-device-memory {max(card - _RUNTIME, 1)}GB",
        "the same model in PyTorch, recorded on a simulated device",
        "MindSpore itself is not recorded, and its graph may use more or less; the plan ends in settings for set_offload_context",
    )


def _offload(available: int | None) -> Fix:
    """Returns how to turn on MindSpore's memory offload, for a pool of so many bytes."""
    size = f"{max(available // GIB - _RUNTIME, 1)}GB" if available else "30GB"
    return Fix(
        "Turn on memory offload, which keeps parameters in host memory and swaps what is idle",
        "code",
        f'mindspore.set_context(mode=mindspore.GRAPH_MODE, jit_level="O0", memory_offload="ON", max_device_memory="{size}")\n'
        'mindspore.set_offload_context(offload_config={"offload_param": "cpu", "auto_offload": True, "offload_cpu_size": "512GB"})',
        "MindSpore in graph mode with jit_level O0, until 2.5",
        "Copies to and from the host may become the slowest part.",
    )


_WHO = Fix("See who holds the card", "code", "npu-smi info", "Ascend", "In a container, processes of others are listed on the host only.")
_CARD = Fix("See who holds the card", "code", "nvidia-smi", "MindSpore on GPUs", "")
_ROOM = Fix(
    "Leave more of the card outside MindSpore's pool",
    "code",
    'mindspore.set_context(max_device_memory="8GB")',
    'MindSpore; mindspore.runtime.set_memory(max_size="8GB") since 2.5',
    "The pool gets smaller by as much.",
)
_RECOMPUTE = Fix(
    "Recompute instead of keeping activations",
    "code",
    "cell.recompute()",
    "MindSpore, for the largest cells",
    "The backward pass takes longer; a smaller batch_size is the other way.",
)
_WORKERS = Fix(
    "Prefetch less",
    "code",
    "mindspore.dataset.config.set_prefetch_size(2)",
    "MindSpore's data pipeline",
    "The device may wait for data.",
)
