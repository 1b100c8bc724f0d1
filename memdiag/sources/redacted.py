"""Removes identifying data from a trace: paths, users, command lines, environment.

Memory data are unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from memdiag.redaction import ELSEWHERE, note_homes, redact_path, redact_text
from memdiag.results.finding import Note
from memdiag.results.libraries import LibraryMemory
from memdiag.settings.conf import parse_conf
from memdiag.settings.tables import known, newest
from memdiag.trace.model import Trace
from memdiag.trace.stacks import Frame, FxNode, Stacks

_BACKENDS = ("cuda", "npu")


def redacted(trace: Trace) -> Trace:
    """Returns ``trace`` without paths, user names, and settings that no allocator knows."""
    frames = trace.stacks.frames
    note_homes([trace.path, *(frame.filename for frame in frames)])
    table = trace.stacks
    ids = [comm.identity for memory in trace.libraries for comm in memory.communicators if _has_address(comm.identity)]
    stacks = Stacks([_frame(frame, ids) for frame in frames], table.offsets, table.frame_ids, table.own)
    recorded = trace.recorded
    if recorded is not None:
        recorded = replace(recorded, names=tuple(redact_text(name) for name in recorded.names))
    strings = tuple(redact_text(text) for text in trace.strings)
    notes = tuple(Note(note.code, redact_text(note.text)) for note in trace.notes)
    path, settings = redact_path(trace.path), _settings(trace.settings)
    return replace(
        trace,
        path=path,
        stacks=stacks,
        settings=settings,
        recorded=recorded,
        strings=strings,
        notes=notes,
        libraries=tuple(_library(memory) for memory in trace.libraries),
    )


def _frame(frame: Frame, ids: Sequence[str]) -> Frame:
    """Returns a frame without the user's paths, and without ids of communicators that contain an address."""
    name = frame.name
    for identity in ids:
        name = name.replace(identity, ELSEWHERE)
    fx = frame.fx
    node = None if fx is None else FxNode(fx.op, redact_text(fx.name), redact_text(fx.target), redact_text(fx.trace))
    return Frame(redact_path(frame.filename), frame.line, redact_text(name), node)


def _library(memory: LibraryMemory) -> LibraryMemory:
    """Returns what a library holds without the name of its host."""
    communicators = tuple(
        replace(comm, identity=ELSEWHERE if _has_address(comm.identity) else comm.identity)
        for comm in memory.communicators
    )
    settings = {name: redact_text(value) for name, value in memory.settings.items()}
    path = redact_path(memory.path)
    return replace(memory, path=path, host="", communicators=communicators, settings=settings)


def _has_address(identity: str) -> bool:
    """Returns whether the id of a communicator contains the address of a machine, as those of HCCL do."""
    return bool(identity) and not identity.startswith("0x")


def _settings(value: Any) -> Any:
    """Returns only allocator settings; of a variable's text, only the pairs that an allocator knows."""
    if isinstance(value, Mapping):
        return {
            redact_text(str(key)): conf_text(item) if str(key).endswith("ALLOC_CONF") else _settings(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_settings(item) for item in value]
    return redact_text(value) if isinstance(value, str) else value


def conf_text(text: Any) -> Any:
    """Returns the text of an allocator's variable, reduced to known keys."""
    if not isinstance(text, str):
        return _settings(text)
    keys = {key for backend in _BACKENDS for key in known(backend, newest(backend))}
    return ",".join(f"{key}:{redact_text(value)}" for key, value in parse_conf(text).items() if key in keys)
