r"""Finds the places in a stream of any size that are worth taking apart: a few lines around each text that only failures have.

A log of gigabytes is looked at once, and nothing that Python does line by line would be fast enough for that. So a chunk is made lower
case, loses its newlines (a terminal wraps in the middle of words) and is searched for a few words, of which messages hold several.
Around each word the dialects' anchors are looked for, without blanks and quotation marks; logs say the same again and again, so what
was around a word before is remembered. Only where there is an anchor are lines cut out. The first and the last chunk are searched for
every anchor at once: that costs nothing there, and what the shell says of a killed program, in any language, comes last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

LINES_BEFORE = 24
LINES_AFTER = 80
LINES_OF_WINDOW = 1500
LONGEST_LINE = 4096
_SMALL = 1 << 14
_REACH = 80  # characters around a word in which its anchor must be
_MOST_REMEMBERED = 1 << 13

# Nothing that people quote with or that wrapping puts in between; around words no digits either, which differ from line to line.
_LOWER = bytes(range(256)).lower()
_DROPPED = b" \t\r\n\v\f\0>#\"'`*|"
_DROPPED_IN_LINE = _DROPPED.replace(b"\n", b"")
_DROPPED_IN_WORDS = _DROPPED + b"0123456789"
_NO_TEXT = b"\r\0"
# What a failure says and the many lines that just tell of memory do not: looked for first around a word, since it is less.
_SIGNS = (
    b"fail", b"outof", b"error", b"exce", b"not", b"able", b"tried", b"trying", b"already", b"kill", b"invalid", b"exit", b"reserve",
    b"exhaust", b"insufficient", b"available", b"morethan", b"lessthan", b"larger", b"creasing", b"algorithm",
)  # fmt: skip


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
    """Tells where in a chunk of text a message can be.

    Args:
        anchors: Texts of which each message has one: lower case, no blanks.
        words: Words of which each message that stands in the middle of a long text has one.
        clues: Anchors that count around words only.
    """

    def __init__(self, anchors: Iterable[str], words: Sequence[str], clues: Sequence[str] = ()) -> None:
        spelled = set(anchors)
        # Bytes beyond ASCII have no lower case: words of other alphabets are looked for as they begin sentences, too.
        spelled |= {anchor.capitalize() for anchor in spelled if not anchor.isascii()}
        plain = {_plain(anchor.encode()) for anchor in spelled}
        # An anchor with another one inside says nothing more than that one does.
        self.anchors = sorted(anchor for anchor in plain if not any(other in anchor for other in plain if other != anchor))
        # Less than four letters are no anchor ("el0004", "207001"): their messages hold others.
        bare = {anchor.translate(None, _DROPPED_IN_WORDS) for anchor in self.anchors} | {_plain(clue.encode()) for clue in clues}
        self._without_digits = sorted(anchor for anchor in bare if len(anchor) >= 4)
        self.words = [word.encode() for word in words if word.isascii()]
        self.other_words = [word.encode() for word in words if not word.isascii()]
        self._known: dict[bytes, bool] = {}

    def anchored(self, text: bytes) -> list[int]:
        """Returns where anchors stand in plain text."""
        return [place for anchor in self.anchors for place in _places(text, anchor)]

    def worded(self, text: bytes) -> list[int]:
        """Returns where words stand in lower-case text without newlines that have an anchor around them."""
        places = [place for word in self.words for place in _places(text, word) if self._confirmed(text, place)]
        if not text.isascii():
            places += [place for word in self.other_words for place in _places(text, word)]
        return places

    def _confirmed(self, text: bytes, place: int) -> bool:
        around = text[max(0, place - _REACH) : place + _REACH].translate(None, _DROPPED_IN_WORDS)
        known = self._known.get(around)
        if known is None:
            known = any(sign in around for sign in _SIGNS) and any(anchor in around for anchor in self._without_digits)
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[around] = known
        return known


def _plain(text: bytes) -> bytes:
    return text.translate(_LOWER, _DROPPED)


def _places(text: bytes, word: bytes) -> Iterator[int]:
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + len(word))


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
        self._held = b""  # whole lines that are not searched yet: they may be the last
        self._is_first = True
        self._tail = b""  # end of what was searched: an anchor may go on in the next chunk
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
        if cut:
            yield from self._block(self._held, in_full=self._is_first)
            self._is_first = self._is_first and not self._held
            self._held = block[:cut]

    def close(self) -> Iterator[Window]:
        """Yields the windows that are left."""
        yield from self._block(self._held + self._rest, in_full=True)
        self.num_lines += self._open_line
        if self._region is not None:
            yield from self._cut(last=True)

    def _block(self, block: bytes, *, in_full: bool) -> Iterator[Window]:
        if not block:
            return
        lower = block.lower()
        flat = lower.replace(b"\n", b"")
        first_number = self.num_lines + 1
        self.num_lines += len(lower) - len(flat)
        self._open_line = not block.endswith(b"\n")
        if b"\r" in flat or b"\0" in flat:
            flat = flat.translate(None, _NO_TEXT)
        text = self._tail + flat
        self._tail = text[-2 * _REACH :]
        hits = self.gate.worded(text)
        lines = _pieces(block, first_number) if hits or in_full or self._region is not None else []
        wanted = _line_indices(lines, [hit - len(text) + len(flat) for hit in hits], _NO_TEXT) if hits else set()
        if in_full:
            wanted |= _line_indices(lines, self.gate.anchored(_plain(block)), _DROPPED_IN_LINE)
        if wanted or self._region is not None:
            yield from self._collect(lines, sorted(wanted))
        else:
            self._taken = 0
        self._last_block = (block, first_number)

    def _collect(self, lines: list[tuple[int, bytes]], wanted: Sequence[int]) -> Iterator[Window]:
        """Adds the lines around those wanted, which are indices, to the region that is open or to a new one."""
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


def _line_indices(lines: Sequence[tuple[int, bytes]], places: Sequence[int], dropped: bytes) -> set[int]:
    """Returns in which lines the places of a text are, which is made of the lines without newlines and what is dropped."""
    ends = list(accumulate(len(line.translate(None, dropped)) for _number, line in lines))
    return {min(bisect_right(ends, max(place, 0)), len(lines) - 1) for place in places}


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
