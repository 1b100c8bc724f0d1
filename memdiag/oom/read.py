"""From text or files to a report.

If a dialect, the arithmetic or the advice fails on an unusual message, the others are still reported, and this one
without the failed part. ``MEMDIAG_DEBUG=1`` raises such an error instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from memdiag.oom import anchors, frameworks, gate
from memdiag.oom.archives import texts_of_file
from memdiag.oom.dialects import DIALECTS, names_of, words_of
from memdiag.oom.incidents import Sighting, fuller, join_kills, sightings
from memdiag.oom.inputs import OomInput, check_text
from memdiag.oom.lines import Line, by_speaker, read_lines
from memdiag.oom.mentions import is_mention
from memdiag.oom.model import Fields, Found
from memdiag.oom.scan import ReadTally, TextWindow, windows
from memdiag.oom.shared import unquoted, without_shared
from memdiag.oom.squeezed import Squeezed
from memdiag.oom.streams import Progress, chunks_of_text
from memdiag.results.finding import Finding
from memdiag.results.oom import Judgement, LedgerEntry, MemoryTable, Message, OomReport

MOST_MESSAGES = 20_000
LONGEST_TEXT = 8_000
LINES_AROUND = 40  # of any speaker: another process often names the engine
LINES_OF_TRACEBACK = 240  # before those: the outer frames of a long traceback
LONGEST_LINE = 2_000
SURROUNDINGS_READ = 64  # of the messages of a dialect in one source: later ones come from the same program
_TRACEBACK = "Traceback (most recent call last)"
HEAD_BYTES = 1 << 17  # of each text that are searched for tables of memory in use
MOST_TABLES_READ = 16  # texts
TABLE_MARK = re.compile(
    r"memory summary, device ID|(?i:-smi\b)|NVSMI LOG|ROCm System|_VRAM: |Memory Used \(MiB\)| MB *\||memory\.\w+ \["
)
LINES_BESIDE = 8  # of a line with a word and an anchor: in a long log, only its speaker is read
_RETRIES = 12  # of a message without numbers, to infer its cause from the surrounding lines
_UNKNOWN = Judgement("unknown", "low")
_Result = TypeVar("_Result")


def read_text(text: str) -> OomReport:
    """Returns the report on ``text``: a message, a traceback, a log."""
    reader = _MessageReader()
    reader.read(chunks_of_text(text), "text")
    return reader.report()


def read_files(
    names: Sequence[str | Path], progress: Callable[[str, int, int | None], None] | None = None
) -> OomReport:
    """Returns the report on files, in their order.

    Args:
        names: Paths; "-" is standard input. Compressed files (gzip, xz, bzip2, zstd) are decompressed. The text
            members of archives (zip, tar) are read; their sources are names such as ``logs.zip/rank0.log``.
        progress: Called occasionally with the name, the bytes read so far, and the file size (None if unknown).

    Raises:
        MemdiagError: One of them cannot be read.
    """
    reader = _MessageReader()
    for name in map(str, names):
        for source, chunks in texts_of_file(name, _progress_of(name, progress)):
            reader.read(chunks, source)
    return reader.report()


def read_inputs(
    inputs: Sequence[OomInput], progress: Callable[[str, int, int | None], None] | None = None
) -> OomReport:
    """Returns the report on files and texts.

    Args:
        inputs: The files and texts.
        progress: As in ``read_files``.

    Raises:
        MemdiagError: A file cannot be read, or a text without a message looks like a file name.
    """
    files = [item.name for item in inputs if item.text is None]
    reports = [read_files(files, progress)] if files else []
    reports += [read_text(item.text) for item in inputs if item.text is not None]
    if not any(report.messages for report in reports):
        check_text(inputs, [source for report in reports for source in report.sources])
    return reports[0] if len(reports) == 1 else _together(reports)


def has_message(text: str) -> bool:
    """Returns whether a text has an out-of-memory message."""
    return bool(read_text(text).messages)


def _together(reports: Sequence[OomReport]) -> OomReport:
    return OomReport(
        tuple(message for report in reports for message in report.messages),
        tuple(source for report in reports for source in report.sources),
        sum(report.num_lines for report in reports),
        sum(report.num_bytes for report in reports),
        sum(report.num_warnings_omitted for report in reports),
        next((report.first_rank for report in reports if report.first_rank is not None), None),
        num_messages_omitted=sum(report.num_messages_omitted for report in reports),
        tables=tuple(table for report in reports for table in report.tables),
    )


def _progress_of(name: str, progress: Callable[[str, int, int | None], None] | None) -> Progress | None:
    return None if progress is None else lambda done, total: progress(name, done, total)


class _MessageReader:
    def __init__(self) -> None:
        self._strict = bool(os.environ.get("MEMDIAG_DEBUG"))
        self._table, self._words = _anchors_and_words()
        every = (anchor for found in self._table.values() for anchor in found)
        self._gate = gate.Gate(every, self._words, gate.CLUES)
        self._tally = ReadTally()
        self._sources: list[str] = []
        self._heads: list[tuple[str, list[bytes]]] = []
        self._messages: dict[object, Message] = {}
        self._counts: dict[object, int] = {}
        self._first_rank: int | None = None
        self._num_left_out = 0
        self._marks: dict[tuple[str, str], list[frozenset[str]]] = {}

    def read(self, chunks: Iterable[bytes], source: str) -> None:
        """Adds the messages of one text."""
        self._sources.append(source)
        if not self._messages and len(self._heads) < MOST_TABLES_READ:
            self._heads.append((source, []))
            chunks = _with_head(chunks, self._heads[-1][1])
        for window in windows(chunks, self._gate, self._tally):
            for sighting in self._seen(window):
                self._add(sighting, source, window)

    def report(self) -> OomReport:
        """Returns all messages; warnings only without failures."""
        messages = [self._counted(key, message) for key, message in self._messages.items()]
        failures = [message for message in messages if not message.is_warning]
        shown = failures or messages
        first_rank = next((message.rank for message in shown if message.rank is not None), None)
        return OomReport(
            tuple(shown),
            tuple(self._sources),
            self._tally.num_lines,
            self._tally.num_bytes,
            len(messages) - len(shown),
            first_rank,
            num_messages_omitted=self._num_left_out,
            tables=() if any(map(_has_sizes, messages)) else tuple(self._tables()),
        )

    def _tables(self) -> Iterator[MemoryTable]:
        for source, head in self._heads:
            text = b"".join(head).decode("utf-8", "replace")
            nothing: list[MemoryTable] = []
            if TABLE_MARK.search(text):  # most texts have none, and need no patterns
                yield from self._try(partial(_memory_tables, text, source), nothing)

    def _counted(self, key: object, message: Message) -> Message:
        return replace(message, count=self._counts[key])

    def _seen(self, window: TextWindow) -> list[Sighting]:
        lines = [
            (index, line)
            for index, (number, raw) in enumerate(unquoted(window.lines))
            for line in read_lines(number, raw)
        ]
        places = {id(line): index for index, line in lines}
        seen: list[Sighting] = []
        near = (
            None
            if window.hits is None
            else {index for hit in window.hits for index in range(hit - LINES_BESIDE, hit + LINES_BESIDE + 1)}
        )
        for spoken in by_speaker(line for _index, line in lines).values():
            orders = [places[id(line)] for line in spoken]
            if near is not None and near.isdisjoint(orders):
                continue
            plain = self._said(spoken, orders, near)
            stripped = without_shared(spoken) if _has_any(spoken, self._words) else None
            seen += plain if stripped is None else fuller(plain, self._said(stripped, orders, near))
        window.read.update(order for sighting in seen for order in sighting.orders)
        seen = [sighting for sighting in seen if window.first <= sighting.order < window.end]
        seen.sort(key=lambda sighting: sighting.order)
        return join_kills(seen)

    def _said(self, lines: Sequence[Line], orders: Sequence[int], near: Container[int] | None) -> list[Sighting]:
        """Returns the messages in some lines of a window.

        Args:
            lines: The lines.
            orders: Their positions in the window.
            near: Positions of the lines in which anchors count, or None for all lines.
        """
        places = {id(line): order for line, order in zip(lines, orders, strict=True)}
        seen: list[Sighting] = []
        for spoken in by_speaker(lines).values():
            text = Squeezed(spoken)
            where = (
                text.text
                if near is None
                else text.pieces(index for index, line in enumerate(spoken) if places[id(line)] in near)
            )
            found = list(self._found(text, where.lower())) if where else []
            if found:
                seen += sightings(text, found, lambda line: places[id(line)])
        return seen

    def _found(self, text: Squeezed, anchored: str) -> Iterator[Found]:
        for name, own in self._table.items():
            if any(anchor in anchored for anchor in own):
                nothing: Sequence[Found] = ()
                yield from (
                    found for found in self._try(partial(_find, name, text), nothing) if not is_mention(text, found)
                )

    def _add(self, sighting: Sighting, source: str, window: TextWindow) -> None:
        key = (source, sighting.rank, sighting.found.dialect, _frozen(sighting.fields))
        count = 1 + sighting.repeats
        known = self._messages.get(key)
        if known is not None:
            # Without numbers, only the surrounding lines can show the cause, possibly those of a repetition.
            if not known.fields and known.judgement.verdict == "unknown" and self._counts[key] < _RETRIES:
                again = self._message(sighting, source, window)
                if again.judgement.verdict != "unknown":
                    self._messages[key] = replace(
                        known, judgement=again.judgement, ledger=again.ledger, findings=again.findings
                    )
            self._counts[key] += count
        elif len(self._messages) >= MOST_MESSAGES:
            self._num_left_out += count
        else:
            self._counts[key] = count
            self._messages[key] = self._message(sighting, source, window)

    def _message(self, sighting: Sighting, source: str, window: TextWindow) -> Message:
        found = sighting.found
        nothing: frozenset[str] = frozenset()
        around = self._marks.setdefault((source, found.dialect), [])
        if len(around) < SURROUNDINGS_READ:
            around.append(self._try(lambda: _marks_around(window, sighting.order), nothing))
        marks = found.marks | around[-1]
        judged = replace(found, fields=sighting.fields, marks=marks)
        judgement = self._try(lambda: _judge(judged, sighting.context), _UNKNOWN)
        accounts: tuple[LedgerEntry, ...] = self._try(lambda: _account(judged), ())
        findings: tuple[Finding, ...] = self._try(lambda: _advise(judged, judgement), ())
        return Message(
            found.dialect,
            found.framework,
            found.backend,
            sighting.rank,
            1,
            sighting.line.number,
            sighting.text[:LONGEST_TEXT],
            sighting.fields,
            judgement,
            accounts,
            findings,
            source,
            found.is_warning,
            program=found.program,
        )

    def _try(self, make: Callable[[], _Result], instead: _Result) -> _Result:
        try:
            return make()
        except Exception:  # any message may be the first of its kind, and the rest of the report remains valid
            if self._strict:
                raise
            return instead


def _has_any(lines: Sequence[Line], words: Sequence[str]) -> bool:
    text = "\n".join(line.text for line in lines).lower()
    return any(word in text for word in words)


# Imported only when there is a message to judge: most logs have none.
def _judge(found: Found, context: str) -> Judgement:
    from memdiag.oom.verdict import judge

    return judge(found, context)


def _marks_around(window: TextWindow, order: int) -> frozenset[str]:
    from memdiag.oom.surroundings import marks_around

    first = max(order - LINES_AROUND, 0)
    lines = [line[:LONGEST_LINE] for _number, line in window.lines[first : order + LINES_AROUND + 1]]
    earlier = [*window.earlier, *(line for _number, line in window.lines[:first])][-LINES_OF_TRACEBACK:]
    begin = max((index for index, line in enumerate(earlier) if _TRACEBACK in line), default=len(earlier))
    earlier = earlier[begin:]
    before = [*(line[:LONGEST_LINE] for line in earlier), *lines[: order - first + 1]]
    return marks_around("\n".join(lines), "\n".join(before), "\n".join(lines[order - first :]))


def _account(found: Found) -> tuple[LedgerEntry, ...]:
    from memdiag.oom.ledger import account

    return account(found)


def _advise(found: Found, judgement: Judgement) -> tuple[Finding, ...]:
    from memdiag.oom.advice import advise

    return advise(found, judgement)


def _has_sizes(message: Message) -> bool:
    return any(name.endswith("_bytes") for name in message.fields)


def _memory_tables(text: str, source: str) -> list[MemoryTable]:
    from memdiag.oom.tables import memory_tables

    return memory_tables(text, source)


def _with_head(chunks: Iterable[bytes], head: list[bytes]) -> Iterator[bytes]:
    """Yields the chunks, and retains the first HEAD_BYTES in ``head``."""
    left = HEAD_BYTES
    for chunk in chunks:
        if left > 0:
            head.append(chunk[:left])
            left -= len(chunk)
        yield chunk


def _find(name: str, text: Squeezed) -> Sequence[Found]:
    dialect = DIALECTS[name]
    names = {**frameworks.NAMES, **names_of(dialect)}
    return tuple(replace(found, program=names.get(found.framework, "")) for found in dialect.find(text))


def _frozen(fields: Fields) -> str:
    return repr(sorted(fields.items()))


def _anchors_and_words() -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Returns the anchors of each dialect, and the words of all; those missing from the table come from its module."""
    table: dict[str, tuple[str, ...]] = {}
    words: tuple[str, ...] = (*gate.WORDS, *anchors.WORDS)
    for name in DIALECTS:
        if name in anchors.ANCHORS:
            table[name] = anchors.ANCHORS[name]
        elif own := DIALECTS.attempt(name, lambda dialect: (tuple(dialect.ANCHORS), words_of(dialect))):
            table[name] = own[0]
            words += own[1]
    return {name: found for name, found in table.items() if found}, words
