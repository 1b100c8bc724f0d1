r"""Rules that find figures in the lines of a server's log.

A rule is a regular expression in which ``<name:type>`` stands for a value: ``size`` (a number with a unit, binary even
if the engine writes GB), ``gib`` and ``mib`` (a number without unit), ``bytes``, ``int``, ``float`` and ``word``.
Engines divide by 2**30 and write "GB", which is why all units are binary here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

LONGEST_TEXT = 200
_PLACE = re.compile(r"<(\w+):(size|gib|mib|bytes|int|float|word)>")
_NUMBER = r"-?\d[\d,]*(?:\.\d+)?"
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_FACTORS = {"gib": 1 << 30, "mib": 1 << 20, "bytes": 1}
_WHO = "who"  # a group of this name is the device that a line speaks of
# Workers of vLLM and Ray "(Worker_TP0 pid=7)", of SGLang "[2026-01-01 00:00:00 DP0 TP1]", of TensorRT-LLM "[RANK 1]"
_SPEAKER = re.compile(
    r"\((?P<name>[\w.-]{1,60}?)?,?\s?(?:rank=\d+\s)?pid=(?P<pid>\d{1,9})[^()]{0,60}\)"
    r"|\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?\s(?P<ranks>(?:[A-Z]{2}\d{1,5}\s?)+)\]"
    r"|\[RANK (?P<rank>\d{1,6})\]"
)
_PARALLEL = re.compile(r"(?:[DTPE]P\d+_?)+$")


class LogValue(NamedTuple):
    """A value of the log: a number, or a word with the number 0; sizes are in bytes."""

    value: float
    line: int
    text: str
    word: str = ""

    @property
    def bytes(self) -> int:
        """The value as a whole number."""
        return round(self.value)


@dataclass(frozen=True)
class LineForm:
    """A form of a line.

    Attributes:
        pattern: The regular expression.
        types: Type of each value, by its name.
        is_of_server: Whether its values belong to the whole server, not to one card.
        adds: Whether values of several lines are summed; otherwise the last one counts.
        is_first: Whether the first value of a start counts, not the last.
    """

    pattern: re.Pattern[str]
    types: dict[str, str]
    is_of_server: bool = False
    adds: bool = False
    is_first: bool = False


def rule(template: str, *, of_server: bool = False, adds: bool = False, first: bool = False) -> LineForm:
    """Returns the rule of a template; the module docstring describes its placeholders."""
    types: dict[str, str] = {}

    def group(match: re.Match[str]) -> str:
        name, kind = match.groups()
        types[name] = kind
        if kind == "word":
            return rf"(?P<{name}>[\w.+-]+)"
        return rf"(?P<{name}>{_NUMBER})" + (rf"\s*(?P<{name}_unit>[KMGT]?i?B)\b" if kind == "size" else "")

    return LineForm(re.compile(_PLACE.sub(group, template)), types, of_server, adds, first)


@dataclass
class LogValues:
    """Values of one card, or of the server: by name.

    Attributes:
        who: The device or worker that the lines name; "" if they name none.
        found: The values.
        is_device: Whether the lines name a device, instead of a worker.
    """

    who: str = ""
    found: dict[str, LogValue] = field(default_factory=dict)
    is_device: bool = False

    def get(self, name: str) -> LogValue | None:
        """Returns a value, or None if the log does not have it."""
        return self.found.get(name)

    def size(self, name: str) -> int | None:
        """Returns a size in bytes, or None if the log does not have it."""
        reading = self.found.get(name)
        return None if reading is None else reading.bytes

    def number(self, name: str) -> float | None:
        """Returns a number, or None if the log does not have it."""
        reading = self.found.get(name)
        return None if reading is None else reading.value

    def word(self, name: str) -> str:
        """Returns a word, or "" if the log does not have it."""
        reading = self.found.get(name)
        return "" if reading is None else reading.word


class ValueCollector:
    """Collects the values of a log.

    Args:
        rules: The rules of the engine.
        start: A line that matches begins a new start; earlier values of cards are dropped. None if there is no such
            line.
        kept: Values of cards that survive a new start, such as the size of the card.
    """

    def __init__(self, rules: Sequence[LineForm], start: re.Pattern[str] | None, kept: Iterable[str] = ()) -> None:
        self._rules, self._start, self._kept = rules, start, frozenset(kept)
        self.server = LogValues()
        self.cards: dict[str, LogValues] = {}

    def read(self, number: int, text: str) -> None:
        """Takes the values of a line."""
        if self._start is not None and self._start.search(text):
            for card in self.cards.values():
                card.found = {name: each for name, each in card.found.items() if name in self._kept}
        for each in self._rules:
            for match in each.pattern.finditer(text):
                self._take(each, match, number, text)

    def _take(self, found: LineForm, match: re.Match[str], number: int, text: str) -> None:
        into = self.server if found.is_of_server else self._card(match, text)
        for name, kind in found.types.items():
            raw = match[name]
            if raw is None or (found.is_first and name in into.found):
                continue
            if kind == "word":
                into.found[name] = LogValue(0, number, _short(match), raw)
                continue
            value = float(raw.replace(",", "")) * _factor(kind, match, name)
            before = into.found.get(name)
            if found.adds and before is not None:
                value += before.value
            into.found[name] = LogValue(value, number, _short(match))

    def _card(self, match: re.Match[str], text: str) -> LogValues:
        device = match.groupdict().get(_WHO)
        who = device or speaker_of(text)
        return self.cards.setdefault(who, LogValues(who, is_device=device is not None))


def speaker_of(text: str) -> str:
    """Returns the worker that a line names, such as "TP0" or "pid 123"; "" if it names none."""
    match = _SPEAKER.search(text, 0, 300)
    if match is None:
        return ""
    if match["ranks"]:
        return match["ranks"].strip()
    if match["rank"]:
        return f"rank {match['rank']}"
    parallel = _PARALLEL.search(match["name"] or "")
    return parallel[0].replace("_", " ") if parallel else f"pid {match['pid']}"


def _factor(kind: str, match: re.Match[str], name: str) -> int:
    if kind == "size":
        unit: str = match[f"{name}_unit"]
        return 1 << (10 * _POWERS[unit.rstrip("B").rstrip("i").lower()])
    return _FACTORS.get(kind, 1)


def _short(match: re.Match[str]) -> str:
    text = " ".join(match[0].split())
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
