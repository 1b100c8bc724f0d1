"""Models the allocators' own parsers: a text is refused, or gives these values.

Compared with the real ones in tests/settings.

There are two. Up to torch 2.9 (torch_npu 2.9), separators are checked. Since then, all accelerators share one parser,
which walks over the tokens and accepts any token as a separator. The backend's own parser then reads the same tokens. A
refusal by either ends the program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from memdiag.settings.exclusions import EXCLUDED_BY_EXPANDABLE
from memdiag.settings.model import Version
from memdiag.settings.numbers import SIZE_MAX, is_power_of_two, to_double, to_int, to_size
from memdiag.settings.tables import known
from memdiag.text import joined, phrase

Value = bool | int | float | str | tuple[int, ...]

MAX_DIVISIONS = 16  # entries of roundup_power2_divisions
_MIB = 1 << 20
_DEFAULT_SEGMENT = 20
# The first version with the shared parser.
SHARED_SINCE: dict[str, Version] = {"cuda": (2, 10), "hip": (2, 10), "npu": (2, 10), "mindspeed": (9999, 0)}
# The first version whose smallest max_split_size_mb is 20, not 21.
_TWENTY_SINCE: dict[str, Version] = {"cuda": (2, 10), "hip": (2, 10), "npu": (2, 11), "mindspeed": (9999, 0)}
_ZERO_IN_LIST_SINCE: Version = (2, 4)
_COMMON = frozenset(
    {
        "max_split_size_mb",
        "max_non_split_rounding_mb",
        "roundup_power2_divisions",
        "garbage_collection_threshold",
        "expandable_segments",
        "pinned_use_background_threads",
        "large_segment_size_mb",
        "pinned_max_round_threshold_mb",
        "pinned_max_cached_size_mb",
    }
)


class Refused(Exception):
    """The parser raises.

    ``key`` is the place, ``reason`` the cause in words; ``kind`` is "unknown", "value", "form" or "conflict".
    """

    def __init__(self, kind: str, key: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.key = key
        self.reason = reason


@dataclass
class ParserOutcome:
    """Result of parsing a text.

    Attributes:
        values: Key and value as read, in the unit of the key; divisions as 16 entries. Later values of a key replace
            earlier ones.
        refused: Why the program ends, or None if it does not.
    """

    values: dict[str, Value] = field(default_factory=dict)
    refused: Refused | None = None


def tokenize(text: str, *, shared: bool = True) -> list[str]:
    """Returns keys, values and ``, : [ ]`` one by one.

    The older parser removes only spaces, the shared one all white space.
    """
    compact = re.sub(r"[ \t\n\v\f\r]+" if shared else " +", "", text)
    return re.findall(r"[,:\[\]]|[^,:\[\]]+", compact)


def is_shared(backend: str, version: Version) -> bool:
    """Returns whether ``version`` has the parser that all accelerators share."""
    return version >= SHARED_SINCE[backend]


def smallest_split(backend: str, version: Version) -> int:
    """Returns the smallest max_split_size_mb that ``version`` accepts, with the default large_segment_size_mb."""
    return 20 if version >= _TWENTY_SINCE[backend] else 21


def parse(text: str, backend: str, version: Version) -> ParserOutcome:
    """Returns the result of the parsers of ``backend`` in ``version`` for ``text``."""
    outcome = ParserOutcome()
    try:
        if is_shared(backend, version):
            _Shared(text, backend, version, outcome.values).run()
        else:
            _Strict(text, backend, version, outcome.values).run()
    except Refused as refused:
        outcome.refused = refused
    return outcome


def parse_common(text: str, version: Version) -> ParserOutcome:
    """Returns the result of the shared parser for ``text`` without a backend's keys: unknown keys are skipped."""
    outcome = ParserOutcome()
    parser = _Shared(text, "cuda", version, outcome.values)
    parser.known = {name: key for name, key in parser.known.items() if name in _COMMON}
    try:
        parser.run_common(check=False)
    except Refused as refused:
        outcome.refused = refused
    return outcome


class _Parser:
    """Tokens, and the code for values that both parsers share."""

    to_whole: Callable[[str], int | None]

    def __init__(self, text: str, backend: str, version: Version, values: dict[str, Value]) -> None:
        self.shared = is_shared(backend, version)
        self.tokens = tokenize(text, shared=self.shared)
        self.backend = backend
        self.version = version
        self.known = known(backend, version)
        self.values = values
        self.segment = _DEFAULT_SEGMENT
        self.key = ""

    def at(self, index: int) -> str:
        if not 0 <= index < len(self.tokens):
            raise Refused("form", self.key, phrase("conf_refused.end"))
        return self.tokens[index]

    def refuse(self, reason: str) -> Refused:
        return Refused("value", self.key, reason)

    def colon(self, index: int) -> None:
        self.at(index)

    def whole(self, index: int) -> int:
        token = self.at(index)
        number = to_size(token) if self.shared else to_int(token)
        if number is None:
            raise self.refuse(
                phrase("conf_refused.large", value=token)
                if token[:1].isdigit()
                else phrase("conf_refused.whole", value=token)
            )
        return number

    def real(self, index: int) -> float:
        token = self.at(index)
        number = to_double(token)
        if number is None:
            raise self.refuse(phrase("conf_refused.number", value=token))
        return number

    def boolean(self, index: int) -> bool:
        said = self.at(index)
        allowed = {"True": True, "False": False}
        if words := self.known[self.key].words:
            allowed = {word: word in {"true", "1"} for word in words}
        if said not in allowed:
            raise self.refuse(phrase("conf_refused.bool", value=said, words=", ".join(allowed)))
        return allowed[said]

    def simple(self, key: str, at: int) -> Value:
        """Returns the value of a key with one token, after checking its range."""
        rule = self.known[key]
        if rule.kind == "bool":
            return self.boolean(at)
        if rule.kind == "word":
            token = self.at(at)
            if rule.words and token not in rule.words:
                raise self.refuse(phrase("conf_refused.word", value=token, words=", ".join(rule.words)))
            return token
        if rule.kind == "fraction":
            real = self.real(at)
            low, high = rule.lowest, rule.highest
            inside = (low is None or real > low or (real == low and not rule.is_open)) and (
                high is None or real < high or (real == high and not rule.is_open)
            )
            if not inside:
                raise self.refuse(phrase("conf_refused.range", value=self.at(at), range=rule.range))
            return real
        return self.number(key, at)

    def number(self, key: str, at: int) -> int:
        rule = self.known[key]
        token = self.at(at)
        if rule.is_digits and not re.fullmatch("[0-9]+", token):
            raise self.refuse(phrase("conf_refused.digits", value=token))
        if rule.is_digits and (
            to_int(token) is None or (key == "base_addr_aligned_kb" and len(str(int(token))) != len(token))
        ):
            raise self.refuse(phrase("conf_refused.digits.large", value=token))
        number = self.whole(at)
        if rule.is_power_of_two and not is_power_of_two(number):
            raise self.refuse(phrase("conf_refused.power", value=str(number)))
        lowest = rule.lowest or 0
        if key == "pinned_reserve_segment_size_mb" and self.backend == "npu":
            lowest = 0
        if rule.at_least_segment:
            lowest = self.segment if self.shared and self.version >= _TWENTY_SINCE[self.backend] else 21
        if number < lowest or (rule.highest is not None and number > rule.highest):
            raise self.refuse(phrase("conf_refused.range", value=str(number), range=rule.range))
        return number

    def divisions(self, at: int) -> int:
        """Reads roundup_power2_divisions, whose value begins at ``at``; returns the index of its last token."""
        if self.at(at) != "[":
            number = self.whole(at)
            if not is_power_of_two(number):
                raise self.refuse(phrase("conf_refused.power", value=str(number)))
            self.values[self.key] = (number,) * MAX_DIVISIONS
            return at
        entries = list(self.start_entries())
        last, is_first = 0, True
        i = at + 1
        while i < len(self.tokens) and self.tokens[i] != "]":
            boundary_at = i
            i += 1
            self.colon(i)
            i += 1
            number = self.whole(i)
            zero_allowed = self.version >= _ZERO_IN_LIST_SINCE
            if not is_power_of_two(number) and not (number == 0 and zero_allowed):
                raise self.refuse(
                    phrase("conf_refused.power.zero", value=str(number))
                    if zero_allowed
                    else phrase("conf_refused.power", value=str(number))
                )
            if self.tokens[boundary_at] == ">":
                start = last + 1 if self.shared else last
                entries[start:] = [number] * (MAX_DIVISIONS - start)
            else:
                boundary = to_size(self.tokens[boundary_at])  # a size in both parsers
                if boundary is None or not is_power_of_two(boundary):
                    raise self.refuse(phrase("conf_refused.interval", value=self.tokens[boundary_at]))
                last = min(boundary.bit_length() - 1, MAX_DIVISIONS - 1)
                if is_first:
                    entries[:last] = [number] * last
                    is_first = False
                entries[last] = number
            if self.at(i + 1) != "]":
                i += 1
                self.comma(i)
            i += 1
        self.at(i)
        self.values[self.key] = tuple(entries)
        return i

    def start_entries(self) -> tuple[int, ...]:
        """Returns the entries that a list overwrites: those of an earlier list in the same text."""
        entries = self.values.get("roundup_power2_divisions")
        return entries if isinstance(entries, tuple) else (0,) * MAX_DIVISIONS

    def comma(self, index: int) -> None:
        self.at(index)

    def exclude(self) -> None:
        """Raises for settings that torch_npu refuses together with expandable segments."""
        excluded = [key for key in EXCLUDED_BY_EXPANDABLE if key in self.values]
        if self.backend == "npu" and excluded and self.values.get("expandable_segments") is True:
            raise Refused(
                "conflict",
                "expandable_segments",
                phrase("conf_refused.excluded", keys=joined(excluded, phrase("remedies.and"))),
            )


class _Strict(_Parser):
    """Up to torch 2.9 and torch_npu 2.9: one pass, separators checked."""

    def colon(self, index: int) -> None:
        if self.at(index) != ":":
            raise Refused("form", self.key, phrase("conf_refused.colon", found=self.at(index)))

    def comma(self, index: int) -> None:
        if self.at(index) != ",":
            raise Refused("form", self.key, phrase("conf_refused.comma", found=self.at(index)))

    def run(self) -> None:
        i = 0
        while i < len(self.tokens):
            self.key = self.tokens[i]
            if self.key not in self.known:
                raise Refused("unknown", self.key, phrase("conf_refused.key"))
            self.colon(i + 1)
            if self.known[self.key].kind == "divisions":
                i = self.divisions(i + 2)
            else:
                i += 2
                self.values[self.key] = self.simple(self.key, i)
            i += 1
            if i < len(self.tokens):
                self.comma(i)
                i += 1
        self.exclude()


class _Shared(_Parser):
    """The shared parser of all accelerators, followed by the backend's own."""

    def run(self) -> None:
        common = self.run_common(check=True)
        self.exclude()
        self.walk(set(self.known) - common, check=True)

    def run_common(self, *, check: bool) -> set[str]:
        """Reads the keys that all accelerators share; returns their names."""
        common = {name for name in self.known if name in _COMMON}
        if "large_segment_size_mb" in common:  # a separate first pass, because other keys must not be below it
            self.find_segment()
            self.segment = _as_int(self.values.get("large_segment_size_mb", _DEFAULT_SEGMENT))
        self.walk(common, check=check)
        return common

    def find_segment(self) -> None:
        """Reads every occurrence of large_segment_size_mb, even those that the other passes skip."""
        i = 0
        while i < len(self.tokens):
            self.key = self.tokens[i]
            if self.key == "large_segment_size_mb":
                i = self.take(i)
            i += 1

    def walk(self, mine: set[str], *, check: bool) -> None:
        """Walks the tokens once: reads the keys in ``mine``, skips other known keys, and refuses unknown ones."""
        i = 0
        while i < len(self.tokens):
            self.key = self.tokens[i]
            if self.key in mine:
                i = self.take(i)
            else:
                if check and self.key not in self.known:
                    raise Refused("unknown", self.key, phrase("conf_refused.key"))
                i = self.skip(i)
            i += 2 if i + 1 < len(self.tokens) else 1

    def take(self, i: int) -> int:
        self.at(i + 1)
        i += 2
        if self.known[self.key].kind == "divisions":
            return self.divisions(i)
        if self.key == "expandable_segments_reserve_by_class":
            return self.classes(i)
        self.values[self.key] = self.simple(self.key, i)
        return i

    def classes(self, i: int) -> int:
        """Reads a list of ``name:value`` from its bracket on; like the allocator, it skips meaningless values."""
        first = i
        while self.at(i + 1) != "]":
            i += 3
            if self.at(i + 1) == ",":
                i += 1
        self.values[self.key] = "".join(self.tokens[first : i + 2])
        return i + 1

    def skip(self, i: int) -> int:
        i += 2
        if self.at(i) != "[":
            return i
        while self.at(i) != "]":
            i += 1
        return i


def _as_int(value: Value) -> int:
    return value if isinstance(value, int) else _DEFAULT_SEGMENT


def in_bytes(values: Mapping[str, Value]) -> dict[str, Value]:
    """Returns ``values`` with sizes in bytes as the allocator stores them, clamped to the valid range."""
    out: dict[str, Value] = {}
    for key, value in values.items():
        if key.endswith("_kb") and isinstance(value, int):
            out[key] = value * 1024
        elif key.endswith("_mb") and key != "pinned_reserve_segment_size_mb" and isinstance(value, int):
            out[key] = min(value, SIZE_MAX // _MIB) * _MIB
        else:
            out[key] = value
    return out
