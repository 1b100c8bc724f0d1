"""The log of HCCL (plog, ``run/plog`` and ``debug/plog`` of CANN): buffers of communicators on Ascend.

HCCL allocates the buffers of a communicator (2 x HCCL_BUFFSIZE and 1 MB) with its first collective and logs them at the
level of the run log, which is on by default. It logs their release as well.
"""

from __future__ import annotations

import re
from pathlib import Path

from memdiag.results.libraries import LibraryMemory
from memdiag.sources.growing import ByteLimit, Names
from memdiag.sources.guard import guard
from memdiag.sources.library_log import Comm, LibraryLog, ProcessLog
from memdiag.sources.library_trace import build, memories_of
from memdiag.sources.log_lines import lines_of, time_in
from memdiag.text import phrase
from memdiag.trace.model import Trace

FORMAT = "hccl-log"

_WHAT, _HINT = "sources.hccl-log", "sources.hccl-log.hint"
_HEAD = re.compile(
    r"HCCL\((?P<pid>\d{1,10}),[^)]{0,200}\):\S{1,60} \[(?P<file>[\w.-]{1,100}):(?P<line>\d{1,6})\] ?"
    r"(?:\[(?P<thread>\d{1,10})\])?"
)
_ALLOC = re.compile(r"\[CreateCCLbuffer\].{0,60}buffer ptr\[0x([0-9a-fA-F]{1,16})\], ?size\[(\d{1,19})\]")
_FREE = re.compile(r"Release (\w{1,60})\. buffer ptr\[0x([0-9a-fA-F]{1,16})\]")
_ENTRY = re.compile(r"Entry-HcclC\w{1,60}:.{0,20}?ranks\[(\d{1,9})\], ?rank\[(\d{1,9})\]")
_DONE = re.compile(r"HcclComm\w{1,60} success")
_IDENTITY = re.compile(r"identifier\[([^\]]{1,200})\]")
_DEVICE = re.compile(r"\b(?:deviceLogicId|logicDevId)\[(\d{1,4})\]")
_TAG = re.compile(r"Entry-Hccl\w{1,60}:.{0,20}?tag\[([^\]]{1,300})\]")
_MOST_BYTES = 1 << 50


def sniff(head: bytes) -> bool:
    """Returns whether any line is one of HCCL about a communicator or its buffers."""
    if b"HCCL(" not in head:
        return False
    lines = head.decode("utf-8", "replace").splitlines()
    return any(_HEAD.search(line) and ("CCLbuffer" in line or "Entry-Hccl" in line) for line in lines)


def read(path: Path) -> Trace:
    """Reads a log.

    Raises:
        RefusedFile: It is damaged, or contains no buffers.
    """
    with guard(path, _WHAT, _HINT):
        return build(path, FORMAT, parse(path), phrase(_HINT))


def read_memories(path: Path) -> list[LibraryMemory]:
    """Returns the memory of HCCL for each process of a log.

    Raises:
        RefusedFile: It is damaged, or contains no buffers.
    """
    return memories_of(path, parse, _WHAT, _HINT)


def parse(path: Path) -> LibraryLog:
    """Returns the content of a log."""
    budget = ByteLimit(path)
    log = LibraryLog("HCCL", budget)
    identities = Names(budget)
    for line in lines_of(path, budget):
        match = _HEAD.search(line) if "HCCL(" in line else None
        if match is None:
            continue
        pid = int(match["pid"])
        process = log.process("", pid, 0)
        thread = int(match["thread"] or pid)
        text = line[match.end() :]
        if "deviceLogicId" in text or "logicDevId" in text:
            device = _DEVICE.search(text)
            process.device = int(device[1]) if device else process.device
        if "Entry-Hccl" in text:
            _enter(process, thread, text, identities)
        elif "CCLbuffer" in text or "AIVbuffer" in text:
            place = log.place(match["file"], int(match["line"]), "CCL buffer")
            _buffer(process, thread, text, place, time_in(line))
        elif "success" in text and _DONE.search(text):
            process.created(thread)
    return log


def _enter(process: ProcessLog, thread: int, text: str, identities: Names) -> None:
    """Adds a call of HCCL: the creation of a communicator, or a collective, whose tag names one."""
    if entry := _ENTRY.search(text):
        identity = _IDENTITY.search(text)
        name = identity[1] if identity else ""
        address = identities.number(name)
        process.open(thread, address, Comm(name, int(entry[2]), int(entry[1])), is_complete=False)
    elif tag := _TAG.search(text):
        process.mention(thread, identities.find(tag[1].partition("_")[2]))  # AllReduce_<identifier>


def _buffer(process: ProcessLog, thread: int, text: str, place: int, time: int) -> None:
    if match := _ALLOC.search(text):
        pointer, size = int(match[1], 16), int(match[2])
        if 0 < pointer < 1 << 62 and 0 < size <= _MOST_BYTES:
            process.allocate(thread, pointer, size, place, time)
    elif match := _FREE.search(text):
        process.free(int(match[2], 16), time)
