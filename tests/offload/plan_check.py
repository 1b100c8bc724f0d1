"""Verifies a plan by a slow method: every live byte is in one place, tensors are back before use, budgets hold.

It reads only lifetimes, needs and moves, and shares no code with the planner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

ON_DEVICE, ON_HOST, ON_DISK = "device", "host", "disk"


@dataclass(frozen=True)
class Life:
    """A tensor: live from ``born`` until before ``dead`` (events), and idle only within ``idle`` (begin, end)."""

    born: int
    dead: int
    size: int
    idle: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Stay:
    """A tensor is offloaded from before event ``out`` until before event ``back``."""

    tensor: int
    place: str
    out: int
    back: int


def problems(lives: dict[int, Life], stays: Iterable[Stay], budgets: dict[str, int], num_events: int) -> list[str]:
    """Returns the violations in a plan; empty if there are none.

    Args:
        lives: Tensors by number.
        stays: Where tensors are while they are not on the device.
        budgets: Bytes by place; others are unlimited.
        num_events: Number of events of the trace.
    """
    found: list[str] = []
    away: dict[int, list[Stay]] = defaultdict(list)
    for stay in stays:
        away[stay.tensor].append(stay)
    changes: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for number, life in lives.items():
        here = max(life.born, 0)
        for stay in sorted(away.get(number, []), key=lambda each: each.out):
            if not (stay.out >= here and stay.back >= stay.out and stay.back <= max(life.dead, stay.out)):
                found.append(
                    f"tensor {number} is away from {stay.out} to {stay.back}, but is there from {here} to {life.dead}"
                )
                continue
            if not any(begin <= stay.out and stay.back <= end for begin, end in life.idle):
                found.append(f"tensor {number} is away from {stay.out} to {stay.back}, when it is needed")
            changes[here].append((ON_DEVICE, life.size))
            changes[stay.out] += [(ON_DEVICE, -life.size), (stay.place, life.size)]
            changes[stay.back].append((stay.place, -life.size))
            here = stay.back
        changes[here].append((ON_DEVICE, life.size))
        changes[life.dead].append((ON_DEVICE, -life.size))
    held: dict[str, int] = defaultdict(int)
    for at in sorted(changes):
        for place, change in changes[at]:
            held[place] += change
        if at >= num_events:
            break
        live = sum(life.size for life in lives.values() if max(life.born, 0) <= at < life.dead)
        if sum(held.values()) != live:
            found.append(f"at event {at} {sum(held.values())} bytes are held, {live} are live")
        for place, most in budgets.items():
            if held[place] > most:
                found.append(f"at event {at} {place} holds {held[place]} bytes, {most} are allowed")
    found += [f"tensor {number} is away but does not exist" for number in away if number not in lives]
    return found
