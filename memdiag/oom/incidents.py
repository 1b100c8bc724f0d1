"""Joins messages of one failure, and counts repetitions: one message for each rank and set of numbers.

A failure is rarely printed only once. An allocator reports it before it gives up and retries with a tenth less. The
exception is printed by the handler and again "during handling". The driver's own error follows the framework's. The
kernel and the shell both report a kill.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from memdiag.oom.lines import Line
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed

_AGAIN = re.compile(r"handlingof(?:the)?aboveexception|directcauseofthefollowing|anotherexceptionoccur", re.IGNORECASE)
_ON_RANK = re.compile(
    (
        r"(?:on|for|of|in|from|at|by|worker|global|\W|^)rank[:=#]?\(?(\d{1,7})\)?[:,;.\]-]{0,3}"
        r"(?:[A-Za-z_][\w.]{0,60}(?:Error|Exception)[:(]?\"?)?$"
    ),
    re.IGNORECASE,
)
# A key of a log in JSON, whose lines are objects.
_RANK_KEY = re.compile(r"[\"'](?:global_)?rank[\"']:[\"']?(\d{1,7})[\"']?[,}]", re.IGNORECASE)
_EXCEPTION = re.compile(r"[\w.]{0,100}:?")  # its name, or the part of it before a line break
_TRAILER = re.compile(r"\(PID:(\d{1,9}),Device:(-?\d{1,4}),RankID:(-?\d{1,7})\)", re.IGNORECASE)
_REACH = 2500  # squeezed characters between a message and related text
_SHRINK = 0.9  # an allocator whose request is refused retries with nine tenths
_KILLS = ("oom_killer", "host_limit", "host_killed")
_FROM_PREFIX = frozenset({"rank", "local_rank", "log_pid"})
_RETRYING = frozenset({"tensorflow", "jax", "onnxruntime"})


@dataclass(slots=True)
class Sighting:
    """One message at its position.

    Attributes:
        found: As read by the dialect, with the fields of related messages added.
        line: Number of its first line.
        order: Its position among the lines of a window.
        text: Its lines.
        context: The surrounding lines of the same speaker.
        rank: Rank that printed it.
        repeats: Number of repetitions.
        orders: Positions of all its lines.
    """

    found: Found
    line: Line
    order: int
    text: str
    context: str
    rank: int | None = None
    repeats: int = 0
    fields: Fields = field(default_factory=dict)
    orders: tuple[int, ...] = ()


def resolve(found: Iterable[Found]) -> list[Found]:
    """Resolves overlapping matches: the longest wins, then the earliest; returns the rest by position."""
    kept: list[Found] = []
    starts: list[int] = []
    for one in sorted(found, key=lambda one: (one.start - one.end, one.is_warning)):
        index = bisect_left(starts, one.start)
        before = kept[index - 1] if index else None
        after = kept[index] if index < len(kept) else None
        if (before is not None and before.end > one.start) or (
            after is not None and after.start < max(one.end, one.start + 1)
        ):
            continue
        kept.insert(index, one)
        starts.insert(index, one.start)
    return kept


def sightings(text: Squeezed, found: Iterable[Found], order: Callable[[Line], int]) -> list[Sighting]:
    """Returns the messages of one speaker, each joined with related ones.

    Args:
        text: The lines of that speaker.
        found: Messages that the dialects found.
        order: Returns the position of a line among those of all speakers.
    """
    joined: list[Sighting] = []
    for one in resolve(found):
        if joined and _belongs(text, joined[-1].found, one):
            joined[-1].found = _join(joined[-1].found, one)
            continue
        line = text.line_at(one.start)
        last = text.line_at(max(one.end - 1, one.start))
        sighting = Sighting(
            one,
            line,
            order(line),
            text.original(one.start, one.end),
            _context(text, one),
            repeats=max(line.repeats, last.repeats),
        )
        joined.append(sighting)
    for number, sighting in enumerate(joined):
        sighting.orders = tuple(map(order, _lines(text, sighting.found)))
        limit = joined[number + 1].found.start if number + 1 < len(joined) else len(text.text)
        _complete(text, sighting, limit)
    return joined


def _lines(text: Squeezed, found: Found) -> tuple[Line, ...]:
    return text.lines[text.line_index(found.start) : text.line_index(max(found.end - 1, found.start)) + 1]


def fuller(plain: Sequence[Sighting], stripped: Sequence[Sighting]) -> list[Sighting]:
    """Merges two readings of the same lines: where they differ, the one with more fields wins.

    A prefix inside a number leaves the end of it, so of a multi-line message whose readings differ only in numbers,
    ``stripped`` is right.
    """
    there: dict[int, list[int]] = {}
    for number, sighting in enumerate(plain):
        for order in sighting.orders:
            there.setdefault(order, []).append(number)
    dropped: set[int] = set()
    added: list[Sighting] = []
    for sighting in stripped:
        rivals = {number for order in sighting.orders for number in there.get(order, ())}
        if all(_says_less(plain[number], sighting) for number in rivals):
            dropped |= rivals
            added.append(sighting)
    return [sighting for number, sighting in enumerate(plain) if number not in dropped] + added


def _says_less(plain: Sighting, stripped: Sighting) -> bool:
    printed, more = {*plain.fields} - _FROM_PREFIX, {*stripped.fields} - _FROM_PREFIX
    if len(printed) != len(more):
        return len(printed) < len(more)
    return printed == more and len(set(stripped.orders)) > 1


def join_kills(seen: Sequence[Sighting]) -> list[Sighting]:
    """Joins reports about the same killed process by kernel, shell, scheduler and parent, whoever prints them."""
    kept: list[Sighting] = []
    kills: list[Sighting] = []
    for sighting in seen:
        if sighting.found.dialect not in _KILLS:
            kept.append(sighting)
            continue
        pid = sighting.found.fields.get("pid")
        same = next((other for other in kills if pid is None or other.found.fields.get("pid") in {None, pid}), None)
        if same is None or (
            same.found.dialect == sighting.found.dialect == "host_killed" and same.found.fields == sighting.found.fields
        ):
            kept.append(sighting)
            kills.append(sighting)
            continue
        better = min((same.found, sighting.found), key=lambda found: _KILLS.index(found.dialect))
        other = sighting.found if better is same.found else same.found
        same.found = replace(better, fields={**other.fields, **better.fields}, marks=better.marks | other.marks)
        same.fields = {**sighting.fields, **same.fields, **same.found.fields}
    return kept


def _belongs(text: Squeezed, before: Found, one: Found) -> bool:
    """Returns whether ``one`` repeats or extends the failure of ``before``."""
    distance = one.start - before.end
    if distance > _REACH:
        return False
    if before.dialect == one.dialect and before.fields == one.fields:
        return bool(_AGAIN.search(text.text, before.end, one.start))
    if one.dialect.startswith(("cann_", "torch_npu_acl")) and before.dialect.startswith("torch_npu"):
        return True
    asked, before_asked = one.fields.get("requested_bytes"), before.fields.get("requested_bytes")
    if one.framework not in _RETRYING or before.framework not in _RETRYING:
        return False
    if not isinstance(asked, int) or not isinstance(before_asked, int):
        return False
    if one.dialect == before.dialect and one.is_warning == before.is_warning and _is_less(before_asked, asked):
        return True
    # The allocator, the driver and the operation report the same request, each in different words.
    return _words(text, before) != _words(text, one) and abs(asked - before_asked) <= before_asked // 100


def _is_less(before: int, asked: int) -> bool:
    return before > 0 and abs(asked / before - _SHRINK) < 0.004


def _words(text: Squeezed, found: Found) -> str:
    return re.sub(r"[\d.,]+[kmgt]?i?b?", "", text.text[found.start : found.end].lower())


def _join(found: Found, more: Found) -> Found:
    """Returns ``found`` with the additional values of ``more``; a non-warning gives the name."""
    if found.is_warning and not more.is_warning:
        found, more = replace(more, start=found.start), found
    fields = found.fields
    asked, also = fields.get("requested_bytes"), more.fields.get("requested_bytes")
    if not (isinstance(asked, int) and isinstance(also, int) and _is_less(asked, also)):
        fields = {**more.fields, **found.fields}
    return replace(found, end=max(found.end, more.end), fields=fields, marks=found.marks | more.marks)


def _complete(text: Squeezed, sighting: Sighting, limit: int) -> None:
    """Adds facts from around a message: its rank, its process, and its number of repetitions."""
    found, line = sighting.found, _speaking(text, sighting)
    fields: Fields = dict(found.fields)
    if found.backend == "npu":
        trailer = _TRAILER.search(text.text, found.start, min(limit, found.end + _REACH))
        if trailer:
            for name, value in zip(("pid", "device_index", "rank"), map(int, trailer.groups()), strict=True):
                if value >= 0:
                    fields.setdefault(name, value)
    if "rank" not in fields:
        if line.rank is not None:
            fields["rank"] = line.rank
        else:
            on_rank = _ON_RANK.search(text.text[max(0, found.start - 100) : found.start])
            begin, end = text.line_span(found.start)
            if on_rank is None and text.text[begin : begin + 1] == "{":
                on_rank = _RANK_KEY.search(text.text, begin, end)
            if on_rank:
                fields["rank"] = int(on_rank[1])
    if line.local_rank is not None:
        fields["local_rank"] = line.local_rank
    if line.log_pid is not None:
        fields["log_pid"] = line.log_pid
    rank = fields.get("rank")
    sighting.rank = rank if isinstance(rank, int) else None
    sighting.fields = fields


def _speaking(text: Squeezed, sighting: Sighting) -> Line:
    """Returns the line that identifies the speaker.

    It is the preceding one if only the exception's name was wrapped there.
    """
    start = sighting.found.start
    index = text.line_index(start)
    if (
        index
        and not sighting.line.key
        and _EXCEPTION.fullmatch(text.text, text.line_span(text.line_span(start)[0] - 1)[0], start)
    ):
        return text.lines[index - 1]
    return sighting.line


def _context(text: Squeezed, found: Found) -> str:
    """Returns the lines around a message that are relevant for its cause."""
    first, last = text.line_index(found.start), text.line_index(max(found.end - 1, found.start))
    return "\n".join(line.text for line in text.lines[max(0, first - 30) : last + 31])
