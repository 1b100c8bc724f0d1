"""Many out-of-memory messages in few lines, and reports without any."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from memdiag.render.oom.words import cause_name, framework_name, place, reasons
from memdiag.results.oom import MemoryTable, Message, OomReport
from memdiag.text import joined, phrase, plain, shorten
from memdiag.units import format_bytes, format_count

EXAMPLES = (
    "CUDA out of memory. Tried to allocate …",
    "NPU out of memory. Tried to allocate …",
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate … bytes",
    "Out of memory: Killed process … (python)",
)
_MOST_DEVICES = 8  # of one table


class MessageGroup(NamedTuple):
    """Messages of one cause and kind."""

    messages: tuple[Message, ...]

    @property
    def first(self) -> Message:
        """The first one that was printed."""
        return self.messages[0]

    @property
    def times(self) -> int:
        """Number of messages, including repetitions."""
        return sum(message.count for message in self.messages)


def groups(messages: Sequence[Message]) -> list[MessageGroup]:
    """Returns messages by cause and kind, in the order of their first ones."""
    found: dict[tuple[str, str, str], list[Message]] = {}
    for message in messages:
        found.setdefault((message.judgement.verdict, message.framework, message.dialect), []).append(message)
    return [MessageGroup(tuple(members)) for members in found.values()]


def ranks(numbers: Iterable[int | None]) -> str:
    """Returns ``0-7``, ``0-3, 5, 7``, or "" if no rank is known."""
    known = sorted({number for number in numbers if number is not None})
    runs: list[list[int]] = []
    for number in known:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def request_range(messages: Sequence[Message]) -> str:
    """Returns the requested sizes: ``1.50 GiB``, ``512 B to 1.50 GiB``, or "" if all are unknown."""
    sizes = [size for message in messages if isinstance(size := message.fields.get("requested_bytes"), int)]
    if not sizes:
        return ""
    low, high = format_bytes(min(sizes)), format_bytes(max(sizes))
    return low if low == high else phrase("oom.range", low=low, high=high)


def summary(report: OomReport) -> str:
    """Returns how many messages there are, of which ranks and with how many causes."""
    found = groups(report.messages)
    failed = {message.rank for message in report.messages if message.rank is not None}
    count = len({group.first.judgement.verdict for group in found})
    messages = phrase("oom.where.messages", count=sum(group.times for group in found))
    listed = shorten(ranks(failed), 40)
    if len(failed) > 1:
        return phrase("oom.many.causes.ranks", messages=messages, ranks=listed, count=count)
    if failed:
        return phrase("oom.many.causes.rank", messages=messages, ranks=listed, count=count)
    return phrase("oom.many.causes", messages=messages, count=count)


def overview(report: OomReport, *, every: bool, top: int, width: int = 200) -> tuple[list[str], list[list[str]], str]:
    """Returns the head and the rows of a table of many messages, and a sentence on the rows that are not shown.

    Args:
        report: The messages.
        every: Whether each message has a row, instead of groups.
        top: Maximum number of rows, unless ``every``.
        width: Columns of the page: a narrow page gets fewer table columns.
    """
    rows = [MessageGroup((message,)) for message in report.messages] if every else groups(report.messages)
    shown = rows if every else rows[:top]
    table: dict[str, list[str]] = {phrase("oom.many.times"): [format_count(group.times) for group in shown]}
    if any(message.rank is not None for message in report.messages):
        name = phrase("oom.many.rank") if every else phrase("oom.many.ranks")
        table[name] = [shorten(ranks(message.rank for message in group.messages), 16) for group in shown]
    table[phrase("oom.many.cause")] = [cause_name(group.first.judgement.verdict) for group in shown]
    if width >= 80:
        table[phrase("oom.many.requested")] = [request_range(group.messages) for group in shown]
    if width >= 100:
        table[phrase("oom.many.framework")] = [framework_name(group.first, 20) for group in shown]
    table[phrase("oom.many.place")] = [place(group.first) for group in shown]
    left = len(rows) - len(shown)
    cells = [list(row) for row in zip(*table.values(), strict=True)]
    return list(table), cells, phrase("oom.many.more", count=left, top=str(len(rows))) if left else ""


def others(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Returns name and decisive reason of the causes that the first message does not have."""
    first = messages[0].judgement.verdict
    named: dict[str, Message] = {}
    for group in groups(messages):
        named.setdefault(group.first.judgement.verdict, group.first)
    return [(cause_name(verdict), _reason_at(message)) for verdict, message in named.items() if verdict != first]


def _reason_at(message: Message) -> str:
    reason, at = next(iter(reasons(message)), ""), place(message)
    return phrase("oom.others.at", reason=reason, place=at).strip() if at else reason


def omitted(report: OomReport) -> str:
    """Returns the number of omitted messages as a sentence, or "" if all are shown."""
    parts = [phrase("oom.omitted.warnings", count=report.num_warnings_omitted)] if report.num_warnings_omitted else []
    parts += [phrase("oom.omitted.messages", count=report.num_messages_omitted)] if report.num_messages_omitted else []
    return phrase("oom.omitted", what=joined(parts, ", ")) if parts else ""


def nothing(report: OomReport) -> list[str]:
    """Returns the sentences of a report without a message: the files read, and an introduction to examples."""
    notices: list[str] = []
    if report.trace:
        notices = [phrase("oom.nothing.trace", trace=plain(report.trace))]
        if not report.num_bytes:
            return notices
    elif not report.num_bytes:
        notices = [phrase("oom.nothing.empty")]
    read = phrase(
        "oom.nothing.read", what=sources(report), lines=report.num_lines, bytes=format_bytes(report.num_bytes)
    )
    return [read, *notices, *tables(report), phrase("oom.nothing.like")]


def tables(report: OomReport) -> list[str]:
    """Returns sentences about tables of memory in use, beside messages without sizes or instead of a message."""
    found = []
    for program in dict.fromkeys(table.program for table in report.tables):
        rows = [_table(table) for table in report.tables if table.program == program and table.device]
        name = (
            phrase("oom.tables.summary") if program == "memory_summary" else phrase("oom.tables.output", name=program)
        )
        if not rows:
            found.append(phrase("oom.tables.none", what=name))
            continue
        if len(rows) > _MOST_DEVICES:
            rows = [*rows[:_MOST_DEVICES], phrase("oom.tables.more", count=len(rows) - _MOST_DEVICES)]
        found.append(phrase("oom.tables", what=name, devices=joined(rows, "; ")))
    end = phrase("oom.tables.beside") if report.messages else phrase("oom.tables.hint")
    return [*found, end] if found else []


def _table(table: MemoryTable) -> str:
    used = phrase("oom.tables.unknown") if table.used_bytes is None else format_bytes(table.used_bytes)
    if table.program == "memory_summary":
        reserved = "" if table.reserved_bytes is None else format_bytes(table.reserved_bytes)
        parts = [phrase("oom.tables.allocated", device=plain(table.device), bytes=used)]
        parts += [phrase("oom.tables.reserved", bytes=reserved)] if reserved else []
        parts += [phrase("oom.tables.failed", count=table.num_ooms)] if table.num_ooms else []
        return joined(parts, ", ")
    if table.total_bytes is None:
        return phrase("oom.tables.used", device=plain(table.device), bytes=used)
    return phrase("oom.tables.of", device=plain(table.device), bytes=used, total=format_bytes(table.total_bytes))


def sources(report: OomReport) -> str:
    """Returns the names of the files that were read."""
    known = {"-": phrase("oom.nothing.stdin"), "text": phrase("oom.nothing.text")}
    names = [known.get(name, plain(name)) for name in report.sources]
    if not names:
        return phrase("oom.nothing.nothing")
    listed = joined(names[:3], ", ")
    return phrase("oom.nothing.files", names=listed, count=len(names) - 3) if len(names) > 3 else listed
