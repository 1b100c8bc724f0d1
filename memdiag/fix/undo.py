"""Finds a remedy with which the program does worse than without it, by running the program without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memdiag.fix.base import Proposal
from memdiag.results.fix import FixPeaks

_NOTICEABLE = 0.002  # share of the allocated peak


@dataclass(frozen=True)
class Attempt:
    """One run of the program.

    Attributes:
        peaks: Its peaks; None: it left no recording.
        ended_well: Whether it ran to its end.
        num_served: Number of served allocations before the last failed one; None: none failed.
        idle: Remedies that the running program refused, so that they did nothing.
    """

    peaks: FixPeaks | None
    ended_well: bool
    num_served: int | None = None
    idle: frozenset[str] = frozenset()


def find_worse(
    attempt: Attempt, chosen: Sequence[Proposal], run: Callable[[Sequence[Proposal]], Attempt]
) -> Proposal | None:
    """Returns a remedy that did nothing, or without which the program does better, or None if there is no such remedy.

    Args:
        attempt: The run with all chosen remedies.
        chosen: The remedies.
        run: Runs the program with some of them.
    """
    for each in reversed(chosen):
        if each.name in attempt.idle or _is_worse(attempt, run([other for other in chosen if other is not each])):
            return each
    return None


def _is_worse(one: Attempt, other: Attempt) -> bool:
    """Returns whether a run ended earlier than another one, or has a higher allocated peak."""
    if one.ended_well != other.ended_well:
        return other.ended_well
    if not one.ended_well:
        return _place(one) < _place(other)
    if one.peaks is None or other.peaks is None:
        return False
    if one.peaks.allocated_bytes is None or other.peaks.allocated_bytes is None:
        return one.peaks.reserved_bytes > (1 + _NOTICEABLE) * other.peaks.reserved_bytes
    return one.peaks.allocated_bytes > (1 + _NOTICEABLE) * other.peaks.allocated_bytes


def _place(attempt: Attempt) -> int:
    """Returns how far a failed run came; an error that is not about memory comes first."""
    return -1 if attempt.num_served is None else attempt.num_served
