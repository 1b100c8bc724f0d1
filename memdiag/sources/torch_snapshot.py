"""PyTorch and torch_npu memory snapshots, as written by ``torch.cuda.memory._dump_snapshot`` and similar functions.

Every version is recognised by its keys. 2.0 has neither times nor settings, and stores stacks in the ``history`` of
blocks. torch_npu has neither times nor annotations, and writes workspace memory into trace and segments. From 2.13 on,
entries name their pool. A bare list of segments (``memory_snapshot()``) is a snapshot without a trace.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from memdiag.errors import RefusedFile
from memdiag.results.finding import Note
from memdiag.sizes.cuda import SMALL_SEGMENT
from memdiag.sources.files import plain_content
from memdiag.sources.further_pickles import Further, further_pickles
from memdiag.sources.known_files import is_zstd
from memdiag.sources.notes import on_device
from memdiag.sources.pickles import Tape, read_tape
from memdiag.sources.pickles import tags as m
from memdiag.sources.pickles.kernels import flatten, integers, total_items
from memdiag.sources.recorded import environment_in, notes_in, recorded_in
from memdiag.sources.run_counters import with_counters
from memdiag.sources.run_facts import card_in
from memdiag.sources.run_keys import unknown_keys
from memdiag.sources.run_samples import card_samples_in, host_samples_in
from memdiag.sources.snapshot_columns import MOST_BYTES, ColumnReader, checked
from memdiag.sources.snapshot_dialect import (
    backend_of,
    expandable_by_device,
    layout_of,
    unknown_settings,
    version_of,
    without_cache,
    without_workspace,
)
from memdiag.sources.snapshot_entries import (
    ACTIONS,
    ENTRIES,
    FIELDS,
    MISSING,
    TEXTS,
    TRACEBACKS,
    Entries,
    merged,
    stored_entries,
)
from memdiag.sources.snapshot_host import host_device
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.model import Trace
from memdiag.trace.process_memory import return_free_memory
from memdiag.trace.raw import RawDevice
from memdiag.trace.schema import BLOCK, ENTRY, SEGMENT
from memdiag.trace.snapshot_fields import MORE_COLUMNS, STACK_COLUMNS, fields_of, ignored_of
from memdiag.trace.table import Array, Table
from memdiag.units import format_bytes

FORMAT = "torch-snapshot"

_PICKLE = re.compile(rb"\x80|[(\]}]|c[\w.]+\n[\w.]+\n|P[ -+\--~]*\n\.")

_TOP_KEYS = {
    "segments",
    "device_traces",
    "allocator_settings",
    "external_annotations",
    "memdiag",
    "host_segments",
    "host_traces",
}
_MOST_DEVICES = 256
_MOST_KEYS = 1000


def sniff(head: bytes) -> bool:
    """Returns whether this looks like a pickle.

    That is protocol 2 or later, an older one of a dict or list, or one that begins with a call.
    """
    return _PICKLE.match(head) is not None and not is_zstd(head)


def read(path: Path) -> Trace:
    """Reads a snapshot.

    Raises:
        RefusedFile: It requests code execution, is damaged, or is not a memory snapshot.
    """
    return read_snapshot(plain_content(path), str(path), FORMAT)


def read_snapshot(content: bytes | Path, name: str, format: str) -> Trace:
    """Reads a snapshot from a pickle.

    Args:
        content: The pickle, or the file that contains it.
        name: File name for messages and for the trace.
        format: Format name for the trace.
    """
    further = Further()
    try:
        tape = read_tape(content, name, ENTRIES)
        further = further_pickles(content, name, tape.num_bytes)
        columns = _SnapshotReader(tape).read()
        del content, tape  # the tape is larger than the columns read from it
        return_free_memory()
        columns["notes"] += further.notes
        return build_trace(RawTrace(path=name, format=format, **columns))
    except (ValueError, KeyError, IndexError, OverflowError, TypeError) as error:
        hint = further.hint(phrase("sources.snapshot.hint"))
        raise RefusedFile(phrase("errors.no-snapshot", name=str(name), error=str(error)), hint) from None
    except MemoryError:
        raise RefusedFile(phrase("errors.takes-memory", name=str(name)), phrase("errors.takes-memory.hint")) from None


class _SnapshotReader(ColumnReader):
    def __init__(self, tape: Tape) -> None:
        super().__init__(tape)
        self.has_expandable_key = False
        self.has_segments = True
        self.seen_keys: set[str] = set()

    def read(self) -> dict[str, Any]:
        """Returns the arguments of ``build_trace`` from the file."""
        tape = self.tape
        root = tape.root
        segments, traces = root, None
        own: dict[str, Any] = {}
        settings: Any = None
        spans: int | None = None
        host = self._host(None, None)
        if tape.kind(root) == m.DICT:
            if tape.box_size[root >> 3] > 2 * _MOST_KEYS:
                raise ValueError("it has more keys than any snapshot")
            found = tape.get(root, "segments")
            traces = tape.get(root, "device_traces")
            if found is None and traces is None:
                raise ValueError("it has neither 'segments' nor 'device_traces'")
            segments = found if found is not None else -1
            self.unknown(set(tape.keys(root)) - _TOP_KEYS, "top")
            settings = self.python(root, "allocator_settings")
            own = self.python(root, "memdiag") or {}
            spans = tape.get(root, "external_annotations")
            host = self._host(tape.get(root, "host_segments"), tape.get(root, "host_traces"))
        elif tape.kind(root) not in (m.LIST, m.TUPLE):
            raise ValueError("it holds neither a dict nor a list of segments")
        segment_rows, block_rows, devices = self._segments(segments)
        columns = self._traces(traces)
        stacks = self.frames.finish()
        self.unknown(self.frames.unknown, "frame")
        settings = settings if isinstance(settings, dict) else {}
        self.unknown(unknown_settings(settings), "setting")
        self.own = own if isinstance(own, dict) else {}
        self.unknown(unknown_keys(self.own), "recording")
        raws = self._raws(columns, segment_rows, block_rows, devices)
        self.notes += notes_in(self.own, raws)
        names, annotations = self.annotations(spans)
        names = (*self.strings, *names)
        has_time = any("time_us" in c for c in columns)
        backend = self._own_text("backend") or backend_of(
            stacks, raws, settings, has_time=has_time, has_expandable=self.has_expandable_key
        )
        version = self._own_text("torch_version") or version_of(self.seen_keys, settings, has_time, backend)
        settings = settings or environment_in(self.own)  # torch_npu's snapshots have none
        layout = layout_of(settings, raws, backend)
        return {
            "backend": backend,
            "raws": expandable_by_device(raws, layout),
            "host": host_device(self._entries_with_stacks(host[0]), *(self._with_stacks(table) for table in host[1:])),
            "layout": layout,
            "stacks": stacks,
            "torch_version": version,
            "phantom": self.own.get("phantom") is True,
            "settings": settings,
            "strings": names,
            "annotations": annotations,
            "notes": self.notes,
            "recorded": recorded_in(self.own),
            "host_samples": host_samples_in(self.own),
        }

    def _own_text(self, key: str) -> str | None:
        value = self.own.get(key)
        return value if isinstance(value, str) and value.isprintable() and len(value) <= 80 else None

    def _segments(self, value: int) -> tuple[Table, Table, Array]:
        tape = self.tape
        if value == -1 or value == (m.C_NONE << 3 | m.CONST):
            self.has_segments = False
            self.notes.append(Note("MD904", phrase("notes.no-segments")))
            return Table.empty(schema.SEGMENTS), Table.empty(schema.BLOCKS), np.empty(0, np.int64)
        if tape.kind(value) not in (m.LIST, m.TUPLE):
            raise ValueError("'segments' is not a list")
        self.take_rows(int(tape.box_size[value >> 3]))
        columns, others = tape.rows(tape.list_items(value), [field.name for field in fields_of(SEGMENT)])
        self.unknown(others - ignored_of(SEGMENT), "segment")
        n = len(columns["address"])
        if n and (columns["address"] & 7 == m.NONE_THERE).any() | (columns["total_size"] & 7 == m.NONE_THERE).any():
            raise ValueError("a segment has no address or no total_size")
        found, _ = self.table_columns(SEGMENT, columns)
        small = found["small"]
        found["small"] = np.where(small < 0, found["total_size"] <= SMALL_SEGMENT, small > 0)
        table = Table(schema.SEGMENTS, found)
        self.has_expandable_key = bool(n) and bool((columns["is_expandable"] & 7 != m.NONE_THERE).any())
        return table, self._blocks(columns["blocks"], table), integers(columns["device"], 0)

    def _blocks(self, lists: Array, segments: Table) -> Table:
        tape = self.tape
        there = lists & 7 == m.BOX
        if not there.any():
            return Table.empty(schema.BLOCKS)
        boxes = lists[there] >> 3
        if not np.isin(tape.box_kind[boxes], (m.LIST, m.TUPLE)).all():
            raise ValueError("'blocks' of a segment is not a list")
        total = total_items(boxes, tape.box_size)
        self.take_rows(total)
        values = flatten(boxes, tape.boxes, total)
        segment = np.repeat(np.flatnonzero(there), tape.box_size[boxes])
        columns, others = tape.rows(values, [field.name for field in fields_of(BLOCK)])
        self.unknown(others - ignored_of(BLOCK), "block")
        found, strange = self.table_columns(BLOCK, columns)
        # Before 2.1, blocks have no address: they follow each other in the segment.
        before = np.cumsum(found["size"]) - found["size"]
        first = np.searchsorted(segment, segment)
        computed = segments.address[segment] + before - before[first]
        found["address"] = np.where(found["address"] < 0, computed, found["address"])
        if strange["state"]:
            self.unknown(strange["state"], "state")
        if (columns["history"] & 7 == m.BOX).any():
            history = self._history(columns["history"], found["stack"], found["requested_size"])
            found["stack"], found["requested_size"] = history
        return Table(schema.BLOCKS, {"segment": segment, **found})

    def _history(self, lists: Array, stack: Array, requested: Array) -> tuple[Array, Array]:
        """Reads stack and request of a block from the first entry of its history, where torch 2.0 stores them."""
        tape = self.tape
        rows = np.flatnonzero(lists & 7 == m.BOX)
        rows = rows[tape.box_size[lists[rows] >> 3] > 0]
        newest = tape.items[tape.chunk_start[tape.box_first[lists[rows] >> 3]]]
        columns, others = tape.rows(newest, ("real_size", "frames", "addr"))
        self.unknown(others, "history")
        stack, requested = stack.copy(), requested.copy()
        ids = self.frames.ids(columns["frames"])
        stack[rows] = np.where(stack[rows] < 0, ids, stack[rows])
        real = integers(columns["real_size"], -1)
        requested[rows] = np.where(requested[rows] < 0, real, requested[rows])
        return stack, requested

    def _traces(self, value: int | None) -> list[dict[str, Array]]:
        tape = self.tape
        if value is None or value == (m.C_NONE << 3 | m.CONST):
            return []
        if tape.kind(value) not in (m.LIST, m.TUPLE):
            raise ValueError("'device_traces' is not a list")
        lists = tape.list_items(value)
        if len(lists) > _MOST_DEVICES:
            raise ValueError(f"'device_traces' lists {len(lists):,} devices")
        if len(lists) and all(m.is_row(each) or tape.kind(each) == m.DICT for each in lists.tolist()):
            lists = np.array([value], np.int64)  # the entries of one device, not wrapped in a list
        return [self._entries(int(entry)) for entry in lists]

    def _entries(self, value: int) -> dict[str, Array]:
        if value == (m.C_NONE << 3 | m.CONST):
            value_items = np.empty(0, np.int64)
        elif self.tape.kind(value) not in (m.LIST, m.TUPLE):
            raise ValueError("the trace of a device is not a list")
        else:
            self.take_rows(int(self.tape.box_size[value >> 3]))
            value_items = self.tape.list_items(value)
        found = self._entry_columns(value_items)
        self.seen_keys |= found.seen
        action, addr, size = found.action, found.numbers["addr"], found.numbers["size"]
        failed = action == schema.OOM
        # A program may ask for any number of bytes, but no device gives so many.
        checked(size[~failed] if failed.any() else size, "size in the trace", -1)
        entries = {
            "action": np.where(failed | ((addr >= 0) & (size >= 0)), action, schema.UNKNOWN).astype(np.int8),
            "addr": addr,
            "size": np.maximum(size, 0, out=size),
            "stream": found.numbers["stream"],
            "stack": found.frames,
        }
        if "time_us" in found.seen:
            entries["time_us"] = found.numbers["time_us"]
        if found.pools is not None:
            entries["pool"] = found.pools
        entries |= {name: found.numbers[name] for name in MORE_COLUMNS if name in found.numbers and name in found.seen}
        for name, boxes in found.tracebacks.items():
            self.frames.want_tracebacks(boxes)
            entries[name] = boxes
        return entries | {name: self.strings_of(column) for name, column in found.texts.items()}

    def _entry_columns(self, values: Array) -> Entries:
        """Reads entries; each is a row or, if unusual, a dict."""
        stored = m.is_row(values)
        if stored.all() and len(values):
            return self._stored(values)
        if not stored.any():
            return self._unusual(values)
        return merged(self._stored(values[stored]), self._unusual(values[~stored]), stored)

    def _stored(self, values: Array) -> Entries:
        found = stored_entries(self.tape.entries, (values >> 3) - m.ROW_0)
        others = {str(self.tape.text(int(row))) for row in np.flatnonzero(self.tape.entries.others)[:_MOST_KEYS]}
        self.unknown(others - ignored_of(ENTRY), "entry")
        self.frames.want(found.frames)
        return found._replace(seen=found.seen | others)

    def _unusual(self, values: Array) -> Entries:
        columns, others = self.tape.rows(values, [field.name for field in FIELDS])
        seen = others | {key for key, column in columns.items() if len(column) and (column & 7 != m.NONE_THERE).any()}
        self.unknown(others - ignored_of(ENTRY), "entry")
        action, strange = self.texts(columns["action"], ACTIONS, schema.UNKNOWN)
        if strange or (columns["action"] & 7 == m.NONE_THERE).any():
            self.unknown(strange or ["(none)"], "action")
        columns["addr"] = np.where(columns["addr"] & 7 == m.NONE_THERE, columns["device_free"], columns["addr"])
        numbers = {name: integers(columns[name], MISSING[name]) for name in MISSING}
        texts = {
            field.column: np.where(columns[field.name] & 7 == m.STR, columns[field.name] >> 3, -1)
            for field in TEXTS
            if field.name in seen
        }
        tracebacks = {f.column: self.frames.tracebacks(columns[f.name]) for f in TRACEBACKS if f.name in seen}
        frames, pools = self.frames.ids(columns["frames"]), self.pools(columns["pool_id"])
        return Entries(seen, action, numbers, frames, pools, texts, tracebacks)

    def _raws(self, columns: list[dict[str, Array]], segments: Table, blocks: Table, devices: Array) -> list[RawDevice]:
        raws: list[RawDevice] = []
        capacities = self.own.get("capacity_bytes")
        with_segments = {int(d) for d in np.unique(devices)}
        if any(not 0 <= d < _MOST_DEVICES for d in with_segments):
            raise ValueError("a segment names an absurd device")
        for device in sorted(with_segments | set(range(len(columns))) | ({0} if not with_segments else set())):
            entries = self._entries_with_stacks(columns[device]) if device < len(columns) else {}
            if device not in with_segments and not len(entries.get("action", ())) and device > 0:
                continue  # a device of the machine that was never used
            mine = np.flatnonzero(devices == device)
            row_of = np.full(len(devices) + 1, -1)
            capacity = capacities.get(device) if isinstance(capacities, dict) else capacities
            row_of[mine] = np.arange(len(mine))
            owned = blocks.take(np.flatnonzero(row_of[blocks.segment] >= 0))
            samples = card_samples_in(self.own, device)
            raw = RawDevice(
                device=device,
                action=entries.get("action", np.empty(0, np.int8)),
                addr=entries.get("addr", np.empty(0, np.int64)),
                size=entries.get("size", np.empty(0, np.int64)),
                stream=entries.get("stream"),
                time_us=entries.get("time_us"),
                stack=entries.get("stack"),
                pool=entries.get("pool"),
                more={name: entries[name] for name in MORE_COLUMNS if name in entries},
                segments=self._with_stacks(segments.take(mine)) if self.has_segments else None,
                blocks=self._with_stacks(owned.replace(segment=row_of[owned.segment])) if self.has_segments else None,
                capacity_bytes=capacity if type(capacity) is int and 0 < capacity <= MOST_BYTES else None,
                card=card_in(self.own, device, samples),
                samples=samples,
            )
            if not len(raw.action) and (counted := with_counters(raw, self.own)) is not None:
                raw = counted
                self.notes.append(Note("MD908", on_device(device, phrase("notes.counters"))))
            raw, outside = without_workspace(raw) if self._own_text("backend") != "cpu" else (without_cache(raw), 0)
            if outside:
                self.notes.append(
                    Note("MD905", on_device(device, phrase("notes.workspace", bytes=format_bytes(outside))))
                )
            raws.append(raw)
        return raws

    def _host(self, segments: int | None, traces: int | None) -> tuple[dict[str, Array], Table, Table]:
        """Returns entries, segments and blocks of pinned host memory; empty if the file has none."""
        tables = (Table.empty(schema.SEGMENTS), Table.empty(schema.BLOCKS))
        entries: dict[str, Array] = {}
        given = {"host_segments": segments, "host_traces": traces}
        none = (None, m.C_NONE << 3 | m.CONST)
        lists = (m.LIST, m.TUPLE)
        strange = [key for key, value in given.items() if value not in none and self.tape.kind(value) not in lists]
        self.unknown(strange, "top")
        if segments is not None and self.tape.kind(segments) in (m.LIST, m.TUPLE):
            tables = self._segments(segments)[:2]
        if traces is not None and self.tape.kind(traces) in (m.LIST, m.TUPLE):
            self.seen_keys.add("host_traces")
            entries = self._entries(traces)
        return entries, *tables

    def _entries_with_stacks(self, entries: dict[str, Array]) -> dict[str, Array]:
        """Returns the columns of entries with the final numbers of their stacks."""
        final = self.frames.final
        return {name: final(column) if name in STACK_COLUMNS else column for name, column in entries.items()}

    def _with_stacks(self, table: Table) -> Table:
        """Returns segments or blocks with the final numbers of their stacks."""
        return table.replace(**{name: self.frames.final(table[name]) for name in table if name in STACK_COLUMNS})
