r"""Finds the places in a stream of any size that are worth parsing: a few lines around each text typical of failures.

A log of gigabytes is read only once, and Python code per line would be too slow. But logs repeat the same lines with
different numbers. So digits, spaces, quotation marks and capital letters are removed from a chunk. Few distinct lines
remain, and only new ones are searched, with their neighbours, since terminals wrap inside words. The search looks for a
few words that messages contain, and then for the dialects' anchors around them. Around each anchor, lines are cut
out and read. A line that was read a dozen times in different contexts without being part of a message is not read again
among known lines, unless its numbers may decide. The first and the last chunk are searched for all anchors: a shell's
message about a killed program, in any language, comes last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from memdiag.oom.gate import (
    DROPPED_IN_LINE,
    DROPPED_IN_SHAPE,
    DROPPED_IN_WORDS,
    LOWER,
    REACH,
    Gate,
    plain,
)
from memdiag.oom.pieces import LONGEST_LINE, line_indices, pieces, starts

LINES_BEFORE = 24
LINES_AFTER = 80
LINES_EARLIER = 240  # before a window, for the outer frames of a traceback
LINES_OF_WINDOW = 1500
_SMALL = 1 << 14
_MOST_REMEMBERED = 1 << 15
_LONGEST_REMEMBERED = 400
# Readings after which a line that was never part of a message is known to be harmless.
_OFTEN_ENOUGH = 12
_COMPANY = 3  # lines before and after such a line that must also be known


@dataclass(frozen=True, slots=True)
class TextWindow:
    """Consecutive lines.

    Attributes:
        lines: Line number in the file, and the line; a very long line is in several pieces with the same number.
        first: Messages that begin before the line with this index belong to the previous window.
        end: Messages that begin at the line with this index or later belong to the next window, which contains that
            line as well.
        hits: Indices of the lines for which it was cut out, without harmless ones; None if any line may be a message.
        earlier: Preceding lines, for the outer frames of a traceback; they are not searched for messages.
        read: Indices of the lines that are part of a message, set by the reader.
    """

    lines: list[tuple[int, str]]
    first: int
    end: int
    hits: frozenset[int] | None = None
    earlier: list[str] = field(default_factory=list)
    read: set[int] = field(default_factory=set)


@dataclass
class ReadTally:
    """Amount of text read.

    Attributes:
        num_bytes: Bytes, decompressed.
        num_lines: Lines.
    """

    num_bytes: int = 0
    num_lines: int = 0


def windows(chunks: Iterable[bytes], gate: Gate, tally: ReadTally) -> Iterator[TextWindow]:
    """Yields the windows of a stream that may contain a message, in order.

    A short text is one window, without a search.

    Args:
        chunks: The text, in UTF-8.
        gate: Defines what to search for.
        tally: Counts what is read.
    """
    scanner = _Scanner(gate)
    held = b""
    ended = False
    stream = iter(chunks)
    while not ended and len(held) <= _SMALL:
        chunk = next(stream, None)
        ended = chunk is None
        held += chunk or b""
    if ended:
        yield from scanner.whole(held)
    else:
        yield from scanner.feed(held)
        held = b""
        for chunk in stream:
            yield from scanner.feed(chunk)
        yield from scanner.close()
    tally.num_bytes += scanner.num_bytes
    tally.num_lines += scanner.num_lines


@dataclass
class _Region:
    """Lines that are being collected for a window."""

    lines: list[tuple[int, bytes]]
    first: int
    missing: int  # lines still to come after the last hit
    # The lines that are the reason, by number, without digits and spaces.
    hits: dict[int, bytes] = field(default_factory=dict)
    is_whole: bool = False  # all lines
    earlier: list[bytes] = field(default_factory=list)


class _Scanner:
    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.num_bytes = 0
        self.num_lines = 0  # whole lines before ``rest``
        self._rest = b""
        self._held = b""  # whole lines not searched yet: they may be the last
        self._is_first = True
        self._tail = b""  # end of the searched text: an anchor may continue in the next chunk
        self._is_tail_new = False
        self._harmless: set[bytes] = set()  # lines without digits and spaces in which no word has an anchor nearby
        # Lines in which one has: number of readings without a message, or -1 if it was part of one.
        self._times: dict[bytes, int] = {}
        self._open_line = False  # a line longer than a chunk has begun
        # The previous block, for its last lines, and the number of its first line.
        self._last_block: tuple[bytes, int] = (b"", 0)
        self._taken = 0  # lines of it that are already in a window
        self._region: _Region | None = None

    def whole(self, text: bytes) -> Iterator[TextWindow]:
        """Yields everything as windows, without a search."""
        self.num_bytes = len(text)
        lines = pieces(text, 1)
        self.num_lines = lines[-1][0] if lines else 0
        if lines:
            self._region = _Region(lines, 0, 0, is_whole=True)
            yield from self._cut(last=True)

    def feed(self, chunk: bytes) -> Iterator[TextWindow]:
        """Takes the next chunk and yields the windows that are complete."""
        self.num_bytes += len(chunk)
        cut = chunk.rfind(b"\n") + 1
        if not cut and len(self._rest) + len(chunk) >= LONGEST_LINE:
            cut = len(chunk)
        if not cut:
            self._rest += chunk
            return
        block = self._rest + chunk[:cut]
        self._rest = chunk[cut:]
        yield from self._block(self._held, in_full=self._is_first)
        self._is_first = self._is_first and not self._held
        self._held = block

    def close(self) -> Iterator[TextWindow]:
        """Yields the windows that are left."""
        yield from self._block(self._held + self._rest, in_full=True)
        self.num_lines += self._open_line
        if self._region is not None:
            yield from self._cut(last=True)

    def _block(self, block: bytes, *, in_full: bool) -> Iterator[TextWindow]:
        if not block:
            return
        shapes = block.translate(LOWER, DROPPED_IN_SHAPE).split(b"\n")
        first_number = self.num_lines + 1
        self.num_lines += len(shapes) - 1
        self._open_line = not block.endswith(b"\n")
        if not self._open_line:
            shapes.pop()
        hits = self._hits(shapes)
        lines = pieces(block, first_number) if hits or in_full or self._region is not None else []
        wanted = set(hits)
        if hits and len(lines) != len(shapes):
            wanted = line_indices(lines, starts(shapes, hits), DROPPED_IN_WORDS)
        if in_full:
            wanted |= line_indices(lines, self.gate.anchored(plain(block)), DROPPED_IN_LINE)
        if wanted or self._region is not None:
            said = {first_number + index: shapes[index] for index in hits}
            yield from self._collect(lines, sorted(wanted), said)
        else:
            self._taken = 0
        self._last_block = (block, first_number)

    def _hits(self, shapes: Sequence[bytes]) -> dict[int, int]:
        """Returns the lines to read, by index, with the position in the line.

        They are the lines with an anchor, alone or with neighbours.
        """
        harmless, times = self._harmless, self._times
        if not self._is_tail_new and harmless.issuperset(shapes):
            self._tail = b"".join(shapes[-8:])[-2 * REACH :]
            return {}
        unknown = [index for index, shape in enumerate(shapes) if shape not in harmless]
        hits = {index: 0 for index in unknown if shapes[index] in times}
        new = [index for index in unknown if index not in hits]
        if new or self._is_tail_new:
            found = self._searched(shapes, new)
            alone = {index for index in found if shapes[index] in times or self.gate.worded(shapes[index])}
            # The anchor is in the neighbour, which has its own word, or it is broken across two lines.
            broken = {index for index in found if alone.isdisjoint(range(index - 2, index + 3))}
            hits |= {index: place for index, place in found.items() if index in alone or index in broken}
            broken |= {near for index in broken for near in (index - 1, index + 1)}
            for index in new:
                shape = shapes[index]
                if len(shape) > _LONGEST_REMEMBERED:
                    continue
                if index in alone:
                    self._remember(shape)
                elif index not in broken:
                    harmless.add(shape)
            if len(harmless) > _MOST_REMEMBERED:
                harmless.clear()
        self._tail = b"".join(shapes[-8:])[-2 * REACH :]
        self._is_tail_new = bool(unknown) and unknown[-1] >= len(shapes) - 8
        return {index: place for index, place in hits.items() if not self._is_idle(shapes, index)}

    def _searched(self, shapes: Sequence[bytes], new: Sequence[int]) -> dict[int, int]:
        """Returns the lines with words near an anchor, among new lines and their neighbours."""
        spans: list[list[int]] = [[0, 1]] if self._is_tail_new else []
        for index in new:
            if spans and index - 1 <= spans[-1][1]:
                spans[-1][1] = index + 2
            else:
                spans.append([max(index - 1, 0), index + 2])
        text, places, owners = self._tail + b"\n" if not spans or spans[0][0] else self._tail, [0], [-1]
        pieces, size = [text], len(text)
        for begin, end in spans:
            for index in range(begin, min(end, len(shapes))):
                places.append(size)
                owners.append(index)
                pieces.append(shapes[index])
                size += len(shapes[index])
            pieces.append(b"\n")
            size += 1
        found: dict[int, int] = {}
        for place in self.gate.worded(b"".join(pieces)):
            number = bisect_right(places, place) - 1
            found.setdefault(max(owners[number], 0), place - places[number] if owners[number] >= 0 else 0)
        return found

    def _remember(self, shape: bytes) -> None:
        if len(self._times) > _MOST_REMEMBERED:
            self._times.clear()
        self._times[shape] = -1 if self.gate.is_counting(shape) else 0

    def _is_idle(self, shapes: Sequence[bytes], index: int) -> bool:
        """Returns whether a line is known to be harmless and surrounded by known lines."""
        return all(
            shape in self._harmless or self._times.get(shape, 0) >= _OFTEN_ENOUGH
            for shape in shapes[max(0, index - _COMPANY) : index + _COMPANY + 1]
        )

    def _learn(self, window: TextWindow, hits: dict[int, bytes]) -> None:
        """Counts the lines that were read without finding a message."""
        if not hits:
            return
        read = {window.lines[index][0] for index in window.read}
        for number, _line in window.lines[window.first : window.end]:
            shape = hits.get(number)
            if shape is None or self._times.get(shape, -1) < 0:
                continue
            self._times[shape] = -1 if number in read else self._times[shape] + 1

    def _collect(
        self, lines: list[tuple[int, bytes]], wanted: Sequence[int], said: dict[int, bytes]
    ) -> Iterator[TextWindow]:
        """Adds the lines around the given indices to the open region, or to a new one."""
        done = 0  # lines of the block that were taken or skipped
        for index in [*wanted, None]:
            if self._region is not None:
                until = (
                    min(done + self._region.missing, len(lines))
                    if index is None
                    else min(done + self._region.missing, index)
                )
                self._region.lines += lines[done:until]
                self._region.missing -= until - done
                done = until
                if not self._region.missing and (index is None or index > done + LINES_BEFORE):
                    yield from self._cut(last=True)
            if index is None:
                break
            if self._region is None:
                begin = max(done, index - LINES_BEFORE)
                earlier = (
                    self._earlier(LINES_BEFORE - index) if begin == 0 and index < LINES_BEFORE and not done else []
                )
                self._region = _Region(
                    [*earlier, *lines[begin : index + 1]], 0, LINES_AFTER, earlier=self._long_before(lines, begin)
                )
                done = index + 1
            else:
                self._region.lines += lines[done : index + 1]
                self._region.missing = LINES_AFTER
                done = max(done, index + 1)
            number = lines[index][0]
            self._region.hits[number] = said.get(number, b"")
            yield from self._cut(last=False)
        self._taken = done

    def _earlier(self, count: int) -> list[tuple[int, bytes]]:
        """Returns the last lines of the previous block."""
        block, number = self._last_block
        return pieces(block, number)[self._taken :][-count:]

    def _long_before(self, lines: list[tuple[int, bytes]], begin: int) -> list[bytes]:
        """Returns the lines before the one at ``begin``, including those of the previous block."""
        own = lines[max(begin - LINES_EARLIER, 0) : begin]
        missing = LINES_EARLIER - len(own)
        others = pieces(*self._last_block)[-missing:] if missing else []
        return [line for _number, line in (*others, *own)]

    def _cut(self, *, last: bool) -> Iterator[TextWindow]:
        """Yields the complete part of the region; with ``last``, all of it, and the region ends."""
        region = self._region
        while region is not None and (last or len(region.lines) >= LINES_OF_WINDOW + LINES_AFTER):
            whole = last and len(region.lines) < LINES_OF_WINDOW + LINES_AFTER
            taken = region.lines if whole else region.lines[: LINES_OF_WINDOW + LINES_AFTER]
            end = len(taken) if whole else LINES_OF_WINDOW
            hits = (
                None
                if region.is_whole
                else frozenset(index for index, (number, _) in enumerate(taken) if number in region.hits)
            )
            earlier = [line.decode("utf-8", "replace") for line in region.earlier]
            window = TextWindow(
                [(number, line.decode("utf-8", "replace")) for number, line in taken], region.first, end, hits, earlier
            )
            yield window
            self._learn(window, region.hits)
            if whole:
                self._region = None
                return
            kept = LINES_OF_WINDOW - LINES_BEFORE
            region.earlier = [line for _number, line in region.lines[max(kept - LINES_EARLIER, 0) : kept]]
            region.lines = region.lines[kept:]
            region.first = LINES_BEFORE
