"""The protocol of a remedy, and the situation from which a remedy decides whether it applies.

A remedy that a replay can judge has a separate type and registry: it is an ``AllocatorSetting`` and is also listed in
``ALLOCATOR_SETTINGS``. Callers therefore never test an object for its abilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.remedies.systems import NOTHING, SYSTEMS, System
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.shared_cards import Neighbour
from memdiag.settings.exclusions import EXCLUDED_BY_EXPANDABLE
from memdiag.sizes.cuda import LARGE_SEGMENT


@dataclass(frozen=True, slots=True)
class Situation:
    """Known facts about a program with a memory problem, from a message or a trace.

    Attributes:
        backend: "cuda", "hip", "npu", …; "": unknown.
        facts: Numbers of the failure; all None if no request failed.
        variable: Environment variable with the settings of PyTorch's allocator; "": the backend has none.
        settings: The known settings in effect.
        is_expandable: Whether expandable segments are set, or occur in the trace.
        has_lifetime_pools: Whether MindSpeed's lifetime-segregated pools are on.
        large_segment: Bytes of a segment of the large pool, or of a page of an expandable one.
        has_settings: Whether this version of the allocator reads settings.
        has_expandable: Whether this version has expandable segments.
        on_torch: Whether settings and functions of PyTorch apply.
        on_windows: Whether the program runs on Windows.
        framework: The framework that owns the allocator.
        device: Index of the device; None: unknown.
        started_as: Command that starts the program.
        neighbours: Other recorded processes of the run on the card, with what they held at the failure.
        reads_fraction: Whether the variable of the allocator's settings can also limit the memory of the process.
    """

    backend: str = "cuda"
    facts: Facts = field(default_factory=Facts)
    variable: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    is_expandable: bool = False
    has_lifetime_pools: bool = False
    large_segment: int = LARGE_SEGMENT
    has_settings: bool = True
    has_expandable: bool = True
    on_torch: bool = True
    on_windows: bool = False
    framework: str = "pytorch"
    device: int | None = None
    started_as: str = "python train.py"
    neighbours: tuple[Neighbour, ...] = ()
    reads_fraction: bool = False

    @property
    def system(self) -> System:
        """Names of the backend."""
        return SYSTEMS.get(self.backend, NOTHING)

    @property
    def module(self) -> str:
        """PyTorch's module for the device; "" if there is none."""
        return self.system.module

    @property
    def can_be_set(self) -> bool:
        """True if the allocator reads settings from a known environment variable."""
        return bool(self.variable) and self.has_settings

    @property
    def short(self) -> int | None:
        """Requested bytes beyond the free memory; None if either is unknown."""
        if self.facts.requested is None or self.facts.free is None:
            return None
        return max(self.facts.requested - self.facts.free, 0)

    def line(self, changes: Mapping[str, str | None]) -> str:
        """Returns the line to paste: the settings in effect with ``changes`` (None: the key is removed)."""
        merged: dict[str, str | None] = {**self.settings, **changes}
        if self.backend == "npu" and merged.get("expandable_segments") == "True":
            merged.update(dict.fromkeys(EXCLUDED_BY_EXPANDABLE))
        text = ",".join(f"{key}:{value}" for key, value in merged.items() if value is not None)
        return f"export {self.variable}={text}" if text else f"unset {self.variable}"


class Remedy(Protocol):
    """A change that may prevent the failure, on CUDA, NPU or any backend.

    Its texts are phrases: ``key`` is the instruction, ``key.when`` the condition, and ``key.caveat`` the cost and the
    cases in which not to use it.
    """

    @property
    def key(self) -> str:
        """Key of the instruction; it identifies the remedy on every surface."""

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the remedy with the line to paste; None if it does not apply or is already in effect."""


class AllocatorSetting(Remedy, Protocol):
    """A remedy that changes allocator settings; a replay predicts its effect, and can refute it."""

    @property
    def is_likely(self) -> bool:
        """True if it is worth a replay even on a trace whose replay takes long."""

    def variants(self, situation: Situation) -> Iterator[Fix]:
        """Yields the variants that are worth a replay; none if the remedy does not apply."""


def always(_situation: Situation) -> bool:
    """Returns True: the remedy applies to every situation."""
    return True


def of_backends(*names: str) -> Callable[[Situation], bool]:
    """Returns a condition that is true on the given backends only."""
    return lambda situation: situation.backend in names


def on_torch(situation: Situation) -> bool:
    """Returns whether settings and functions of PyTorch apply."""
    return situation.on_torch


@dataclass(frozen=True, slots=True)
class Plain:
    """A remedy with fixed texts.

    Attributes:
        text: The remedy.
        applies: When it applies.
    """

    text: LazyFix
    applies: Callable[[Situation], bool] = always

    @property
    def key(self) -> str:
        """Key of the instruction."""
        return self.text.key

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the remedy; None if it does not apply."""
        return self.text.fix() if self.applies(situation) else None
