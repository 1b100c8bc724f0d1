"""The ledger of a card over time, from the samples of a recording."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memdiag.results.card_ledger import CardMoment
from memdiag.trace import schema
from memdiag.trace.table import Array

if TYPE_CHECKING:
    from memdiag.trace.model import DeviceTrace

MOST_MOMENTS = 240  # in a report
_ALWAYS = tuple(schema.OCCASIONS.index(when) for when in ("start", "mark", "oom", "end"))


def ledger_of(device: DeviceTrace, most: int = MOST_MOMENTS) -> tuple[CardMoment, ...]:
    """Returns the memory of the card at its samples, at most about ``most``: then the fullest of each stretch of time.

    The sum of the parts equals the total at every moment.
    """
    return tuple(_moment(device, row) for row in _chosen(device, most).tolist())


def _moment(device: DeviceTrace, row: int) -> CardMoment:
    said = {name: int(device.samples[name][row]) for name in schema.SAMPLES}
    is_separate = said["own"] >= 0 and said["others"] >= 0
    held = min(said["reserved"], said["own"] if is_separate else said["total"] - said["free"])
    own = said["own"] - held if is_separate else None
    others = said["others"] if is_separate else None
    return CardMoment(
        said["at_event"] if said["at_event"] >= 0 else None,
        said["time_us"],
        schema.OCCASIONS[said["when"]],
        said["step"],
        said["total"],
        held,
        own,
        others,
        said["total"] - said["free"] - held - (own or 0) - (others or 0),
        said["free"],
        said["reserved"] - held,
    )


def _chosen(device: DeviceTrace, most: int) -> Array:
    """Returns the rows to show."""
    samples = device.samples
    if len(samples) <= most:
        return np.arange(len(samples))
    parts = np.array_split(np.arange(len(samples)), most // 2)
    fullest = [int(part[np.argmin(samples.free[part])]) for part in parts]
    highest = [int(part[np.argmax(samples.reserved[part])]) for part in parts]
    always = np.flatnonzero(np.isin(samples.when, _ALWAYS))[-most:].tolist()
    return np.unique([*fullest, *highest, *always])
