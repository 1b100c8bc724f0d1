"""Switches on the logs of communication libraries, finds them beside a recording, and adds them to its trace.

``memdiag record --with nccl-log`` sets the variables of the library for the command, unless the program's environment
already sets them. The logs go into a folder of the run, where ``memdiag analyze`` finds them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from memdiag.errors import MemdiagError
from memdiag.redaction import is_on
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.results.libraries import Communicator, LibraryMemory
    from memdiag.sources.flight_recorder import ProcessGroup
    from memdiag.trace.model import Trace

FOLDER = "libraries"  # in the folder of a run
NCCL, HCCL = "nccl-log", "hccl-log"
LOGS = (NCCL, HCCL)

_LEVELS = {"INFO", "TRACE"}  # of NCCL_DEBUG: those that contain allocations
_MOST_FILES = 4096
_MOST_NAMES = 4  # of one communicator
_MOST_PIDS = 8  # in a message


def variables_for(
    names: Iterable[str], folder: str, own: Mapping[str, str], say: Callable[[str], None]
) -> dict[str, str]:
    """Returns the variables that switch on logs of libraries.

    Args:
        names: Of ``LOGS``.
        folder: Folder of the run, absolute.
        own: The environment of the program, whose settings stay unchanged.
        say: Receives a line if these settings prevent a log.
    """
    if is_on():
        say(f"memdiag: {phrase('record.log.redact')}")
        return {}
    found: dict[str, str] = {}
    place = Path(folder, FOLDER)
    if NCCL in names:
        found |= _nccl(place, own, say)
    if HCCL in names:
        if "ASCEND_PROCESS_LOG_PATH" in own:
            say(f"memdiag: {phrase('record.log.own', variable='ASCEND_PROCESS_LOG_PATH')}")
        else:
            found |= {"ASCEND_PROCESS_LOG_PATH": str(place / "ascend")}
            found |= {} if "HCCL_ENTRY_LOG_ENABLE" in own else {"HCCL_ENTRY_LOG_ENABLE": "1"}
    if found:
        place.mkdir(exist_ok=True)
    return found


def _nccl(place: Path, own: Mapping[str, str], say: Callable[[str], None]) -> dict[str, str]:
    """Returns NCCL's variables; empty if the program's own settings decide where a log goes."""
    if own.get("NCCL_DEBUG_FILE") or own.get("NCCL_DEBUG", "").upper() in _LEVELS:
        variable = "NCCL_DEBUG_FILE" if own.get("NCCL_DEBUG_FILE") else "NCCL_DEBUG"
        say(f"memdiag: {phrase('record.log.own', variable=variable)}")
        return {}
    if own.get("NCCL_DEBUG"):
        say(f"memdiag: {phrase('record.log.level', value=own['NCCL_DEBUG'])}")
        return {}
    if "NCCL_DEBUG_SUBSYS" in own and "ALLOC" not in own["NCCL_DEBUG_SUBSYS"].upper():
        say(f"memdiag: {phrase('record.log.subsystems', value=own['NCCL_DEBUG_SUBSYS'])}")
        return {}
    file = str(place).replace("%", "%%") + "/nccl.%h.%p.log"  # NCCL inserts host and process
    found = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": file}
    return found | ({} if "NCCL_DEBUG_SUBSYS" in own else {"NCCL_DEBUG_SUBSYS": "INIT,ENV,ALLOC,NVLS"})


def logs_beside(trace: Path, pid: int | None) -> list[Path]:
    """Returns the logs of a process in the folder of its run.

    Args:
        trace: A trace in the folder, or its short name next to the folder.
        pid: The process; None if unknown: all logs in the folder of the trace.
    """
    places = [trace.parent / FOLDER]
    with contextlib.suppress(OSError):
        places += trace.parent.glob(f"*/{FOLDER}") if pid is not None else ()
    found: list[Path] = []
    for place in places:
        with contextlib.suppress(OSError):
            found += [*place.glob("*.log"), *place.glob("ascend/**/plog-*.log")]
    return sorted(path for path in found if pid is None or _is_named_after(path, pid))[:_MOST_FILES]


def with_libraries(trace: Trace, given: Sequence[Path] = ()) -> Trace:
    """Returns a trace with the memory that libraries hold according to their logs.

    Args:
        trace: The trace of a recording.
        given: Logs named by the user; empty for those in the folder of its run, where unusable ones are ignored.

    Raises:
        MemdiagError: A log cannot be read, or none is of the recorded process.
    """
    if trace.libraries and not given:
        return trace
    memories: list[LibraryMemory] = []
    pid = trace.recorded.ended.pid if trace.recorded is not None else None
    for path in given or logs_beside(Path(trace.path), pid):
        try:
            memories += _memories_in(path)
        except MemdiagError:
            if given:
                raise
    mine = _of_process(memories, pid)
    if given and not mine:
        pids = list(dict.fromkeys(str(memory.pid) for memory in memories))
        raise MemdiagError(
            phrase("errors.other-process", count=len(pids), pids=", ".join(pids[:_MOST_PIDS])),
            phrase("errors.other-process.hint"),
        )
    return replace(trace, libraries=tuple(_on_devices(mine, [device.device for device in trace.devices])))


def with_groups(trace: Trace, dump: Path) -> Trace:
    """Returns a trace whose communicators have the names of process groups.

    A communicator gets the names of the groups with its number of ranks in which the process has its rank. Several such
    groups are all named, since a log does not tell them apart.

    Args:
        trace: A trace with the memory of libraries.
        dump: A dump of PyTorch's flight recorder.

    Raises:
        MemdiagError: The dump cannot be read, or the trace has no communicators.
    """
    from memdiag.sources.flight_recorder import read_groups

    found = read_groups(dump)
    if not trace.libraries:
        raise MemdiagError(phrase("errors.flight-alone"), phrase("errors.flight-alone.hint"))
    rank = trace.recorded.rank if trace.recorded is not None and trace.recorded.rank is not None else found.rank
    return replace(
        trace,
        libraries=tuple(
            replace(
                memory,
                communicators=tuple(
                    comm if comm.name else replace(comm, name=_name_of(comm, found.groups, rank))
                    for comm in memory.communicators
                ),
            )
            for memory in trace.libraries
        ),
    )


def _name_of(comm: Communicator, groups: Sequence[ProcessGroup], rank: int | None) -> str:
    """Returns the names of the groups that a communicator may be of, or "" for none or too many."""
    names = [
        group.name
        for group in groups
        if len(group.ranks) == comm.num_ranks
        and (rank is None or comm.rank is None or group.ranks[comm.rank : comm.rank + 1] == (rank,))
    ]
    return " / ".join(dict.fromkeys(names)) if len(names) <= _MOST_NAMES else ""


def _memories_in(path: Path) -> list[LibraryMemory]:
    from memdiag.sources import hccl_log, nccl_log
    from memdiag.sources.files import read_head

    if hccl_log.sniff(read_head(path)):
        return hccl_log.read_memories(path)
    return nccl_log.read_memories(path)


def _is_named_after(path: Path, pid: int) -> bool:
    """Returns whether the name of a log contains a process, so that other logs of a large run need no reading."""
    return re.search(rf"(?<!\d){pid}(?!\d)", path.name) is not None


def _of_process(memories: Sequence[LibraryMemory], pid: int | None) -> list[LibraryMemory]:
    """Returns the memory of the recorded process: by its id, else of the only process in the logs."""
    own = [memory for memory in memories if memory.pid == pid]
    if own or len({(memory.host, memory.pid) for memory in memories}) > 1:
        return own
    return list(memories) if pid is None else []


def _on_devices(memories: Sequence[LibraryMemory], devices: Sequence[int]) -> list[LibraryMemory]:
    """Returns the memory with the device of the trace: the only one if the numbers differ."""
    if len(memories) == len(devices) == 1:
        return [replace(memories[0], device=devices[0])]
    return list(memories)
