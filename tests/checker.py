"""Computes the expected trace of a snapshot independently, in plain objects: slow, naive, and without memdiag's code.

It is written from the definitions (docs/fragmentation.md) and from PyTorch's log format, not from memdiag's code. It
undoes the entries one by one from the final state to get the initial one, then replays them. Every block is in a dict,
free ranges are computed by subtracting intervals, and every number is summed again at every event. It supports only
genuine files: impossible states raise ``Contradiction``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.intervals import MIB, Block, Contradiction, Group, Moment, Range, Reference, joined, minus

OPENS = {"segment_alloc", "segment_map"}
CLOSES = {"segment_free", "segment_unmap"}


@dataclass(frozen=True)
class Sizes:
    """Settings that determine sizes.

    Attributes:
        pad: Bytes added to every request.
        divisions: Divisions of a power of two, one for each of 16 sizes from 1 MiB on.
        max_split: Blocks of at least this size are not split, or None for no limit.
        page: Bytes of a large segment or page.
        fine: Whether expandable segments are on.
    """

    pad: int = 0
    divisions: tuple[int, ...] = (0,) * 16
    max_split: int | None = None
    page: int = 20 * MIB
    fine: bool = False

    def round(self, requested: int) -> int:
        """Returns the rounded size of a request."""
        size = requested + self.pad
        divisions = self.divisions[min(max(size.bit_length() - 21, 0), 15)]
        if divisions > 1 and size > 512 * divisions:
            step = (1 << (size.bit_length() - 1)) // divisions
            return -(-size // step) * step
        return max(512, (size + 511) // 512 * 512)


class Checker:
    """Reconstructs one device of a snapshot.

    Args:
        entries: The trace, as dicts.
        segments: The final state, as dicts, or None if the file has none.
        sizes: Settings.

    Attributes:
        blocks: Every lifecycle.
        references: Every request that reserved memory, was retried or failed (or the largest one, if none did).
    """

    def __init__(
        self, entries: Sequence[dict[str, Any]], segments: Sequence[dict[str, Any]] | None, sizes: Sizes
    ) -> None:
        self.entries = entries
        self.sizes = sizes
        self.final_segments = segments
        self._known: dict[int, int] = {}  # by address: known bytes of blocks from before the trace
        self.start_ranges, self._groups = self._undo_segments()
        self.start_blocks = self._undo_blocks()
        self._final = {b["address"]: b for s in segments or () for b in self._blocks_of(s) if b["state"] != "inactive"}
        for _ in range(1000):
            try:
                self._replay(None)
                break
            except _Mended:
                continue
        self.references = self._references()

    # ------------------------------------------------------------------------------------------- undo all entries

    @staticmethod
    def _blocks_of(segment: dict[str, Any]) -> list[dict[str, Any]]:
        at, blocks = segment["address"], []
        for block in segment["blocks"]:
            asked = block.get("requested_size")
            if asked is None and block.get("history"):
                asked = block["history"][0].get("real_size")
            blocks.append(
                {
                    "address": block.get("address", at),
                    "size": block["size"],
                    "state": block["state"],
                    "requested": asked,
                }
            )
            at += block["size"]
        return blocks

    def _group_of_segment(self, segment: dict[str, Any]) -> Group:
        kind = segment.get("segment_type")
        small = kind == "small" if kind is not None else segment["total_size"] <= 2 * MIB
        pool = tuple(segment.get("segment_pool_id", (0, 0)))
        return Group(pool, small, segment.get("stream", 0))  # type: ignore[arg-type]

    def _group_of_entry(self, number: int) -> Group:
        """Returns the pool of a segment event.

        It comes from the entry, else from the final owner of the address; otherwise it is the default pool.
        """
        entry = self.entries[number]
        pool: tuple[int, int] | None = None
        if "pool_id" in entry:
            pool = tuple(entry["pool_id"])  # type: ignore[assignment]
        last = next(
            (s for s in self.final_segments or () if s["address"] <= entry["addr"] < s["address"] + s["total_size"]),
            None,
        )
        if pool is None and last is not None:
            pool = self._group_of_segment(last).pool
        small = entry["size"] == 2 * MIB
        if entry["action"] == "segment_unmap":
            small = self._unmapped_is_small(number, last)
        return Group(pool or (0, 0), small, entry.get("stream", 0))

    def _unmapped_is_small(self, number: int, last: dict[str, Any] | None) -> bool:
        """Returns whether an unmap belongs to the small pool.

        The previous map decides, else a block in it, else a later map or the final state.
        """
        start, end = self.entries[number]["addr"], self.entries[number]["addr"] + self.entries[number]["size"]
        over = [
            n
            for n, e in enumerate(self.entries)
            if e["action"] == "segment_map" and e["addr"] < end and start < e["addr"] + e["size"]
        ]
        before = [n for n in over if n < number]
        if before:
            return bool(self.entries[before[-1]]["size"] == 2 * MIB)
        for entry in self.entries[:number]:
            if entry["action"] in ("alloc", "free_requested", "free_completed") and start <= entry["addr"] < end:
                return self.sizes.round(entry["size"]) <= MIB
        if (end - start) % self.sizes.page:
            return True
        if over:
            return bool(self.entries[over[0]]["size"] == 2 * MIB)
        return last is not None and self._group_of_segment(last).small

    def _undo_segments(self) -> tuple[list[Range], dict[int, Group]]:
        ranges, groups = [], {}
        for number, segment in enumerate(self.final_segments or ()):
            ident = None if segment.get("is_expandable") else -1 - number
            start = segment["address"]
            ranges.append(Range(start, start + segment["total_size"], self._group_of_segment(segment), ident))
        for number in reversed(range(len(self.entries))):
            entry = self.entries[number]
            if entry["action"] in OPENS | CLOSES:
                groups[number] = self._group_of_entry(number)
            if entry["action"] in OPENS and self.final_segments is not None:
                ranges = minus(ranges, entry["addr"], entry["addr"] + entry["size"])
            elif entry["action"] in OPENS:  # without a final state, it may have been released unseen, but not before
                ranges = [r for r in ranges if r.end <= entry["addr"] or r.start >= entry["addr"] + entry["size"]]
            elif entry["action"] in CLOSES:
                ident = None if entry["action"] == "segment_unmap" else number
                ranges.append(Range(entry["addr"], entry["addr"] + entry["size"], groups[number], ident))
                joined(ranges)
        return ranges, groups

    def _undo_blocks(self) -> dict[int, tuple[int, bool]]:
        """Returns the initial state: address to requested bytes, and whether it was pending."""
        there: dict[int, tuple[int, bool]] = {}
        for segment in self.final_segments or ():
            for block in self._blocks_of(segment):
                if block["state"] != "inactive":
                    asked = block["size"] if block["requested"] is None else block["requested"]
                    there[block["address"]] = asked, block["state"] != "active_allocated"
        for entry in reversed(self.entries):
            address = entry.get("addr")
            if entry["action"] == "alloc":
                if address not in there and self.final_segments is not None:
                    raise Contradiction(f"{address:#x} is allocated and gone without a free")
                there.pop(address, None)
            elif entry["action"] == "free_completed":
                if address in there:
                    raise Contradiction(f"{address:#x} is freed and still there")
                there[address] = entry["size"], True
            elif entry["action"] == "free_requested":
                if address in there and not there[address][1]:
                    raise Contradiction(f"{address:#x} is freed and not waiting")
                there[address] = entry["size"], False
        return there

    # ------------------------------------------------------------------------------------------- replay all entries

    def _taken(self, rounded: int, room: int, group: Group) -> int:
        """Returns the bytes of the block that a request gets from ``room`` free bytes."""
        if group.small or self.sizes.fine:
            return rounded if room - rounded >= 512 else room
        if room - rounded > MIB and (self.sizes.max_split is None or rounded < self.sizes.max_split):
            return rounded
        return room

    def _begin(self) -> tuple[list[Range], dict[int, Block]]:
        n = len(self.entries)
        ranges = list(self.start_ranges)
        blocks: dict[int, Block] = {}
        in_order = sorted(self.start_blocks)
        touched = {e.get("addr") for e in self.entries if e["action"] in ("alloc", "free_requested", "free_completed")}
        for place, address in enumerate(in_order):
            asked, pending = self.start_blocks[address]
            home = next((r for r in joined(ranges) if r.start <= address < r.end), None)
            if home is None:
                raise Contradiction(f"{address:#x} lies outside of every segment")
            end = home.end
            if place + 1 < len(in_order):
                end = min(end, in_order[place + 1])
            size = self._taken(self.sizes.round(asked), end - address, home.group)
            if address in self._final and address not in touched:
                size = self._final[address]["size"]
            size = self._known.get(address, size)
            blocks[address] = Block(address, size, asked, -1, -1 if pending else n, n, home.group)
        return ranges, blocks

    def _alloc(self, number: int, ranges: list[Range], live: dict[int, Block]) -> Block:
        entry = self.entries[number]
        address = entry["addr"]
        home = next((r for r in joined(ranges) if r.start <= address < r.end), None)
        if home is None or address in live:
            raise Contradiction(f"{address:#x} cannot be allocated at event {number}")
        inside = [b for b in live.values() if home.start <= b.address < home.end]
        before = max((b for b in inside if b.address < address), key=lambda b: b.address, default=None)
        room_end = min((b.address for b in inside if b.address > address), default=home.end)
        edge = home.start if before is None else before.end
        if edge != address:
            # An allocation takes the low end of a free range, which shows the size of an initial block before it.
            coarse = not (home.group.small or self.sizes.fine)
            guessed = before is not None and before.alloc_at < 0 and before.address not in self._known
            if guessed and coarse and -MIB <= address - edge <= MIB:
                assert before is not None
                self._known[before.address] = address - before.address
                raise _Mended
            if edge > address or address - edge >= 16 * 1024:  # less: aligned
                raise Contradiction(f"{address:#x} is not the low end of a free range at event {number}")
        size = self._taken(self.sizes.round(entry["size"]), room_end - address, home.group)
        n = len(self.entries)
        lasts = not any(
            e.get("addr") == address and e["action"] in ("alloc", "free_completed") for e in self.entries[number + 1 :]
        )
        if lasts and address in self._final:
            size = self._final[address]["size"]
        if address + size > room_end:
            raise Contradiction(f"{address:#x} does not fit at event {number}")
        return Block(address, size, entry["size"], number, n, n, home.group)

    def _replay(self, wanted: set[int] | None) -> dict[int, Moment]:
        """Executes all entries; returns the state after the ``wanted`` events (-1: before the first)."""
        ranges, live = self._begin()
        self.blocks = list(live.values())
        moments: dict[int, Moment] = {}

        def look(number: int) -> None:
            if wanted is not None and number in wanted:
                held = tuple(
                    (b.address, b.size, b.requested, b.free_requested_at <= number)
                    for b in sorted(live.values(), key=lambda b: b.address)
                )
                moments[number] = Moment(joined(ranges), held)

        look(-1)
        for number, entry in enumerate(self.entries):
            action, address = entry["action"], entry.get("addr")
            if action in OPENS:
                ident = None if action == "segment_map" else number
                ranges.append(Range(address, address + entry["size"], self._groups[number], ident))
                joined(ranges)
            elif action in CLOSES:
                ranges = minus(ranges, address, address + entry["size"])
                if any(b.address < address + entry["size"] and address < b.end for b in live.values()):
                    raise Contradiction(f"memory goes at event {number} with a block in it")
            elif action == "alloc":
                live[address] = self._alloc(number, ranges, live)
                self.blocks.append(live[address])
            elif action in ("free_requested", "free_completed"):
                if address not in live or (action == "free_requested" and live[address].free_requested_at < number):
                    raise Contradiction(f"{address:#x} is freed at event {number} and was not there")
                live[address].free_requested_at = min(live[address].free_requested_at, number)
                if action == "free_completed":
                    live.pop(address).free_completed_at = number
            look(number)
        return moments

    def moments(self, events: Iterable[int]) -> dict[int, Moment]:
        """Returns the state after each of ``events`` (-1: before the first)."""
        return self._replay(set(events))

    # ------------------------------------------------------------------------------------------- reference requests

    def _references(self) -> list[Reference]:
        found: dict[int, Reference] = {}
        requests = [n for n, e in enumerate(self.entries) if e["action"] in ("alloc", "oom")]
        for number, entry in enumerate(self.entries):
            if entry["action"] in OPENS:
                after = next((r for r in requests if r > number), None)
                if after is not None:
                    found[after] = self._reference(after, self._groups[number])
        for number in requests:
            if self.entries[number]["action"] == "oom" and number not in found:
                found[number] = self._reference(number, None)
        if not found and requests:
            largest = max(requests, key=lambda n: (self.entries[n]["size"], -n))
            found[largest] = self._reference(largest, None)
        return [found[number] for number in sorted(found)]

    def _reference(self, number: int, group: Group | None) -> Reference:
        entry = self.entries[number]
        size = entry["size"] if entry["action"] == "oom" else self.sizes.round(entry["size"])
        pool = tuple(entry["pool_id"]) if "pool_id" in entry else (0, 0)
        group = group or Group(pool, size <= MIB, entry.get("stream", 0))  # type: ignore[arg-type]
        return Reference(number, size, group)

    def reference_at(self, number: int) -> Reference | None:
        """Returns the reference request of event ``number``.

        It is the next request that reserved memory or failed, else the last one.
        """
        return next((r for r in self.references if r.at >= number), self.references[-1] if self.references else None)


class _Mended(Exception):
    """Raised if a block from before the trace has another size than assumed; the caller starts again."""
