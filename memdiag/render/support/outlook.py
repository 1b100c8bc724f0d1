"""Words for the result of a simulated run, the same on every surface."""

from __future__ import annotations

from memdiag.results.outlook import PAST_FAILURE, RECORDED_PART, Outlook, Rest
from memdiag.text import Phrase, phrase
from memdiag.units import format_bytes

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_EXPLAINED = ("part", "past")  # results whose name needs an explanation


def fate(fits: bool | None, basis: str) -> Phrase:
    """Returns the result of a simulated run in one or two words."""
    if basis == PAST_FAILURE and fits is None:
        return phrase("outlook.fate.past")
    if not fits:
        return phrase("outlook.fate.oom")
    return phrase("outlook.fate.part") if basis == RECORDED_PART else phrase("outlook.fate.runs")


def meanings(fates: list[Phrase]) -> list[Phrase]:
    """Returns an explanation of each result among ``fates`` that needs one."""
    names = dict.fromkeys(each.key.rpartition(".")[2] for each in fates)
    return [phrase(f"outlook.means.{name}") for name in names if name in _EXPLAINED]


def past_failure(outlook: Outlook) -> Phrase:
    """Returns the verdict on a run that gets past the failure at which its recording ends, as half a sentence."""
    step = outlook.failed_step
    return phrase(
        "outlook.past",
        bytes=format_bytes(outlook.failed_request_bytes),
        event=outlook.failed_at_event,
        step=phrase("outlook.past.step", step=str(step)) if step >= 0 else "",
    )


def estimate(rest: Rest) -> Phrase:
    """Returns the estimate of the rest of a run, as a sentence."""
    peak = format_bytes(rest.peak_reserved_bytes)
    if rest.basis == "optimizer_state":
        optimizer = phrase("outlook.assumed", optimizer=rest.optimizer) if rest.is_optimizer_assumed else rest.optimizer
        state = {"optimizer": optimizer, "bytes": format_bytes(rest.optimizer_state_bytes)}
        if rest.fits is False:
            return phrase("outlook.rest.state.fails", **state)
        return phrase("outlook.rest.state", **state, peak=peak)
    if rest.fits is False:
        return phrase("outlook.rest.step.fails", step=str(rest.step))
    return phrase("outlook.rest.step", step=str(rest.step), peak=peak)


def sentences(outlook: Outlook) -> list[Phrase]:
    """Returns the estimate of the rest, and how to learn more; nothing without an unknown part."""
    if outlook.fits is not None or outlook.basis != PAST_FAILURE:
        return []
    said = [] if outlook.estimate is None else [estimate(outlook.estimate)]
    return [*said, phrase("outlook.rerun", command=outlook.rerun_command)] if outlook.rerun_command else said


def name_of(number: int) -> str:
    """Returns the letters of a simulated run: A to Z, then AA."""
    return (
        _LETTERS[number]
        if number < len(_LETTERS)
        else name_of(number // len(_LETTERS) - 1) + _LETTERS[number % len(_LETTERS)]
    )


def on(capacity: int | None, room: int | None, *, is_card: bool = True) -> Phrase:
    """Returns the name of a device, and the allocator's room on it if that is less.

    Args:
        is_card: Whether the size of the device is known.
    """
    if capacity is None:
        return phrase("simulate.on.unlimited")
    size = format_bytes(capacity)
    if not is_card:
        return phrase("simulate.on.room", bytes=size)
    if room is None or room == capacity:
        return phrase("simulate.on.card", bytes=size)
    return phrase("simulate.on.card.room", bytes=size, room=format_bytes(room))


def saving(saved: int) -> str:
    """Returns a saving as a cell of a table: ``24.00 MiB``, or ``3.00 MiB more``."""
    return format_bytes(saved) if saved >= 0 else phrase("simulate.more_bytes", bytes=format_bytes(-saved))
