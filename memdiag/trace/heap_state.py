"""What the walk over a heap reads and changes: cells of the address space, blocks, tensors and running sums, as columns.

These tuples of arrays are for compiled code. Only functions of ``lean`` and ``lean_part`` may take them: those of
``njit`` count references to every array at every call.
"""

from __future__ import annotations

from typing import NamedTuple

from memdiag.trace.table import Array

# Positions in the vector of sums.
RESERVED, ALLOCATED, ACTIVE, REQUESTED, FREE, WHOLE, NUM_SUMS = range(7)
# Positions in the vector of anomalies; RESIZED counts blocks from before the trace whose size was guessed and mended.
OVERLAP, OUTSIDE, SEGMENT_GONE_UNDER_BLOCK, TOO_LARGE, GAP, REOPENED, RESIZED, NUM_ANOMALIES = range(8)
# Rows of pieces.
CELL, OPENED_AT, CLOSED_AT, GROUP, EXPANDABLE, SEGMENT, NUM_PIECE_ROWS = range(7)
# States of a tensor.
GONE, LIVE, PENDING = range(3)


class Cells(NamedTuple):
    """The address space in cells (``regions``), as it is now.

    Attributes:
        bounds: Addresses at which cells begin; the last one is only an end.
        group, segment, expandable: Of each cell; group -1: it is not reserved.
        breaks, break_starts: Set (``bits``) of the boundaries that a free range cannot cross.
    """

    bounds: Array
    group: Array
    segment: Array
    expandable: Array
    breaks: Array
    break_starts: Array


class PlacedBlocks(NamedTuple):
    """The blocks, by place: the row of their address among all addresses at which blocks ever begin.

    Attributes:
        address: Sorted addresses.
        size, owner: Bytes and tensor of the block that is, or was last, at each place.
        live, live_starts: Set (``bits``) of the places with a block.
    """

    address: Array
    size: Array
    owner: Array
    live: Array
    live_starts: Array


class Tensors(NamedTuple):
    """The lifecycles.

    Attributes:
        place: Of each tensor's block.
        alloc_at, requested_at, completed_at: Events; the last two are written to where a tensor must have been gone
            earlier.
        requested, rounded: Bytes.
        known: Bytes of the block where the file itself says so; -1 elsewhere.
        block: Bytes of the block: written.
        group: Of the block: written.
        state: GONE, LIVE or PENDING: written.
    """

    place: Array
    alloc_at: Array
    requested_at: Array
    completed_at: Array
    requested: Array
    rounded: Array
    known: Array
    block: Array
    group: Array
    state: Array


class SplitRules(NamedTuple):
    """How the allocator cuts blocks.

    Attributes:
        small: Whether each group is a pool of small blocks.
        uncut: Groups in which a block is all that was free around it.
        large_page: Bytes of a page of an expandable segment, in pools of large blocks.
        fine: Whether large blocks are split like small ones, as in expandable segments.
        max_split: Bytes from which a block is not split.
    """

    small: Array
    uncut: Array
    large_page: int
    fine: bool
    max_split: int


class Totals(NamedTuple):
    """Running sums over blocks and free ranges.

    Attributes:
        sums: By RESERVED and so on; FREE: bytes of free ranges, WHOLE: those that a retry gives back to the driver.
        anomalies: By OVERLAP and so on.
        rest: FREE less WHOLE, of each group.
        sizes, size_start: Distinct reference sizes, sorted within each group; group g's at size_start[g] to
            size_start[g + 1].
        rest_below: Fenwick tree over these sizes of each group: rest in ranges below each size.
        edges: Sorted distinct addresses at which blocks or cells begin.
        tree_of, trees: For each group with references a tree of maxima over ``edges``: bytes of the free range that
            begins there; tree_of: its row for each group, -1: none.
    """

    sums: Array
    anomalies: Array
    rest: Array
    sizes: Array
    size_start: Array
    rest_below: Array
    edges: Array
    tree_of: Array
    trees: Array


class Heap(NamedTuple):
    """All of it."""

    cells: Cells
    blocks: PlacedBlocks
    tensors: Tensors
    rules: SplitRules
    totals: Totals


class WalkedEvents(NamedTuple):
    """The events, and the plan (``regions``) of those that concern segments.

    Attributes:
        action, tensor: Of each event.
        row: Row of the plan for each segment event; -1 for others.
        opens, expandable, lo, hi, group, segment: As in ``RegionPlan``.
    """

    action: Array
    tensor: Array
    row: Array
    opens: Array
    expandable: Array
    lo: Array
    hi: Array
    group: Array
    segment: Array


class ReferenceRows(NamedTuple):
    """The reference requests.

    Attributes:
        of: Reference of each event; -1: none.
        opened_at, group, position: First event, group, and position of the size among ``Totals.sizes``, of each.
        largest: Largest free range before each (-1: its group has no tree): written.
    """

    of: Array
    opened_at: Array
    group: Array
    position: Array
    largest: Array


class Record(NamedTuple):
    """What the walk writes down.

    Attributes:
        curves: (7, events): reserved, allocated, active, requested, cache, stranded, foreign.
        start: Sums before the first event.
        pieces: (NUM_PIECE_ROWS, rows): each time that a cell was reserved.
        open_piece: Row of pieces of each reserved cell.
    """

    curves: Array
    start: Array
    pieces: Array
    open_piece: Array
