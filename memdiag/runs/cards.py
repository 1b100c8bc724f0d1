"""Finds which processes of a run share a card, and how much memory each of them held there over time.

Every process samples the whole card, but knows only its own part. Together, the recordings divide the card at every
sample: the traces of the other processes show their reserved memory at that time. It is exact if events have times,
otherwise it is that of their latest sample.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memdiag.analyzers.support.ledger import ledger_of
from memdiag.results.shared_cards import CardFailure, CardProcess, HandOff, SharedCard, SharedMoment
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace

MOST_SAMPLES, MOST_CHANGES = 256, 2048  # of one process on one card
AWAKE = 0.5  # fraction of its own peak: a process with more uses the card
_ENDED = "end"

Use = Mapping[str, Any]


def uses_of(trace: Trace) -> list[dict[str, Any]]:
    """Returns what a process had on each card over time, in JSON types; empty without samples.

    Keys: card, device, pid, name, total_bytes, samples ([time, occasion, reserved, free]), changes ([time, reserved],
    empty if events have no times) and requested_bytes (of the last failed request).
    """
    recorded = trace.recorded
    if recorded is None:
        return []
    cards, process = recorded.process.cards, recorded.process
    return [
        {
            "card": cards[device.device],
            "device": device.device,
            "pid": process.pid,
            "name": process.name,
            "total_bytes": int(device.samples.total[-1]),
            "samples": [
                [moment.at_us, moment.when, moment.reserved_bytes, moment.free_bytes]
                for moment in ledger_of(device, MOST_SAMPLES)
            ],
            "changes": _changes(device),
            "requested_bytes": _requested(device),
        }
        for device in trace.devices
        if len(device.samples) and device.device in cards
    ]


def _changes(device: DeviceTrace) -> list[list[int]]:
    """Returns the times at which reserved memory changed, and what was reserved then."""
    time, reserved = device.events.time_us, device.usage.reserved
    if not len(time) or time[-1] < 0 or reserved[-1] < 0 or device.start["reserved"] < 0:
        return []
    at = np.flatnonzero(np.diff(reserved, prepend=device.start["reserved"]))
    if len(at) > MOST_CHANGES:
        return []
    first = [[0, device.start["reserved"]]]
    return first + [[int(time[event]), int(reserved[event])] for event in at.tolist()]


def _requested(device: DeviceTrace) -> int | None:
    failed = np.flatnonzero(device.events.action == schema.OOM)
    return int(device.events.size[failed[-1]]) if len(failed) else None


def shared_cards(uses: Mapping[int, Sequence[Use]]) -> tuple[SharedCard, ...]:
    """Returns the cards that at least two processes used, by the results of ``uses_of`` for each rank."""
    by_card: dict[str, dict[int, Use]] = {}
    for rank, cards in sorted(uses.items()):
        for use in cards:
            by_card.setdefault(use["card"], {})[rank] = use
    return tuple(_shared(card, members) for card, members in sorted(by_card.items()) if len(members) > 1)


def _shared(card: str, members: Mapping[int, Use]) -> SharedCard:
    total = max(use["total_bytes"] for use in members.values())
    samples = sorted(
        (at, rank, when, reserved, free) for rank, use in members.items() for at, when, reserved, free in use["samples"]
    )
    moments, num_skipped = [], 0
    for at, rank, when, reserved, free in samples:
        held = tuple(
            reserved if other == rank else _reserved_at(use, at, total - free - reserved)
            for other, use in members.items()
        )
        outside = total - free - sum(held)
        if outside < 0:
            num_skipped += 1
            continue
        moments.append(SharedMoment(at, rank, when, held, outside, free))
    peaks = [max((moment.reserved_bytes[i] for moment in moments), default=0) for i in range(len(members))]
    processes = tuple(
        CardProcess(rank, use["pid"], use["name"], peak)
        for (rank, use), peak in zip(members.items(), peaks, strict=True)
    )
    failures = tuple(
        CardFailure(moment.rank, members[moment.rank]["requested_bytes"], moment)
        for moment in moments
        if moment.when == "oom"
    )
    return SharedCard(
        card, total, processes, tuple(moments), tuple(_hand_offs(processes, moments)), failures, num_skipped
    )


def _reserved_at(use: Use, at: int, most: int) -> int:
    """Returns what a process had reserved at a time.

    A process that has ended may have released its memory already: it had none if the card had no room for it.
    """
    rows = use["changes"] or [[0, 0], *([time, reserved] for time, _, reserved, _ in use["samples"])]
    reserved = int(rows[bisect_right(rows, at, key=lambda row: row[0]) - 1][1])
    time, when, *_ = use["samples"][-1]
    return 0 if reserved > most and when == _ENDED and time <= at else reserved


def _hand_offs(processes: Sequence[CardProcess], moments: Sequence[SharedMoment]) -> list[HandOff]:
    found: list[HandOff] = []
    using = -1
    for moment in moments:
        shares = [
            held / process.peak_reserved_bytes if process.peak_reserved_bytes else 0.0
            for held, process in zip(moment.reserved_bytes, processes, strict=True)
        ]
        most = max(range(len(shares)), key=lambda i: moment.reserved_bytes[i])
        if shares[most] < AWAKE or most == using:
            continue
        if using >= 0:
            kept = moment.reserved_bytes[using]
            found.append(HandOff(moment.at_us, processes[using].rank, processes[most].rank, kept))
        using = most
    return found
