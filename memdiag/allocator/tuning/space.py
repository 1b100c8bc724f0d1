"""The settings that ``memdiag tune`` tries: every key that affects block placement, with sensible values per version.

A choice is a plain ``{key: value}`` of such keys; {} means the defaults. All other settings are kept as they are. The
allocator's own parser (``Conf.parse``) decides if a choice is valid. Choices that parse to the same numbers are
equivalent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memdiag.allocator.versions.conf import Conf
from memdiag.errors import MemdiagError
from memdiag.settings.model import parse_version
from memdiag.settings.tables import known, newest

Choice = dict[str, str]

EXPANDABLE, MAX_SPLIT, ROUNDING, GC, LARGE, DIVISIONS = (
    "expandable_segments",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "large_segment_size_mb",
    "roundup_power2_divisions",
)
SEGMENT, ALIGNED, PAGES, LAZY = "segment_size_mb", "base_addr_aligned_kb", "page_size", "multi_stream_lazy_reclaim"

GRID: dict[str, tuple[str, ...]] = {
    EXPANDABLE: ("True",),
    MAX_SPLIT: ("21", "32", "64", "128", "256", "512", "1024"),
    ROUNDING: ("32", "64", "128", "256"),
    GC: ("0.5", "0.6", "0.7", "0.8", "0.9", "0.95"),
    LARGE: ("12", "16", "32", "40", "64", "128", "256"),
    DIVISIONS: ("2", "4", "8", "16", "32", "[256:1,512:2,1024:4,>:8]"),
    SEGMENT: ("32", "64", "128", "256"),
    ALIGNED: ("0",),
    PAGES: ("1g",),
    LAZY: ("True",),
}
_NPU_ONLY = {SEGMENT, ALIGNED, PAGES, LAZY}
# Keys that are refined by the value half-way to the next grid value, and the divisor of the refined value.
_STEPS: dict[str, int] = {MAX_SPLIT: 1, ROUNDING: 1, LARGE: 2, SEGMENT: 2}
_LOWEST = 12
_HIGHEST = {MAX_SPLIT: 4096, ROUNDING: 1024, LARGE: 512, SEGMENT: 512}
_NEEDS = {ROUNDING: MAX_SPLIT, SEGMENT: EXPANDABLE, ALIGNED: EXPANDABLE}
# torch_npu refuses both keys of a pair together; on CUDA the second key then has almost no effect.
_EXCLUDES = ((EXPANDABLE, MAX_SPLIT), (EXPANDABLE, GC), (LARGE, SEGMENT))


@dataclass(frozen=True)
class Space:
    """The possible choices of settings.

    Attributes:
        backend: "cuda" or "npu".
        versions: Version of each trace that the setting must serve.
        possible: Versions that may have written the traces, if the files do not name one; each must support a key.
        fixed: Per trace, settings that stay unchanged: "key:value,…".
        has_limit: Whether each process has a limit below its device; without one there is no garbage collection.
        on_windows: Whether a trace was recorded on Windows, where PyTorch has no expandable segments.
    """

    backend: str
    versions: tuple[str, ...]
    fixed: tuple[str, ...]
    has_limit: bool
    possible: tuple[str, ...] = ()
    on_windows: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that every version knows and that can have an effect."""
        tables = [
            known(self.backend, parse_version(version) or newest(self.backend))
            for version in (*self.versions, *self.possible)
        ]
        return tuple(
            key
            for key in GRID
            if all(key in table for table in tables)
            and (key != GC or self.has_limit)
            and (key not in _NPU_ONLY or self.backend == "npu")
            and not (key == EXPANDABLE and self.on_windows)
        )

    def text(self, choice: Choice, member: int = 0) -> str:
        """Returns the settings text of a choice for one trace: the fixed settings, then the choice."""
        chosen = ",".join(f"{key}:{choice[key]}" for key in GRID if key in choice)
        return ",".join(part for part in (self.fixed[member], chosen) if part)

    def numbers(self, choice: Choice) -> tuple[Conf, ...] | None:
        """Returns the parsed settings of a choice for each trace; None if an allocator refuses it or it has no use."""
        if any(key not in GRID or key not in self.keys for key in choice):
            return None
        if any(one in choice and other in choice for one, other in _EXCLUDES):
            return None
        if any(needed not in choice for key, needed in _NEEDS.items() if key in choice):
            return None
        try:
            for version in self.possible:
                for k in range(len(self.versions)):
                    Conf.parse(self.text(choice, k), self.backend, version)
            return tuple(
                Conf.parse(self.text(choice, k), self.backend, version) for k, version in enumerate(self.versions)
            )
        except MemdiagError:
            return None

    def singles(self, base: Choice) -> Iterator[Choice]:
        """Yields ``base`` with each value of each key."""
        for key in self.keys:
            for value in GRID[key]:
                yield {**base, key: value}

    def pairs(self, values: list[tuple[str, str]]) -> Iterator[Choice]:
        """Yields every pair of the given key values, each with the other keys that it needs."""
        for at, (key, value) in enumerate(values):
            for other, its_value in values[at + 1 :]:
                if key != other:
                    yield {key: value, other: its_value}

    def neighbours(self, choice: Choice) -> Iterator[Choice]:
        """Yields the neighbours of a choice: one key removed, one key added, or one value changed by a step."""
        for key in choice:
            yield {other: value for other, value in choice.items() if other != key}
            for value in _beside(key, choice[key]):
                yield {**choice, key: value}
        for key in self.keys:
            if key not in choice:
                grid = GRID[key]
                for value in {grid[0], grid[len(grid) // 2], grid[-1]}:
                    yield {**choice, key: value}


def _beside(key: str, value: str) -> Iterator[str]:
    """Yields values close to a value; for numbers, closer than the grid."""
    if key == GC:
        for step in (-0.05, 0.05):
            moved = round(float(value) + step, 3)
            if 0 < moved < 1:
                yield str(moved)
    elif key in _STEPS:
        for factor in (0.75, 0.875, 1.125, 1.5):
            moved = round(int(value) * factor / _STEPS[key]) * _STEPS[key]
            if _LOWEST <= moved <= _HIGHEST[key]:
                yield str(int(moved))
    elif value in GRID[key]:
        at = GRID[key].index(value)
        yield from GRID[key][max(at - 1, 0) : at] + GRID[key][at + 1 : at + 2]
