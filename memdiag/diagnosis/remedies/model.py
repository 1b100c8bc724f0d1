"""What a remedy is, and the situation that it looks at.

A remedy can have further abilities. Each is a type of its own with its own registry, so that nothing has to ask an
object what it can do: a remedy that a replay can judge is an ``AllocatorSetting`` and listed in ``ALLOCATOR_SETTINGS``
too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.remedies.lazy_fix import LazyFix
from memdiag.diagnosis.remedies.systems import NOTHING, SYSTEMS, System
from memdiag.results.finding import Fix
from memdiag.settings.exclusions import EXCLUDED_BY_EXPANDABLE
from memdiag.sizes.cuda import LARGE_SEGMENT


@dataclass(frozen=True, slots=True)
class Situation:
    """A program with a problem, as far as a message or a trace shows it.

    Attributes:
        backend: "cuda", "hip", "npu", …; "": unknown.
        facts: Numbers of the failure; none of them where nothing failed.
        variable: Environment variable with the settings of PyTorch's allocator; "": it has none.
        settings: Settings in effect, as far as they are known.
        is_expandable: Whether expandable segments are set or seen.
        large_segment: Bytes of a segment of the large pool, or of a page of an expandable one.
        has_settings: Whether this version of the allocator reads settings.
        has_expandable: Whether this version has expandable segments.
        on_torch: Whether settings and functions of PyTorch apply.
        on_windows: Whether the program runs on Windows.
        framework: Whose allocator it is.
        device: Index of the device; None: unknown.
        started_as: Command that starts the program.
        reads_fraction: Whether the variable of the allocator's settings can also limit the memory of the process.
    """

    backend: str = "cuda"
    facts: Facts = field(default_factory=Facts)
    variable: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    is_expandable: bool = False
    large_segment: int = LARGE_SEGMENT
    has_settings: bool = True
    has_expandable: bool = True
    on_torch: bool = True
    on_windows: bool = False
    framework: str = "pytorch"
    device: int | None = None
    started_as: str = "python train.py"
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
        """Whether the allocator reads settings, and memdiag knows from where."""
        return bool(self.variable) and self.has_settings

    @property
    def short(self) -> int | None:
        """Bytes requested beyond what is free; None where either is unknown."""
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
    """Something that may help, on CUDA, NPU or any backend.

    Its texts are phrases: ``key`` says what to do, ``key.when`` when it applies, and ``key.caveat`` what it costs and
    when not to use it.
    """

    @property
    def key(self) -> str:
        """Key of the sentence that says what to do: the identity of the remedy on every surface."""

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the remedy with the line to paste; None where it does not apply, or is in effect already."""


class AllocatorSetting(Remedy, Protocol):
    """A remedy that changes settings of the allocator: a replay shows what it gives, and can refute it."""

    @property
    def is_likely(self) -> bool:
        """Whether it is worth a replay even on a trace of which each replay takes long."""

    def variants(self, situation: Situation) -> Iterator[Fix]:
        """Yields the forms that are worth a replay; none where the remedy does not apply."""


def always(_situation: Situation) -> bool:
    """Returns True: the remedy applies to every situation."""
    return True


def of_backends(*names: str) -> Callable[[Situation], bool]:
    """Returns a condition that holds on some backends."""
    return lambda situation: situation.backend in names


def on_torch(situation: Situation) -> bool:
    """Returns whether settings and functions of PyTorch apply."""
    return situation.on_torch


@dataclass(frozen=True, slots=True)
class Plain:
    """A remedy of fixed words.

    Attributes:
        text: The remedy.
        applies: When it applies.
    """

    text: LazyFix
    applies: Callable[[Situation], bool] = always

    @property
    def key(self) -> str:
        """As of ``Remedy``."""
        return self.text.key

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the remedy; None where it does not apply."""
        return self.text.fix() if self.applies(situation) else None
