"""The columns of a trace, as data: name, dtype, unit, meaning. Tables are checked against this once, then frozen.

Event indices count from 0 within one device's trace. Intervals are half open: a tensor is live in ``[alloc_at,
free_completed_at)``. ``alloc_at`` is -1 for tensors from before the trace; a free that the trace does not contain has
the index ``num_events``.
"""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """One column: numpy dtype, unit ("" for none) and meaning."""

    dtype: str
    unit: str
    meaning: str


# Codes of Events.action. Allocators log the first ten (C++ order of torch_npu) and the last one. The others are calls
# of the program that no allocator logs; plain event files have them.
ACTIONS: tuple[str, ...] = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
    "workspace_snapshot",
    "unknown",
    "empty_cache",
    "record_stream",
    "complete",
    "sync",
    "set_fraction",
    "pool_begin",
    "pool_end",
    "pool_release",
    "reset_peak",
    "external",
    "set_total",
    "annotate",
)
(
    ALLOC,
    FREE_REQUESTED,
    FREE_COMPLETED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    SNAPSHOT,
    OOM,
    WORKSPACE_SNAPSHOT,
    UNKNOWN,
    EMPTY_CACHE,
) = range(12)
ANNOTATE = ACTIONS.index("annotate")  # logged by torch 2.14: text about a live block, which does not change
SEGMENT_ACTIONS = (SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP)
ACTION_CODES = {name: code for code, name in enumerate(ACTIONS)}

CATEGORIES: tuple[str, ...] = (
    "unknown",
    "parameter",
    "gradient",
    "optimizer_state",
    "activation",
    "input",
    "temporary",
    "collective",
    "workspace",
    "kv_cache",
)
PHASES: tuple[str, ...] = ("unknown", "initialisation", "forward", "backward", "optimizer", "outside")
LIFETIMES: tuple[str, ...] = (
    "unknown",
    "persistent",
    "optimizer_state",
    "survives_step",
    "forward_to_backward",
    "within_step",
    "within_phase",
    "temporary",
)
# Occasions of samples. A checkpoint is saved between "save" and "saved".
OCCASIONS: tuple[str, ...] = ("start", "phase", "step", "mark", "timer", "oom", "end", "save", "saved")
BLOCK_STATES: tuple[str, ...] = ("inactive", "active_allocated", "active_pending_free")
INACTIVE, ACTIVE_ALLOCATED, ACTIVE_PENDING_FREE = range(3)

EVENTS: dict[str, Column] = {
    "action": Column("int8", "", "index into ACTIONS"),
    "addr": Column("int64", "", "address, or the identity of a tensor in a source without addresses; -1: none"),
    "size": Column(
        "int64", "bytes", "alloc and free: bytes requested; segment events: bytes of the range; oom: rounded"
    ),
    "stream": Column("int64", "", "stream handle as the file has it"),
    "time_us": Column("int64", "us", "wall clock; -1: unknown"),
    "stack": Column("int32", "", "index into Stacks; -1: none"),
    "tensor": Column("int32", "", "row in Tensors; -1: none"),
    "group": Column("int32", "", "row in Groups (pool and stream); -1: unknown"),
    "phase": Column("int8", "", "index into PHASES"),
    "step": Column("int32", "", "training step, from 0; -1: outside of any or unknown"),
}

USAGE: dict[str, Column] = {
    "reserved": Column("int64", "bytes", "held from the driver, after the event; -1: unknown"),
    "allocated": Column("int64", "bytes", "blocks handed out"),
    "active": Column("int64", "bytes", "allocated + freed but waiting for a stream"),
    "requested": Column("int64", "bytes", "what live tensors asked for"),
    "cache": Column("int64", "bytes", "free and usable for the reference request, or whole free segments; -1: unknown"),
    "stranded": Column("int64", "bytes", "free in the reference request's pool and stream, but in too small pieces"),
    "foreign": Column("int64", "bytes", "free in part-used segments of another pool or stream"),
    "reference": Column("int32", "", "row in References: the request from which the split is seen; -1: none"),
}

REFERENCES: dict[str, Column] = {
    "at_event": Column("int64", "", "event of the request (alloc or oom)"),
    "opened_at": Column("int64", "", "first event of the same malloc (segment_free, segment_alloc, …)"),
    "size": Column("int64", "bytes", "rounded request"),
    "group": Column("int32", "", "row in Groups"),
    "largest_free": Column("int64", "bytes", "largest free range in that group just before it; -1: not measured"),
    "failed": Column("bool", "", "the request ran out of memory"),
    "retried": Column("bool", "", "cached segments were released for it first"),
}

TENSORS: dict[str, Column] = {
    "addr": Column("int64", "", "address (or identity) of the block"),
    "requested_bytes": Column("int64", "bytes", "asked for"),
    "block_bytes": Column("int64", "bytes", "size of the block it sits in"),
    "alloc_at": Column("int64", "", "event; -1: before the trace"),
    "free_requested_at": Column("int64", "", "event; num_events: not in the trace"),
    "free_completed_at": Column("int64", "", "event; num_events: not in the trace"),
    "stream": Column("int64", "", "stream of allocation"),
    "group": Column("int32", "", "row in Groups; -1: unknown"),
    "stack": Column("int32", "", "where it was allocated; -1: unknown"),
    "free_stack": Column("int32", "", "where it was freed; -1: unknown"),
    "category": Column("int8", "", "index into CATEGORIES"),
    "lifetime": Column("int8", "", "index into LIFETIMES"),
    "lifetime_inferred": Column(
        "bool", "", "still live at the end; lifetime inferred from the same call site in earlier steps"
    ),
    "phase_alloc": Column("int8", "", "phase of birth, index into PHASES"),
    "phase_free": Column("int8", "", "phase of death"),
    "step_alloc": Column("int32", "", "step of birth; -1: unknown or before the first"),
    "step_free": Column("int32", "", "step of death; -1: unknown or never"),
    "name": Column("int32", "", "index into Trace.strings; -1: not named"),
    "label": Column("int32", "", "what the program noted about it, index into Trace.strings; -1: nothing"),
}

# A range of memory that is reserved from the driver during a span of events. Rows with the same ``segment`` belong
# together. Rows of expandable segments have no ``segment``: adjacent ones of one group are one segment in a snapshot.
REGIONS: dict[str, Column] = {
    "start": Column("int64", "", "first address"),
    "size": Column("int64", "bytes", "length"),
    "opened_at": Column("int64", "", "event; -1: before the trace"),
    "closed_at": Column("int64", "", "event; num_events: still held at the end"),
    "group": Column("int32", "", "row in Groups"),
    "expandable": Column("bool", "", "a piece of an expandable segment"),
    "segment": Column("int32", "", "number of the range obtained from the driver; -1: expandable"),
}

GROUPS: dict[str, Column] = {
    "pool_major": Column("int64", "", "first number of the pool id; (0, 0) is the default pool"),
    "pool_minor": Column("int64", "", "second number of the pool id"),
    "small": Column("bool", "", "the pool of small blocks (at most 1 MiB)"),
    "stream": Column("int64", "", "stream handle"),
}

# The file's own final state, unchanged.
SEGMENTS: dict[str, Column] = {
    "address": Column("int64", "", "first address"),
    "total_size": Column("int64", "bytes", "length"),
    "allocated_size": Column("int64", "bytes", "blocks handed out; -1: the file does not say"),
    "active_size": Column("int64", "bytes", "blocks not free; -1: the file does not say"),
    "requested_size": Column("int64", "bytes", "asked for; -1: the file does not say"),
    "stream": Column("int64", "", "stream handle"),
    "small": Column("bool", "", "the pool of small blocks"),
    "expandable": Column("bool", "", "an expandable segment"),
    "pool_major": Column("int64", "", "pool id"),
    "pool_minor": Column("int64", "", "pool id"),
    "stack": Column("int32", "", "where it was made; -1: unknown"),
}
BLOCKS: dict[str, Column] = {
    "segment": Column("int32", "", "row in Segments"),
    "address": Column("int64", "", "first address"),
    "size": Column("int64", "bytes", "length"),
    "requested_size": Column("int64", "bytes", "asked for; -1: the file does not say (stale in inactive blocks)"),
    "state": Column("int8", "", "index into BLOCK_STATES"),
    "stack": Column("int32", "", "where its tensor was allocated; -1: unknown"),
}

# Memory of a device at moments of a recording, from its driver and the allocator. The parts of the total are reserved,
# own - reserved (context and libraries of this process), others, the unexplained rest, and free.
SAMPLES: dict[str, Column] = {
    "time_us": Column("int64", "us", "wall clock"),
    "when": Column("int8", "", "index into OCCASIONS"),
    "step": Column("int64", "", "completed training steps"),
    "total": Column("int64", "bytes", "memory of the device"),
    "free": Column("int64", "bytes", "free for every process"),
    "reserved": Column("int64", "bytes", "reserved by the allocator of this process"),
    "own": Column("int64", "bytes", "everything of this process on the device; -1: unknown"),
    "others": Column("int64", "bytes", "everything of other processes on the device; -1: unknown"),
    "allocs": Column("int64", "", "blocks allocated so far; -1: unknown"),
    "frees": Column("int64", "", "blocks freed so far; -1: unknown"),
    "at_event": Column("int64", "", "the first event after the sample; num_events: after the last; -1: unknown"),
}

# Spans that the program or a profiler named: ProfilerStep#3, Optimizer.step#AdamW.step, record_function ranges.
ANNOTATIONS: dict[str, Column] = {
    "name": Column("int32", "", "index into Trace.strings"),
    "start": Column("bool", "", "True: the span begins here; False: it ends"),
    "device": Column("int32", "", "device; -1: not said"),
    "time_us": Column("int64", "us", "wall clock"),
}

# Memory of the host over time. Every size is -1 if unknown.
HOST_SAMPLES: dict[str, Column] = {
    "time_us": Column("int64", "us", "wall clock"),
    "when": Column("int8", "", "index into OCCASIONS"),
    "step": Column("int64", "", "completed training steps"),
    "rss": Column("int64", "bytes", "resident memory of the process"),
    "children_rss": Column("int64", "bytes", "sum of the resident memory of the processes below it"),
    "num_children": Column("int64", "", "processes below it, such as workers of a DataLoader"),
    "pss": Column("int64", "bytes", "proportional memory of all of them: shared pages are divided among their users"),
    "peak_rss": Column("int64", "bytes", "highest resident memory of the process so far"),
    "shm_used": Column("int64", "bytes", "files in /dev/shm, of all processes"),
    "shm_total": Column("int64", "bytes", "size of /dev/shm"),
    "cgroup_used": Column("int64", "bytes", "memory of the cgroup that the kernel cannot drop"),
    "cgroup_limit": Column("int64", "bytes", "lowest limit of the cgroup and those above it"),
    "pinned": Column("int64", "bytes", "pinned memory of PyTorch's host allocator, cached blocks included"),
    "pinned_used": Column("int64", "bytes", "pinned memory in use"),
    "pinned_tensors": Column("int64", "bytes", "pinned tensors of at least 1 MiB that the program holds"),
    "pinned_blocks": Column("int64", "bytes", "their blocks, rounded up to powers of two"),
    "mps_used": Column("int64", "bytes", "tensors of PyTorch's MPS allocator, which are in the memory of the machine"),
    "mps_driver": Column("int64", "bytes", "everything that Metal allocated for this process, cached blocks included"),
    "mps_limit": Column("int64", "bytes", "memory that Metal recommends not to exceed"),
}

# ---------------------------------------------------------------------- the fields of PyTorch's memory snapshots
# Content of a field: a whole number; one of a few words; a list of dicts; two whole numbers; free text; anything else,
# which is not read; a truth value; a number of bytes; the lines of a Python traceback.
NUMBER, WORD, BOXED, PAIR, TEXT, IGNORED, FLAG, SIZE, LINES = range(9)
ENTRY, SEGMENT, BLOCK, FRAME = "entry", "segment", "block", "frame"


class Field(NamedTuple):
    """One key of a snapshot.

    Attributes:
        name: The key.
        level: The dicts that contain it: ENTRY (of ``device_traces``), SEGMENT, BLOCK or FRAME. ``Frame`` stores
            the fields of frames.
        kind: Type of its content.
        column: The column of ``RawDevice`` or of the tables SEGMENTS and BLOCKS that stores it, or "" if none.
        missing: The value of a number, size or word if the key is missing.
        constant: Value that memdiag writes into every dict for a field that is not read, and into dicts without a
            TEXT; None for no such value.
        words: The words of a WORD, by the number that its column stores.
        meaning: For a plain field (a NUMBER, TEXT, LINES, SIZE or FLAG) with a column of its own: the meaning of the
            column, which needs no row in EVENTS, SEGMENTS or BLOCKS.
    """

    name: str
    level: str
    kind: int
    column: str = ""
    missing: int = -1
    constant: str | None = None
    words: tuple[str, ...] = ()
    meaning: str = ""


FIELDS = (
    Field("action", ENTRY, WORD, "action", words=ACTIONS),
    Field("addr", ENTRY, NUMBER, "addr"),
    Field("device_free", ENTRY, NUMBER, "addr"),  # of a failed request, which has no address
    Field("size", ENTRY, NUMBER, "size"),
    Field("stream", ENTRY, NUMBER, "stream", missing=0),
    Field("time_us", ENTRY, NUMBER, "time_us"),
    Field("frames", ENTRY, BOXED, "stack"),
    Field("pool_id", ENTRY, PAIR, "pool"),
    Field("user_metadata", ENTRY, TEXT, "user_metadata", meaning="text set by _set_memory_metadata"),
    Field("internal_metadata", ENTRY, TEXT, "internal_metadata", meaning="text set by the allocator itself"),
    Field("compile_context", ENTRY, TEXT, "compile_context", constant="N/A", meaning="region of compiled code"),
    Field("forward_frames", ENTRY, LINES, "forward_stack", meaning="call of the operation that backward runs for"),
    Field("device", ENTRY, IGNORED),
    Field("version_counter", ENTRY, IGNORED),
    Field("device", SEGMENT, NUMBER, missing=0),
    Field("address", SEGMENT, NUMBER, "address"),
    Field("total_size", SEGMENT, SIZE, "total_size"),
    Field("allocated_size", SEGMENT, SIZE, "allocated_size"),
    Field("active_size", SEGMENT, SIZE, "active_size"),
    Field("requested_size", SEGMENT, SIZE, "requested_size"),
    Field("stream", SEGMENT, NUMBER, "stream", missing=0),
    Field("segment_type", SEGMENT, WORD, "small", words=("large", "small")),
    Field("segment_pool_id", SEGMENT, PAIR, "pool"),
    Field("is_expandable", SEGMENT, FLAG, "expandable"),
    Field("frames", SEGMENT, BOXED, "stack"),
    Field("forward_frames", SEGMENT, LINES, "forward_stack", meaning="call of the operation that backward runs for"),
    Field("blocks", SEGMENT, BOXED),
    Field("address", BLOCK, NUMBER, "address"),
    Field("size", BLOCK, SIZE, "size", missing=0),
    Field("requested_size", BLOCK, SIZE, "requested_size"),
    Field("state", BLOCK, WORD, "state", missing=ACTIVE_ALLOCATED, words=BLOCK_STATES),
    Field("frames", BLOCK, BOXED, "stack"),
    Field("forward_frames", BLOCK, LINES, "forward_stack", meaning="call of the operation that backward runs for"),
    Field("history", BLOCK, BOXED),
    Field("real_size", BLOCK, IGNORED),
    Field("filename", FRAME, TEXT),
    Field("line", FRAME, NUMBER),
    Field("name", FRAME, TEXT),
    Field("fx_node_op", FRAME, TEXT),
    Field("fx_node_name", FRAME, TEXT),
    Field("fx_node_target", FRAME, TEXT),
    Field("fx_original_trace", FRAME, TEXT),
)

_COLUMNS = {
    NUMBER: ("int64", "", "; -1: the file does not say"),
    SIZE: ("int64", "bytes", "; -1: the file does not say"),
    TEXT: ("int32", "", ", index into Trace.strings; -1: none"),
    LINES: ("int32", "", ", index into Stacks; -1: unknown"),
    FLAG: ("bool", "", ""),
}


def _with_columns_of_fields(level: str, table: dict[str, Column]) -> dict[str, Column]:
    """Returns the columns of a table, followed by those of the plain fields of a level."""
    plain = {field.column: field for field in FIELDS if field.level == level and field.meaning}
    made = {name: _COLUMNS[field.kind] for name, field in plain.items()}
    return table | {name: Column(dtype, unit, plain[name].meaning + note) for name, (dtype, unit, note) in made.items()}


EVENTS = _with_columns_of_fields(ENTRY, EVENTS)
SEGMENTS = _with_columns_of_fields(SEGMENT, SEGMENTS)
BLOCKS = _with_columns_of_fields(BLOCK, BLOCKS)
