"""Messages of CANN, the software below every framework on Ascend, when the device is full.

They are error codes, driver lines, and lines that name the process.

Several layers report one failure, each in its own words and often all at once: the operator library (207001), the
runtime (EL0004), HCCL (EI0011, EI0007), the driver (devmm, errno 12), and the framework's trailer with process, device
and rank. ``blocks`` groups the lines of one failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from memdiag.oom.model import Fields
from memdiag.oom.squeezed import Squeezed, pattern, take

# The end of every torch_npu exception: who raised it, and the kind of failure.
TRAILER = pattern(r"\( PID:{pid:int},Device:{device_index:int},RankID:(?P<rank>-?\d{1,9})\) ERR\d{5}")

# Lines that show that memory was the cause.
_SAYS = {
    "el0004": pattern(
        r"(?:Memory_Allocation_Failure \( EL0004\) | EL0004 \)? : (?=.{0,80}Failed to allocate)) :?"
        r" (?:\[PID:{pid:int}\])?"
    ),
    "hccl_code": pattern(r"EI(?:0011|0007) \)? : (?:\[PID:{pid:int}\])? (?=.{0,80}Failed to allocate)"),
    "hccl_resource": pattern(r"Failed to allocate resource\[\w{1,40}\] with info"),
    "hccl_size": pattern(r"Failed to allocate \[ size: .{1,120} bytes of NPU memory"),
    "code": pattern(
        r"(?:error code (?:is)? :? | (?:runtime)? result = | failed [:,]? (?:error)? (?:code)? [:=]? | ret \[? [=:]? ) "
        r"207001 (?!\d)"
    ),
    "malloc": pattern(r"(?:aclrt|rt)Malloc\w{0,20} (?:fail(?:ed)? | execute failed)"),
    "device_malloc": pattern(r"(?<!M) alloc(?:ate)? device memory failed"),
    "driver": pattern(r"driver error : out of memory"),
    "hal": pattern(r"hal(?:Mem|Host)\w{2,24} (?:failed|error|fail) (?=.{0,200}? drvRetCode = 6 (?!\d))"),
    "devmm": pattern(r"\[drv\]\[devmm\]\[ \w{1,60} \d{1,6} \] <errno:12,"),
    "module": pattern(r"reason=\[ module new memory error"),
}
# Lines with more details.
_TELLS = {
    "trailer": TRAILER,
    "pid": pattern(r"\[PID:{pid:int}\]"),
    "size": pattern(r"(?:\bsize|count|alloc_size|with info \[ size) [:=] {requested:bytes} (?![\d.]|[KMG])"),
    "device": pattern(
        r"(?:(?:device_id|deviceid|devid|device|deviceLogicId) [:=] | device_id) {device_index:int} (?!\d)"
    ),
    "opened": pattern(r"open device {device_index:int} failed"),
    "rank": pattern(r"NPU function error | HCCL function error"),
}
_PIECES = {**_SAYS, **_TELLS}
_REACH = 700  # squeezed characters between two lines of a failure
_BEFORE = 250  # between a line with details and the first line that shows memory as the cause

_HCCL = re.compile(
    r"hccl(?:function|alloc|all|comm|broadcast|send|recv|reduce|group|get|create|init|scatter|gather|barrier)",
    re.IGNORECASE,
)
_NO_CONTEXT = re.compile(
    r"aclrtSetDevice|rtSetDevice|opendevice\d+failed|FailtoinitMemoryPoolManager|aclInit|deviceretainerror",
    re.IGNORECASE,
)
_LAUNCH = re.compile(
    r"KernelLaunch|modulenewmemory|rtRegisterAllKernel|rtDevBinary|rtBinaryLoad|loadmodelfail", re.IGNORECASE
)
_OPERATOR = re.compile(
    r"ExecuteOp|Executeopfailed|purpose:pagecaching|requestedbyGEmodule|GEdevice_allocator", re.IGNORECASE
)


@dataclass(slots=True)
class FailureLines:
    """The lines of one failure.

    Attributes:
        start: Start in the squeezed text.
        end: End in the squeezed text.
        key: Speaker of the lines, or "" if no line names one.
        fields: Printed values.
        kinds: Kinds of its lines.
    """

    start: int
    end: int
    key: str
    fields: Fields = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)

    def is_hccl(self, text: str) -> bool:
        """Returns whether the memory was requested for HCCL."""
        return bool(
            {"hccl_code", "hccl_resource", "hccl_size"} & self.kinds
            or _HCCL.search(text, max(self.start - 200, 0), self.end)
        )

    def stage(self, text: str) -> str:
        """Returns what failed: "device" (opening it), "launch" (of a kernel), "operator" (its own memory), or ""."""
        start = max(self.start - _BEFORE, 0)
        for name, words in (("device", _NO_CONTEXT), ("launch", _LAUNCH), ("operator", _OPERATOR)):
            if words.search(text, start, self.end + 150):
                return name
        return ""


@lru_cache(maxsize=1)
def blocks(text: Squeezed) -> tuple[FailureLines, ...]:
    """Returns the device memory failures that CANN reports in ``text``."""
    return tuple(block for block in _blocks(text) if block.kinds & set(_SAYS) and not text.is_code(block.start))


def _blocks(text: Squeezed) -> Iterator[FailureLines]:
    """Yields the lines in groups, including those of other failures."""
    if not any(regex.search(text.text) for regex in _SAYS.values()):
        return
    pieces = sorted(
        ((match.start(), kind, match) for kind, regex in _PIECES.items() for match in regex.finditer(text.text)),
        key=lambda p: p[:2],
    )
    block: FailureLines | None = None
    for start, kind, match in pieces:
        key = text.line_at(start).key
        taken = _taken(kind, match)
        if block is None or _is_another(block, start, key, taken):
            if block:
                yield block
            block = FailureLines(start, start, key)
        block.key = block.key or key
        block.end = max(block.end, match.end())
        block.kinds.add(kind)
        block.fields = taken | block.fields
    if block:
        yield block


def tail(text: Squeezed, end: int, following: Iterable[FailureLines], reach: int = 500) -> int:
    """Returns the end of a message with CANN's following lines about the same failure.

    They must have the same speaker, or none.
    """
    key = text.line_at(max(end - 1, 0)).key
    for block in following:
        if end <= block.start <= end + reach and block.key in {"", key}:
            end = block.end
    return end


def _taken(kind: str, match: re.Match[str]) -> Fields:
    """Returns the fields of a line; a rank of -1 and a size of 0 count as missing."""
    fields = {name: value for name, value in take(match).items() if name != "requested_bytes" or value}
    if kind == "trailer" and int(match["rank"]) >= 0:
        fields["rank"] = int(match["rank"])
    return fields


def _is_another(block: FailureLines, start: int, key: str, taken: Fields) -> bool:
    """Returns whether a line belongs to another failure than the block's."""
    says = bool(block.kinds & set(_SAYS))
    if start - block.end > (_REACH if says else _BEFORE) or (key and block.key and key != block.key):
        return True
    return any(block.fields.get(name, taken[name]) != taken[name] for name in ("pid",) if name in taken)
