"""Matches call sites of two traces: code is edited between runs, and has other paths on other machines.

Files are matched by the longest common suffix of their paths. Within a file, call sites belong to functions. If most
known lines of a function are the same in both traces, the function was not edited, and equal lines are one call site.
The remaining lines, and all lines of an edited function, are paired in order with the smallest distances.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from memdiag.results.compare import CodePlace, How, SiteRow

_UNMOVED = 0.5  # fraction of equal lines from which on a file or function counts as unmoved
_FAR = 100_000  # lines: more than any file has

_MOST_PAIRED = 1 << 20  # distances to compute for one function; genuine code has far fewer
_MOST_ALIKE = 300  # files of one name: with more, only equal paths match

Lines = Mapping[str, frozenset[tuple[str, int]]]  # path: functions and lines of it on any stack


@dataclass
class Known:
    """Call sites of one trace, and every line on any of its stacks.

    The additional lines show more reliably by how much a function has moved.
    """

    places: Sequence[CodePlace]
    lines: Lines = field(default_factory=dict)


def match(base: Known, other: Known) -> list[tuple[int, How] | None]:
    """Returns, for each call site of ``other``, its match in ``base`` and how it was found, or None."""
    found: dict[int, tuple[int, How]] = {}
    _by_words(base.places, other.places, found)
    files = same_files({place.path for place in base.places}, {place.path for place in other.places})
    olds, news = _by_file(base.places), _by_file(other.places)
    for path, old in files.items():
        mine, theirs = _File.of(base, old, olds[old]), _File.of(other, path, news[path])
        _in_file(mine, theirs, "same" if old == path else "path", found)
    return [found.get(number) for number in range(len(other.places))]


def same_files(base: set[str], other: set[str]) -> dict[str, str]:
    """Returns, for paths of ``other``, the same file in ``base``: the longest common suffix wins, each is used once."""
    found = {path: path for path in (base & other) - {""}}
    taken = set(found)
    ends: dict[str, list[str]] = {}
    for path in base - taken - {""}:
        ends.setdefault(_parts(path)[-1], []).append(path)
    alike = {name: paths for name, paths in ends.items() if len(paths) <= _MOST_ALIKE}
    pairs = [
        (len(_common_end(path, old)), old, path)
        for path in other - taken - {""}
        for old in alike.get(_parts(path)[-1], ())
    ]
    for _, old, path in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if path not in found and old not in taken:
            found[path] = old
            taken.add(old)
    return found


def shared_end(rows: Iterable[SiteRow]) -> str:
    """Returns the common suffix of the paths of a file that differs between traces, or "" if none does."""
    for row in rows:
        base = row.places[0]
        for place, how in zip(row.places, row.matched, strict=True):
            if how in {"path", "moved"} and place is not None and base is not None and base.path != place.path:
                return "/".join(_common_end(base.path, place.path))
    return ""


def _parts(path: str) -> list[str]:
    return path.replace("\\", "/").split("/")


def _common_end(one: str, other: str) -> list[str]:
    """Returns the common suffix of two paths, in parts."""
    pairs = zip(reversed(_parts(one)), reversed(_parts(other)), strict=False)
    return [left for left, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)][::-1]


def _by_words(base: Sequence[CodePlace], other: Sequence[CodePlace], found: dict[int, tuple[int, How]]) -> None:
    """Pairs call sites without a file by their description."""
    known = {place.label: number for number, place in reversed(list(enumerate(base))) if not place.path}
    for number, place in enumerate(other):
        if not place.path and place.label in known:
            found[number] = (known.pop(place.label), "words")


Numbered = list[tuple[int, CodePlace]]  # call sites of one file, and their indices among all


def _by_file(places: Sequence[CodePlace]) -> dict[str, Numbered]:
    found: dict[str, Numbered] = {}
    for number, place in enumerate(places):
        found.setdefault(place.path, []).append((number, place))
    return found


@dataclass(frozen=True)
class _File:
    """Facts of one trace about a file: call sites by function and line, and the lines of each function on any stack."""

    places: Numbered
    functions: Mapping[str, Mapping[int, int]]
    lines: Mapping[str, set[int]]

    @classmethod
    def of(cls, known: Known, path: str, places: Numbered) -> _File:
        functions: dict[str, dict[int, int]] = {}
        lines: dict[str, set[int]] = {}
        for number, place in places:
            functions.setdefault(place.function, {}).setdefault(place.line, number)
            lines.setdefault(place.function, set()).add(place.line)
        for function, line in known.lines.get(path, frozenset()):
            lines.setdefault(function, set()).add(line)
        return cls(places, functions, lines)


def _is_unmoved(mine: _File, theirs: _File) -> bool:
    """Returns whether most known lines of a file are the same in both traces."""
    same = sum(len(lines & theirs.lines.get(function, set())) for function, lines in mine.lines.items())
    fewest = min(sum(map(len, file.lines.values())) for file in (mine, theirs))
    return same >= _UNMOVED * max(fewest, 1)


def _in_file(mine: _File, theirs: _File, same: How, found: dict[int, tuple[int, How]]) -> None:
    """Pairs the call sites of one file."""
    unmoved = _is_unmoved(mine, theirs)
    taken = set()
    for function in mine.functions.keys() & theirs.functions.keys():
        olds, news = mine.functions[function], theirs.functions[function]
        own = _share_of_same(mine.lines[function], theirs.lines[function])
        for before, after in _paired(olds, news, is_unmoved=unmoved and own >= _UNMOVED):
            found[news[after]] = (olds[before], same if before == after else "moved")
            taken.add(olds[before])
    if unmoved:  # the same line of a file that was not edited there, with another function name
        left = {place.line: number for number, place in mine.places if number not in taken}
        for number, place in theirs.places:
            if number not in found and place.line in left:
                found[number] = (left.pop(place.line), "renamed")


def _share_of_same(one: set[int], other: set[int]) -> float:
    return len(one & other) / max(min(len(one), len(other)), 1)


def _paired(mine: Mapping[int, int], theirs: Mapping[int, int], *, is_unmoved: bool) -> list[tuple[int, int]]:
    """Returns pairs of lines, in order: as many as possible, with the smallest distances."""
    anchors = sorted(mine.keys() & theirs.keys()) if is_unmoved else []
    pairs = [(line, line) for line in anchors]
    olds, news = sorted(mine), sorted(theirs)
    for low, high in pairwise([-1, *anchors, _FAR * _FAR]):
        pairs += _nearest(_between(olds, low, high), _between(news, low, high))
    return pairs


def _between(lines: list[int], low: int, high: int) -> list[int]:
    return lines[bisect_right(lines, low) : bisect_left(lines, high)]


def _nearest(olds: list[int], news: list[int]) -> list[tuple[int, int]]:
    """Pairs all of the shorter list with lines of the longer one, both in order, with the smallest sum of distances."""
    if len(olds) > len(news):
        return [(old, new) for new, old in _nearest(news, olds)]
    if len(olds) * len(news) > _MOST_PAIRED:
        return list(zip(olds, news, strict=False))
    # cost[i][j]: least cost of the first i of the shorter list with some of the first j of the longer
    cost = [[0] * (len(news) + 1)]
    for i, old in enumerate(olds):
        row = [_FAR * _FAR] * (len(news) + 1)
        for j in range(i, len(news)):
            row[j + 1] = min(row[j], cost[i][j] + abs(old - news[j]))
        cost.append(row)
    pairs: list[tuple[int, int]] = []
    j = len(news)
    for i in range(len(olds), 0, -1):
        while cost[i][j] == cost[i][j - 1] and j > i:
            j -= 1
        pairs.append((olds[i - 1], news[j - 1]))
        j -= 1
    return pairs[::-1]
