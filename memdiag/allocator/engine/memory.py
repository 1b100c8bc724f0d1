"""The state of the model, with named fields: one record of settings and counters, and one array of nodes.

Compiled functions get ``state`` (one record) and ``nodes`` (an array of records). Both can be kept, copied and enlarged
between two calls. A node is a block, a segment from the driver, a pool, a set of free blocks, a stream or an event.
Links between nodes are indices into ``nodes``. Node 0 means none: it looks like a block in use, so that no block merges
with it. Fields that are never used at the same time share memory, as in a C union. A node therefore has 128 bytes, and
the fields that a search reads are in its first cache line.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from memdiag.trace.compiled import lean_part

State = Any  # a record of STATE; numba knows the types of its fields, mypy does not
Nodes = Any  # an array of NODE
NONE = 0

# Kinds of nodes. Idle blocks come first (UNMAPPED: addresses without memory); adjacent blocks of the same idle kind
# are always merged.
UNMAPPED, FREE, LIVE, PENDING, A_SEGMENT, GONE, A_STITCHED_BLOCK, A_PART = range(8)
UNMAPPED_SET = 1  # the node after a lane is the set of its unmapped blocks

_FIELDS_OF_NODES: dict[str, tuple[str, ...]] = {
    # Sets of blocks are search trees by (key, tie) with links to the next and the previous member; see ``ordered``.
    "a block": (
        "key",
        "tie",
        "left",
        "right",
        "parent",
        "priority",
        "succ",
        "pred",
        "prev",
        "next",
        "size",
        "offset",
        "segment",
        "lane",
        "kind",
        "gc_count_base",
    ),
    "a block in use, which is in no set": ("event_count", "", "tensor", "requested_size", "stream_uses"),
    # page: bytes of a page of an expandable segment; 0: a segment of cudaMalloc. place: sort key of equal free
    # blocks of different segments.
    "a segment": ("number", "page", "place", "address", "length"),
    # A lane has the free blocks of one half (small or large) of a pool on one stream; it is the head of their set.
    # given_at: number of recorded addresses that have been used for it.
    "a lane": ("pool", "stream", "", "", "is_small", "", "", "", "", "", "given_at"),
    # use_count, cuda_malloc_count: as in PrivatePool. use_on_oom_turn: position among the pools that serve the default
    # pool on OOM (0: it does not); use_on_oom: the same while the pool exists. is_captured: its requests are made
    # during a graph capture.
    "a pool": (
        "use_count",
        "cuda_malloc_count",
        "exists",
        "is_freeable",
        "is_private",
        "index",
        "no_split",
        "use_on_oom",
        "held_bytes",
        "is_open",
        "use_on_oom_turn",
        "is_captured",
    ),
    "a stream": ("num_issued", "num_finished", "first_event", "last_event"),
    "an event, or a stream that a block was used on": ("sequence", "block", "next_event", "used_stream", "in_capture"),
    # Fields of GMLake's segments, stitched blocks and primitive blocks (memdiag.allocator.policies.gmlake).
    "a segment of GMLake": ("", "", "", "", "", "", "first_chunk", "first_block", "is_released"),
    "a stitched block": ("", "", "", "", "", "", "", "", "first_part", "", "", "use", "older", "newer"),
    "a primitive block": ("",) * 15 + ("next_primitive",),
}

_STATE = (
    # Settings.
    "expandable",
    "max_split_size",
    "split_is_limited",
    "max_non_split_rounding",
    "small_page",
    "large_page",
    "limit",
    "gc",
    "gc_begins_at",
    "reject_above",
    "alignment",
    "is_lazy",
    "most_reserved",
    # Rules of the version (memdiag.allocator.versions.rules).
    "own_stream_counts",
    "ties_by_birth",
    "scope_is_capture",
    "capture_uses_count",
    "private_is_expandable",
    "use_on_oom_last",
    "use_on_oom_expandable",
    "collects_expandable",
    "reuse_needs_capture",
    "scope_end_frees",
    # When streams finish their work (BY_NEXT_CALL ...).
    "streams_finish",
    # First node, or number of nodes, of each kind.
    "num_streams",
    "num_pools",
    "lanes",
    "pools",
    "streams",
    "waiting",
    "given",
    "num_given",
    "given_by_lane",
    "num_segments_before",
    # The device.
    "device_free",
    "device_total",
    "external",
    "num_segments",
    "next_place",
    "next_address",
    # Nodes: first dropped node, first unused node, number in use, capacity; then the seed of the priorities.
    "spare",
    "fresh",
    "num_nodes",
    "capacity",
    "seed",
    "num_births",
    # Counters of the allocator.
    "get_free_blocks_call_count",
    "reserved",
    "allocated",
    "active",
    "requested",
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
    "num_events",
    "num_scopes",
    "first_deferred",
    "num_use_on_oom_pools",
    "is_broken",
    # The log and the loop over the calls.
    "log_level",
    "num_logged",
    "log_capacity",
    "call",
    "at",
    "until",
)

# When streams finish their work (``state.streams_finish``).
BY_NEXT_CALL, BY_HAND, AS_RECORDED = range(3)

# The entries that are logged (``state.log_level``).
LOG_NOTHING, LOG_SEGMENTS, LOG_ALL = range(3)
LOG_COLUMNS = ("action", "call", "seg", "off", "size", "stream", "pool", "tensor")

UNLIMITED = 1 << 62


class _FieldRecord(np.record):  # type: ignore[misc] # final in the stubs, but not in numpy
    """A record whose fields come before numpy's own attributes (``size``), as they do for numba."""

    def __getattribute__(self, name: str) -> Any:
        try:
            return np.void.__getitem__(self, name)
        except (KeyError, ValueError, IndexError):
            return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def record_type(*names: str) -> Any:
    """Returns the type of a record of 64-bit integers."""
    return np.dtype((_FieldRecord, [(name, np.int64) for name in names]))


def _node_type() -> Any:
    offsets = {name: 8 * at for names in _FIELDS_OF_NODES.values() for at, name in enumerate(names) if name}
    fields = {
        "names": list(offsets),
        "formats": [np.int64] * len(offsets),
        "offsets": list(offsets.values()),
        "itemsize": 128,
    }
    return np.dtype((_FieldRecord, fields))


NODE = _node_type()
STATE = record_type(*_STATE)


def new_record(kind: Any) -> Any:
    """Returns one record of zeros, whose fields compiled functions can change."""
    return np.zeros(1, kind)[0]


def more_nodes(nodes: Nodes, capacity: int) -> Nodes:
    """Returns ``nodes`` with room for ``capacity``."""
    more = np.zeros(capacity, NODE)
    more.view(np.int64)[: nodes.size * 16] = nodes.view(np.int64)  # numpy copies records field by field
    return more


@lean_part
def new_node(state: State, nodes: Nodes) -> int:
    """Returns an unused node; it prefers dropped ones, so that the used memory stays small and compact."""
    state.num_nodes += 1
    node = state.spare
    if node != NONE:
        state.spare = nodes[node].next
        return node
    node = state.fresh
    state.fresh = node + 1
    state.seed = (state.seed * 1103515245 + 12345) & 0x7FFFFFFF
    nodes[node].priority = state.seed
    return node


@lean_part
def drop_node(state: State, nodes: Nodes, node: int) -> None:
    """Drops a node, so that it can be reused."""
    state.num_nodes -= 1
    nodes[node].kind = GONE
    nodes[node].next = state.spare
    state.spare = node


@lean_part
def round_up(size: int, unit: int) -> int:
    """Rounds up to a multiple."""
    return (size + unit - 1) // unit * unit
