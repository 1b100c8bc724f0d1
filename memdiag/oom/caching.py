"""The grammar of caching-allocator messages.

PyTorch on CUDA, HIP and XPU, torch_npu, torch_musa and torch_mlu print the same clauses in two generations.

The first has clauses in brackets ("(GPU 0; 14.76 GiB total capacity; 8.77 GiB already allocated; …)"), the second has
sentences ("GPU 0 has a total capacity of …", since PyTorch 2.1). A message is the collection of its clauses: a clause
that was cut off, elided or reordered only affects its own field. A repeated clause, or one far after the last, begins
another message.

Marks of a message (``Found.marks``), for verdict and advice:

* ``hint:max_split_size_mb``, ``hint:expandable_segments``, ``hint:empty_cache``, ``hint:task_queue_enable``: suggested
  by the message;
* ``conf-name:PYTORCH_ALLOC_CONF`` and similar: the environment variable named in it;
* ``exception:OutOfMemoryError`` or ``exception:RuntimeError``: how it was raised;
* ``generation:…``: the first release with this wording. Of PyTorch: ``0.4`` (cached), ``1.4`` (reserved), ``1.10``
  (first hint), ``2.1`` (sentences), ``2.2`` (hint at expandable segments), ``2.5`` (torch.OutOfMemoryError), ``2.9``
  (PYTORCH_ALLOC_CONF). Of torch_npu: ``npu-1.8`` (cached), ``npu-1.11`` (active, reserved), ``npu-26.0`` (").If"
  without a blank, or torch.OutOfMemoryError).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, blurred, pattern, take
from memdiag.results.oom import Judgement
from memdiag.text import phrase
from memdiag.units import format_bytes


def _clause(text: str) -> re.Pattern[str]:
    """Compiles a clause that also matches text recognised from a photograph ("unalIocated")."""
    return pattern(blurred(text))


_DEVICE = r"(?P<word>GPU|NPU|XPU|HPU|MLU|device) (?:(?:cuda|hip|npu|xpu)? :)? {device_index:int}"

# Starts of a message. "Tried to allocate" also occurs in messages of others (MPS, CPU, workspaces), identified by the
# preceding words.
_HEADS = {
    "head": _clause(r"(?P<backend>CUDA|HIP|XPU|NPU|MUSA|MLU) out of memory"),
    "tried": _clause(
        r"(?<!Allocator)(?<!you)(?<!\)\.) Tried to allocated? :? {requested:size} (?!on(?:private|shared)pool)"
    ),
    "workspace": _clause(r"(?:NPU)? WorkspaceAllocator tried to allocated? :? {requested:size}"),
    # Intel's extension for PyTorch, before it asks the driver.
    "piece": _clause(r"platform can not allocate memory block with size larger than \d{1,3} GB !?"),
}
# Clauses that only such a message has, so they count without a head.
_STRONG = {
    "total": _clause(r"{total:size} total capaci?ty"),
    "allocated": _clause(r"{allocated:size} already allocated"),
    "active": _clause(r"{active:size} current(?:ly)? activ(?:e|ate)d?"),
    "reserved": _clause(r"{reserved:size} reserved in total by PyTorch"),
    "capacity": _clause(_DEVICE + r" has a total capaci?ty of (?:{total:size})?"),
    "this": _clause(r"this process has {process:size} memory in use"),
    "process": _clause(r"Process {pid:int} has {process:size} memory in use"),
    "by_pytorch": _clause(r"{allocated:size} is allocated by PyTorch"),
    "rejected": _clause(r"Allocation was preemptively rejected (?: .{0,80}? Requested size : {requested:size} )?"),
    "unallocated": _clause(r"{unallocated:size} is reserved by PyTorch but unallocated"),
    "private": _clause(r"{private_pool:size} allocated in private pools (?:\( e\.g\. , (?P<graphs>CUDA|HIP) Graphs)?"),
}
# Clauses whose words are too common on their own.
_WEAK = {
    "device": _clause(r"\(" + _DEVICE + r" (?!\d)"),
    "free": _clause(r"{free:size} free (?![a-z])"),
    "is_free": _clause(r"of which {free:size} is free"),
    "sum": _clause(r"{total:size} total (?=[;,])"),
    "allowed": _clause(r"{limit:size} allowed (?![a-z:])"),
    "cached": _clause(r"{cached:size} cached (?![a-z])"),
}
# Words without a number: they extend a message and give its marks.
_WORDS = {
    "hint_reserved": _clause(
        r"If reserved memory is (?:>>|&gt;&gt;) allocated memory (?:try setting (?:\w{0,40} = )? max_split_size_mb)?"
    ),
    "hint_unallocated": _clause(
        r"If reserved but unallocated memory is large (?:try setting \w{0,40} (?:=expandable_segments:True)?)?"
    ),
    "hint_empty": _clause(r"Please use `?'? empty_cache"),
    "see": _clause(r"See documentation for Memory Management (?:and \w{0,40} | \(https?://[^\s)]{0,160}\)?)?"),
}
_PIECES = {**_HEADS, **_STRONG, **_WEAK, **_WORDS}
_LOOKALIKES = str.maketrans("1|", "ii")
# Plain text that occurs in every message: its clauses are searched only near it.
_SPOTS = re.compile(
    blurred(
        "outofmemory|triedtoallocate|memoryblockwithsize|totalcapac|alreadyallocated|reservedintotalby"
        "|allocatedbypytorch|reservedbypytorch|memoryinuse"
        "|privatepools"
    ),
    re.IGNORECASE,
)
_AROUND = 800
_REACH = 700  # squeezed characters between two clauses of a message: a few unrelated lines

_BARE = pattern(
    r"(?P<backend>CUDA|HIP|XPU|NPU|MUSA|MLU) out of memory [.!]? "
    r"(?![:,.]? (?:Tried to allocate more than|device _?id|Allocation was|NPUWorkspace))"
)
_RAISED = re.compile(r"(?:Error|Exception|error)['\"]?[:(]{1,2}['\"]?$")
_CONF_NAME = re.compile(r"PYTORCH_(?:CUDA_|HIP_|NPU_|MUSA_|MLU_)?ALLOC_CONF", re.IGNORECASE)
_EXCEPTION = re.compile(r"(OutOfMemoryError|RuntimeError)[^A-Za-z0-9]{0,8}$", re.IGNORECASE)
_BRACKETED = frozenset({"total", "sum", "allocated", "active", "reserved", "cached", "free", "device"})


@dataclass(slots=True)
class Gathered:
    """The clauses of one message.

    Attributes:
        start: Start in the squeezed text.
        end: End in the squeezed text.
        kinds: Names of its clauses, in the order found.
        matches: The clauses.
    """

    start: int
    end: int
    kinds: list[str] = field(default_factory=list)
    matches: list[re.Match[str]] = field(default_factory=list)

    def has(self, *kinds: str) -> bool:
        """Returns whether it has one of these clauses."""
        return any(kind in self.kinds for kind in kinds)

    def first(self, kind: str) -> re.Match[str] | None:
        """Returns a clause of a kind, or None."""
        return self.matches[self.kinds.index(kind)] if kind in self.kinds else None

    @property
    def num_processes(self) -> int:
        """Returns how many processes it lists, including the failing one."""
        return self.kinds.count("process") + self.kinds.count("this")

    @property
    def counts(self) -> bool:
        """Returns whether it is complete enough.

        It needs a head and a number, or two numbers in words that only these messages have.
        """
        numbers = [kind for kind in self.kinds if kind not in _WORDS and kind not in {"head", "piece"}]
        if self.has("head", "piece"):
            return bool(numbers)
        return len(numbers) > 1 and any(kind in _STRONG or kind == "workspace" for kind in numbers)


def messages(text: Squeezed, *backends: str) -> Iterator[tuple[Gathered, Found]]:
    """Yields the messages of some backends in ``text``: the clauses, and the message without the name of its form."""
    for gathered in gather(text.text):
        if text.is_code(gathered.start):
            continue
        backend = _backend_of(gathered, text.text)
        if backend in backends:
            framework = "torch_npu" if backend == "npu" else "pytorch"
            fields = _fields_of(gathered)
            marks = _marks_of(gathered, text.text, backend)
            yield gathered, Found(gathered.start, gathered.end, "", framework, backend, fields, marks=marks)


@lru_cache(maxsize=1)
def gather(text: str) -> tuple[Gathered, ...]:
    """Finds the clauses in squeezed text and groups those of one message."""
    pieces = sorted(_clauses(text), key=lambda piece: piece[:3])
    groups: list[Gathered] = []
    before: tuple[int, int, str, re.Match[str]] | None = None
    for start, minus_end, kind, match in pieces:
        last = groups[-1] if groups else None
        if last is None or _begins(last, start, kind):
            if kind in _WEAK or kind in _WORDS:
                before = (start, minus_end, kind, match)
                continue
            last = Gathered(start, start)
            if before and before[2] == "device" and text[-before[1] : start] in {";", ","}:
                last = Gathered(before[0], start, [before[2]], [before[3]])
            groups.append(last)
        last.kinds.append(kind)
        last.matches.append(match)
        last.end = max(last.end, -minus_end)
    return tuple(group for group in groups if group.counts)


def _clauses(text: str) -> Iterator[tuple[int, int, str, re.Match[str]]]:
    """Yields the clauses with their positions: start, end (negative, so that the longest comes first) and kind."""
    stretches: list[list[int]] = []
    for spot in _SPOTS.finditer(text):
        start, end = max(spot.start() - _AROUND, 0), spot.end() + _AROUND
        if stretches and start <= stretches[-1][1]:
            stretches[-1][1] = end
        else:
            stretches.append([start, end])
    for start, end in stretches:
        for kind, regex in _PIECES.items():
            for match in regex.finditer(text, start, end):
                yield match.start(), -match.end(), kind, match


def bare_heads(text: Squeezed, *backends: str) -> Iterator[tuple[int, int]]:
    """Yields the positions of messages that consist of a head only ("RuntimeError: CUDA out of memory.").

    A sentence about running out of memory does not count: the head must be an exception's text, or a separate line.
    """
    heads = [head for head in _BARE.finditer(text.text) if head["backend"].lower() in backends]
    starts = {group.start for group in gather(text.text)} if heads else set()
    for head in heads:
        if head.start() in starts or text.is_code(head.start()):
            continue
        start, end = text.line_span(head.start())
        if head.end() < end and text.text[head.end() - 1 : head.end() + 1].isalpha():
            continue  # "CUDA out of memory occurred when …": a sentence about it
        if _RAISED.search(text.text, max(head.start() - 40, 0), head.start()) or (
            start == head.start() and end <= head.end()
        ):
            yield head.start(), head.end()


def _begins(last: Gathered, start: int, kind: str) -> bool:
    """Returns whether a clause begins another message than the last one's."""
    if kind in {"head", "piece"} or start - last.end > _REACH:
        return True
    if kind == "process":
        return False
    same = {kind, {"capacity": "total", "total": "capacity", "free": "is_free", "is_free": "free"}.get(kind, kind)}
    return kind not in _WORDS and any(one in last.kinds for one in same)


def _backend_of(gathered: Gathered, text: str) -> str:
    """Returns the backend named in the head, else the one implied by another word, else CUDA."""
    head = gathered.first("head")
    if head:
        return str(head["backend"]).lower().translate(_LOOKALIKES)
    words = {str(match.groupdict().get("word") or "").upper() for match in gathered.matches}
    graphs = gathered.first("private")
    conf = _CONF_NAME.search(text, gathered.start, gathered.end)
    if "NPU" in words or gathered.has("active", "workspace"):
        return "npu"
    if "XPU" in words or gathered.has("piece"):
        return "xpu"
    if conf and (other := re.search("MUSA|MLU", conf[0].upper())):
        return other[0].lower()
    if "MLU" in words:
        return "mlu"
    return (
        "hip" if (graphs and str(graphs["graphs"]).upper() == "HIP") or (conf and "HIP" in conf[0].upper()) else "cuda"
    )


def _fields_of(gathered: Gathered) -> Fields:
    """Returns the printed values.

    Processes listed with a "this process" are other processes; a single one without it is the failing process.
    """
    fields: Fields = {}
    listed: list[list[object]] = []
    for kind, match in zip(gathered.kinds, gathered.matches, strict=True):
        taken = take(match)
        if kind == "process":
            if "process_bytes" in taken:
                listed.append([taken["pid"], taken["process_bytes"]])
        else:
            for name, value in taken.items():
                fields.setdefault(name, value)
    if gathered.has("this"):
        return {**fields, "other_processes": listed} if listed else fields
    if len(listed) == 1:
        return {**fields, "pid": listed[0][0], "process_bytes": listed[0][1]}
    return {**fields, "processes": listed} if listed else fields


def _marks_of(gathered: Gathered, text: str, backend: str) -> frozenset[str]:
    """Returns the marks of the wording, besides numbers."""
    own = text[gathered.start : gathered.end]
    marks = {f"conf-name:{name.upper()}" for name in _CONF_NAME.findall(own)}
    if gathered.has("hint_empty"):
        marks.add("hint:empty_cache")
    marks |= {f"hint:{key}" for key in ("max_split_size_mb", "expandable_segments") if key in own.lower()}
    raised = _EXCEPTION.search(text, max(gathered.start - 60, 0), gathered.start)
    if raised:
        marks.add("exception:OutOfMemoryError" if raised[1].lower() == "outofmemoryerror" else "exception:RuntimeError")
    generation = _npu_generation(gathered, own, marks) if backend == "npu" else _generation(gathered, text, marks)
    if backend in {"musa", "mlu"}:  # their wordings do not follow PyTorch's releases
        generation = ""
    return frozenset(marks | ({f"generation:{generation}"} if generation else set()))


def _generation(gathered: Gathered, text: str, marks: set[str]) -> str:
    """Returns the first release of PyTorch with such messages, or "" if the remaining words do not show it."""
    if "conf-name:PYTORCH_ALLOC_CONF" in marks:
        return "2.9"
    if gathered.has("capacity", "this", "process", "by_pytorch", "unallocated", "private"):
        if "torch.outofmemoryerror" in text[max(gathered.start - 40, 0) : gathered.start].lower():
            return "2.5"
        return "2.2" if "hint:expandable_segments" in marks else "2.1"
    if gathered.has("cached"):
        return "0.4"
    if "hint:max_split_size_mb" in marks:
        return "1.10"
    return "1.4" if gathered.has("reserved") else ""


def _npu_generation(gathered: Gathered, own: str, marks: set[str]) -> str:
    """Returns the first release of torch_npu with such messages."""
    if ").ifreserved" in own.lower() or "exception:OutOfMemoryError" in marks:
        return "npu-26.0"
    if gathered.has("active", "reserved"):
        return "npu-1.11"
    return "npu-1.8" if gathered.has("cached") else ""


def bare() -> Judgement:
    """Returns the cause of a message that consists of its head only."""
    return Judgement("unknown", "low", ("capacity", "other_process"), (phrase("cause.bare"),))


def rejection(found: Found) -> Judgement:
    """Returns the cause of a refusal in advance: the request would exceed the per-process memory fraction."""
    requested = found.fields.get("requested_bytes")
    reason = (
        phrase("cause.rejected.size", size=format_bytes(requested))
        if isinstance(requested, int)
        else phrase("cause.rejected")
    )
    return Judgement("limit", "high", ("capacity", "fragmentation"), (reason, phrase("cause.rejected.early")))


def is_bracketed(gathered: Gathered) -> bool:
    """Returns whether the clauses belong to the first generation, in brackets."""
    return any(kind in _BRACKETED for kind in gathered.kinds) and not gathered.has(
        "capacity", "this", "process", "by_pytorch", "unallocated"
    )
