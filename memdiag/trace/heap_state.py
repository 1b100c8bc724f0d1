"""The state of the walk over a heap: cells of the address space, blocks, tensors and running sums, as columns.

These tuples of arrays are for compiled code. Only functions of ``lean`` and ``lean_part`` may take them: those of
``njit`` count references to every array at every call.
"""

from __future__ import annotations

from typing import NamedTuple

from memdiag.trace.table import Array

# Positions in the vector of sums.
RESERVED, ALLOCATED, ACTIVE, REQUESTED, FREE, WHOLE, NUM_SUMS = range(7)
# Positions in the vector of anomalies; RESIZED counts blocks from before the trace whose guessed size was corrected.
OVERLAP, OUTSIDE, SEGMENT_GONE_UNDER_BLOCK, TOO_LARGE, GAP, REOPENED, RESIZED, NUM_ANOMALIES = range(8)
# Rows of pieces.
CELL, OPENED_AT, CLOSED_AT, GROUP, EXPANDABLE, SEGMENT, NUM_PIECE_ROWS = range(7)
# States of a tensor.
GONE, LIVE, PENDING = range(3)


class Cells(NamedTuple):
    """The current state of the address space, in cells (``regions``).

    Attributes:
        bounds: Addresses at which cells begin; the last one is only an end.
        group, segment, expandable: Values of each cell; group -1: it is not reserved.
        breaks, break_starts: Set (``bits``) of the boundaries that a free range cannot cross.
    """

    bounds: Array
    group: Array
    segment: Array
    expandable: Array
    breaks: Array
    break_starts: Array


class Extent(NamedTuple):
    """The segment that contains a cell.

    Attributes:
        cell: The cell.
        first_cell: The first cell of the segment.
        first, end: The first address and the end of the segment.
    """

    cell: int
    first_cell: int
    first: int
    end: int


class PlacedBlocks(NamedTuple):
    """The blocks, by place. A place is the index of an address among all start addresses of blocks in the trace.

    Attributes:
        address: Sorted addresses.
        cell: Cell that contains each address; -1: none does.
        size, owner: Bytes and tensor of the current or last block at each place.
        live, live_starts: Set (``bits``) of the places with a block.
    """

    address: Array
    cell: Array
    size: Array
    owner: Array
    live: Array
    live_starts: Array


class Tensors(NamedTuple):
    """The lifecycles, with one entry per tensor.

    Attributes:
        place: Place of its block.
        alloc_at, requested_at, completed_at: Events. The walk lowers the last two if a tensor must have been freed
            earlier.
        requested, rounded: Requested and rounded bytes.
        known: Bytes of the block if the file records them, else -1.
        block: Bytes of the block; output.
        group: Group of the block; output.
        state: GONE, LIVE or PENDING; output.
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
    """How the allocator splits blocks.

    Attributes:
        small: Whether each group is a pool of small blocks.
        uncut: Whether each group never splits: a block takes the whole free range.
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
        sums: Bytes, at the positions RESERVED and so on. FREE: bytes of free ranges; WHOLE: those that a retry
            releases.
        anomalies: Numbers of anomalies, at the positions OVERLAP and so on.
        rest: FREE - WHOLE of each group.
        sizes, size_start: Distinct reference sizes, sorted within each group; group g's at size_start[g] to
            size_start[g + 1].
        rest_below: Fenwick tree over these sizes of each group: rest in ranges below each size.
        tree_of, trees: For each group with references a tree of maxima: bytes of the free range at each leaf
            (``free_ranges.leaf_after``); tree_of: its row for each group, -1: none.
    """

    sums: Array
    anomalies: Array
    rest: Array
    sizes: Array
    size_start: Array
    rest_below: Array
    tree_of: Array
    trees: Array


class Heap(NamedTuple):
    """The complete state of the heap."""

    cells: Cells
    blocks: PlacedBlocks
    tensors: Tensors
    rules: SplitRules
    totals: Totals


class WalkedEvents(NamedTuple):
    """The events, and the plan (``regions``) of those that concern segments.

    Attributes:
        action, tensor: Action and tensor of each event.
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
        of: Reference request of each event; -1: none.
        opened_at, group, position: First event and group of each request, and the position of its size in
            ``Totals.sizes``.
        largest: Largest free range before each request (-1: its group has no tree); output.
    """

    of: Array
    opened_at: Array
    group: Array
    position: Array
    largest: Array


class Record(NamedTuple):
    """The results of the walk.

    Attributes:
        curves: (7, events): reserved, allocated, active, requested, cache, stranded, foreign.
        start: Sums before the first event.
        pieces: (NUM_PIECE_ROWS, rows): one row for each reservation of a cell.
        open_piece: For each reserved cell, its row in ``pieces``.
    """

    curves: Array
    start: Array
    pieces: Array
    open_piece: Array
