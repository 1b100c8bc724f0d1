r"""Finds the places in a stream of any size that are worth taking apart: a few lines around each text that only failures have.

A log of gigabytes is looked at once, in chunks: lower case, without blanks and punctuation that quoting adds (one call), then
searched for some words (a few calls), since nothing that Python does line by line would be fast enough. So a text that was wrapped
in the middle of a word is found as well. Only where a word is found, and one of the dialects' anchors around it, are lines cut out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

LINES_BEFORE = 40
LINES_AFTER = 150
LINES_OF_WINDOW = 1500
LONGEST_LINE = 4096
_SMALL = 1 << 14
_REACH = 160  # squeezed characters around a word in which its anchor must be, logger prefixes in between included

# Lower case, and nothing that people quote with or that wrapping puts in between.
_LOWER = bytes(range(256)).lower()
_DROPPED = b" \t\r\n\v\f\0>#\"'`*|"
_DROPPED_IN_LINE = _DROPPED.replace(b"\n", b"")


@dataclass(frozen=True, slots=True)
class Window:
    """Some lines in a row.

    Attributes:
        lines: Number in the file, and the line; a very long line is in several pieces of one number.
        first: Messages that begin before the line of this index belong to the window before.
        end: Messages that begin at the line of this index or later belong to the next window, which has that line as well.
    """

    lines: list[tuple[int, str]]
    first: int
    end: int


@dataclass
class Tally:
    """How much was read.

    Attributes:
        num_bytes: Bytes, unpacked.
        num_lines: Lines.
    """

    num_bytes: int = 0
    num_lines: int = 0


class Gate:
    """Tells whether a chunk of text can hold a message.

    Args:
        anchors: Texts of which each message has one: lower case, no blanks.
        words: Short texts of which each anchor has one, if there are any: only they are searched for in all of the text.
    """

    def __init__(self, anchors: Iterable[str], words: Sequence[str] = ()) -> None:
        plain = {normal(anchor.encode()) for anchor in anchors}
        # An anchor with another one inside says nothing more than that one does.
        plain = {anchor for anchor in plain if not any(other in anchor for other in plain if other != anchor)}
        self.by_word: dict[bytes, list[bytes]] = {}
        for anchor in sorted(plain):
            word = next((word for word in map(normal, (word.encode() for word in words)) if word in anchor), anchor)
            self.by_word.setdefault(word, []).append(anchor)
        self.longest = max(map(len, plain), default=0)

    def hits(self, text: bytes) -> list[int]:
        """Returns where words of anchors stand in normalised text, in order."""
        found = []
        for word, anchors in self.by_word.items():
            position = text.find(word)
            whole = anchors == [word]
            while position >= 0:
                if whole or self._confirmed(text, position, anchors):
                    found.append(position)
                position = text.find(word, position + len(word))
        found.sort()
        return found

    def _confirmed(self, text: bytes, position: int, anchors: Sequence[bytes]) -> bool:
        around = text[max(0, position - _REACH) : position + _REACH]
        return any(anchor in around for anchor in anchors)


def normal(text: bytes) -> bytes:
    """Returns text as anchors are compared: lower case, without blanks and quotation marks."""
    return text.translate(_LOWER, _DROPPED)


def windows(chunks: Iterable[bytes], gate: Gate, tally: Tally) -> Iterator[Window]:
    """Yields the windows of a stream in which a message may be, in order; text of a few pages is one window, without a search.

    Args:
        chunks: The text, in UTF-8.
        gate: What to look for.
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
    missing: int  # lines still to come behind the last hit


class _Scanner:
    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.num_bytes = 0
        self.num_lines = 0  # whole lines before ``rest``
        self._rest = b""
        self._tail = b""  # normalised end of what was searched: an anchor may go on in the next chunk
        self._open_line = False  # a line longer than a chunk was begun
        self._last_block: tuple[bytes, int] = (b"", 0)  # the block before, for its last lines, and the number of its first line
        self._taken = 0  # lines of it that are in a window already
        self._region: _Region | None = None

    def whole(self, text: bytes) -> Iterator[Window]:
        """Yields everything as windows, without a search."""
        self.num_bytes = len(text)
        lines = _pieces(text, 1)
        self.num_lines = lines[-1][0] if lines else 0
        if lines:
            self._region = _Region(lines, 0, 0)
            yield from self._cut(last=True)

    def feed(self, chunk: bytes) -> Iterator[Window]:
        """Takes the next chunk and yields the windows that are complete."""
        self.num_bytes += len(chunk)
        block = self._rest + chunk if self._rest else chunk
        cut = block.rfind(b"\n") + 1
        if not cut and len(block) >= LONGEST_LINE:
            cut = len(block)
        self._rest = block[cut:]
        yield from self._block(block[:cut] if self._rest else block)

    def close(self) -> Iterator[Window]:
        """Yields the windows that are left."""
        if self._rest:
            rest, self._rest = self._rest, b""
            yield from self._block(rest)
        self.num_lines += self._open_line
        if self._region is not None:
            yield from self._cut(last=True)

    def _block(self, block: bytes) -> Iterator[Window]:
        if not block:
            return
        text = self._tail + block.translate(_LOWER, _DROPPED)
        hits = self.gate.hits(text)
        first_number = self.num_lines + 1
        self.num_lines += block.count(b"\n")
        self._open_line = not block.endswith(b"\n")
        if hits or self._region is not None:
            yield from self._collect(_pieces(block, first_number), [max(0, hit - len(self._tail)) for hit in hits])
        else:
            self._taken = 0
        self._tail = text[-2 * _REACH :]
        self._last_block = (block, first_number)

    def _collect(self, lines: list[tuple[int, bytes]], hits: list[int]) -> Iterator[Window]:
        """Adds the lines around hits, which are places in normalised text, to the region that is open or to a new one."""
        if hits:
            ends = list(accumulate(len(line.translate(None, _DROPPED_IN_LINE)) for _number, line in lines))
            wanted = sorted({min(bisect_right(ends, hit), len(lines) - 1) for hit in hits})
        else:
            wanted = []
        done = 0  # lines of the block that were taken or skipped for good
        for index in [*wanted, None]:
            if self._region is not None:
                until = min(done + self._region.missing, len(lines)) if index is None else min(done + self._region.missing, index)
                self._region.lines += lines[done:until]
                self._region.missing -= until - done
                done = until
                if not self._region.missing and (index is None or index > done + LINES_BEFORE):
                    yield from self._cut(last=True)
            if index is None:
                break
            if self._region is None:
                begin = max(done, index - LINES_BEFORE)
                earlier = self._earlier(LINES_BEFORE - index) if begin == 0 and index < LINES_BEFORE and not done else []
                self._region = _Region([*earlier, *lines[begin : index + 1]], 0, LINES_AFTER)
                done = index + 1
            else:
                self._region.lines += lines[done : index + 1]
                self._region.missing = LINES_AFTER
                done = max(done, index + 1)
            yield from self._cut(last=False)
        self._taken = done

    def _earlier(self, count: int) -> list[tuple[int, bytes]]:
        """Returns the last lines of the block before."""
        block, number = self._last_block
        return _pieces(block, number)[self._taken :][-count:]

    def _cut(self, *, last: bool) -> Iterator[Window]:
        """Yields what of the region is complete; with ``last`` all of it, and the region is done."""
        region = self._region
        while region is not None and (last or len(region.lines) >= LINES_OF_WINDOW + LINES_AFTER):
            whole = last and len(region.lines) < LINES_OF_WINDOW + LINES_AFTER
            taken = region.lines if whole else region.lines[: LINES_OF_WINDOW + LINES_AFTER]
            end = len(taken) if whole else LINES_OF_WINDOW
            yield Window([(number, line.decode("utf-8", "replace")) for number, line in taken], region.first, end)
            if whole:
                self._region = None
                return
            region.lines = region.lines[LINES_OF_WINDOW - LINES_BEFORE :]
            region.first = LINES_BEFORE


def _pieces(block: bytes, number: int) -> list[tuple[int, bytes]]:
    """Returns the lines of a block with their numbers; a long one in pieces."""
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if max(map(len, lines), default=0) <= LONGEST_LINE:
        return list(enumerate(lines, number))
    return [
        (place, line[start : start + LONGEST_LINE])
        for place, line in enumerate(lines, number)
        for start in range(0, len(line) or 1, LONGEST_LINE)
    ]
