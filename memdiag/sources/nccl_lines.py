"""Lines of the log of NCCL and RCCL: which allocation, free or communicator a line is about.

The wordings are those of NCCL 2.3 to 2.30 (``alloc.h``, ``init.cc``, ``p2p.cc``, ``nvls.cc``) and of RCCL. Frees are
logged at the level TRACE only, which released builds do not contain; the end of a communicator is logged at INFO.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEAD = re.compile(
    r"(?P<host>[A-Za-z0-9][\w.-]{0,254}):(?P<pid>\d{1,10}):(?P<thread>\d{1,10}) \[(?P<device>\d{1,4})\] "
    r"(?:\d{1,20}\.\d{1,9} \S{1,200} )?NCCL (?:INFO|TRACE) "
)
_POINTER = r"0x(?P<pointer>[0-9a-fA-F]{1,16})"
_PLACE = r"(?:(?P<file>[\w./+-]{1,200}):(?P<line>\d{1,6}) (?:\((?P<function>[^()]{1,200})\) )?)?"
_ALLOC = re.compile(
    _PLACE + r"(?P<what>Cuda (?:Alloc|Calloc|CallocAsync)|CuMem Alloc|Persistent cudaMallocAsync work buf|"
    r"Cuda Host Alloc|CUMEM Host Alloc) Size (?P<size>\d{1,19}) pointer " + _POINTER
)
_SHARED = re.compile(_PLACE + r"Allocated shareable buffer " + _POINTER + r" size (?P<size>\d{1,19})")
_MULTICAST = re.compile(r"NVLS Mapped UC at " + _POINTER + r" size (?P<size>\d{1,19})")
_FREE = re.compile(r"(?:Cuda Free|CuMem Free Size \d{1,19}|CUMEM Host Free Size \d{1,19}) pointer " + _POINTER)
_INIT = re.compile(
    r"comm 0x(?P<comm>[0-9a-fA-F]{1,16}) rank (?P<rank>\d{1,9}) n[rR]anks (?P<ranks>\d{1,9}) .{0,120}?"
    r"(?:commId 0x(?P<id>[0-9a-fA-F]{1,16}) |"
    r"parent 0x(?P<parent>[0-9a-fA-F]{1,16}) \w+ \d{1,9} color (?P<color>-?\d{1,9}) .{0,40}?)?"
    r"- ?Init (?P<state>START|COMPLETE)"
)
_END = re.compile(r"comm 0x(?P<comm>[0-9a-fA-F]{1,16}) rank .{0,120}- (?:Destroy|Abort|Finalize) COMPLETE")
_MENTION = re.compile(r"\bcomm:? ?0x(?P<comm>[0-9a-fA-F]{1,16})")
_CHANNELS = re.compile(r"(?:coll channels:(\d{1,5})|(\d{1,5}) coll channels)")
_P2P_CHANNELS = re.compile(r"(?:p2p channels:(\d{1,5})|(\d{1,5}) p2p channels)\b")
_VERSION = re.compile(r"\b(?P<library>NCCL|RCCL) version ?:? ?(?P<version>\d[\w.+-]{0,60})")
_SETTING = re.compile(r"(?P<name>(?:NCCL|RCCL)_\w{1,60}) set (?:by environment )?to (?P<value>\S{1,200}?)\.?\s*$")
# PyTorch's own log (TORCH_CPP_LOG_LEVEL=INFO) names the process group of a communicator.
_GROUP = re.compile(
    r"PG GUID \w{0,20}\((?P<name>[^)]{1,80})\)[^\]]{0,80}\].{0,40}created ncclComm_ 0x(?P<comm>[0-9a-fA-F]{1,16})"
)
_MOST_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class Head:
    """Origin of a line.

    Attributes:
        host, pid, thread, device: The process, its thread, and the current CUDA device of the thread.
    """

    host: str
    pid: int
    thread: int
    device: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """A line about new memory.

    Attributes:
        pointer: Address.
        size: Bytes.
        kind: What the line calls it.
        file, line, function: Place in the library, or "" and 0.
        on_host: Whether it is pinned host memory.
    """

    pointer: int
    size: int
    kind: str
    file: str = ""
    line: int = 0
    function: str = ""
    on_host: bool = False

    @property
    def is_mapped(self) -> bool:
        """True if the library mapped pages itself, so the size is that of whole pages."""
        return self.kind == "CuMem Alloc"


@dataclass(frozen=True, slots=True)
class Free:
    """A line about memory that was freed at an address."""

    pointer: int


@dataclass(frozen=True, slots=True)
class Opening:
    """The begin or end of the creation of a communicator.

    Attributes:
        comm: Its address.
        rank, num_ranks: As logged.
        identity: Its id in hexadecimal; "" if the line has none.
        parent, color: Address of the communicator that was split, and the color; None for a new one.
        is_complete: Whether the creation ends here.
    """

    comm: int
    rank: int
    num_ranks: int
    identity: str
    parent: int | None
    color: int | None
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Closing:
    """The end of the communicator at an address."""

    comm: int


@dataclass(frozen=True, slots=True)
class Channels:
    """Numbers of channels, and the address of the communicator if the line has it."""

    collective: int | None
    p2p: int | None
    comm: int | None


@dataclass(frozen=True, slots=True)
class NcclSetting:
    """A setting of the library."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Mention:
    """A line about the communicator at an address."""

    comm: int


@dataclass(frozen=True, slots=True)
class MapsPages:
    """A line that shows that the library maps pages itself (cuMem)."""


Fact = Allocation | Free | Opening | Closing | Channels | NcclSetting | Mention | MapsPages


def head_of(line: str) -> tuple[Head, str] | None:
    """Returns the origin and the text of a line of the log, or None for another line."""
    if "NCCL " not in line:
        return None
    match = _HEAD.search(line)
    if match is None:
        return None
    head = Head(match["host"], int(match["pid"]), int(match["thread"]), int(match["device"]))
    return head, line[match.end() :]


def fact_of(text: str) -> Fact | None:
    """Returns the fact in the text of a line, or None if it is about neither memory nor a communicator."""
    if ("lloc" in text or "Free" in text or " UC at " in text) and (memory := _memory(text)):
        return memory
    if "Init " in text and (match := _INIT.search(text)):
        return _opening(match)
    if "COMPLETE" in text and (match := _END.search(text)):
        return Closing(int(match["comm"], 16))
    if "channels" in text and (match := _CHANNELS.search(text)):
        mentioned = _MENTION.search(text)
        return Channels(_first(match), _first(_P2P_CHANNELS.search(text)), _comm(mentioned))
    if " set " in text and (match := _SETTING.search(text)):
        return NcclSetting(match["name"], match["value"])
    if mentioned := _MENTION.search(text):
        return Mention(int(mentioned["comm"], 16))
    return MapsPages() if "P2P/CUMEM" in text else None


def version_in(line: str) -> tuple[str, str] | None:
    """Returns the library and its version if a line states them."""
    match = _VERSION.search(line) if "version" in line else None
    return None if match is None else (match["library"], match["version"])


def group_in(line: str) -> tuple[int, str] | None:
    """Returns the address of a communicator and the name of its process group if PyTorch logged them."""
    match = _GROUP.search(line) if "created ncclComm_" in line else None
    return None if match is None else (int(match["comm"], 16), match["name"])


def _memory(text: str) -> Allocation | Free | None:
    if match := _ALLOC.search(text):
        return _allocation(match, match["what"])
    if match := _SHARED.search(text):
        return _allocation(match, "shareable buffer")
    if match := _MULTICAST.search(text):
        return _allocation(match, "NVLS buffer")
    match = _FREE.search(text)
    return None if match is None else Free(int(match["pointer"], 16))


def _allocation(match: re.Match[str], kind: str) -> Allocation | None:
    size, pointer = int(match["size"]), int(match["pointer"], 16)
    if not 0 < size <= _MOST_BYTES or not 0 < pointer < 1 << 62:
        return None
    found = match.groupdict()
    return Allocation(
        pointer,
        size,
        kind,
        found.get("file") or "",
        int(found.get("line") or 0),
        found.get("function") or "",
        " Host " in kind,
    )


def _opening(match: re.Match[str]) -> Opening:
    parent, color = match["parent"], match["color"]
    return Opening(
        int(match["comm"], 16),
        int(match["rank"]),
        int(match["ranks"]),
        match["id"] or "",
        None if parent is None else int(parent, 16),
        None if color is None else int(color),
        match["state"] == "COMPLETE",
    )


def _first(match: re.Match[str] | None) -> int | None:
    return None if match is None else next(int(group) for group in match.groups() if group is not None)


def _comm(match: re.Match[str] | None) -> int | None:
    return None if match is None else int(match["comm"], 16)
