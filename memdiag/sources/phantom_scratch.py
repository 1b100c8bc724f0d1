"""Reads the scratch memory of cuDNN that a simulated device counted, and bounds the uncounted part.

The bounds are measured, since cuDNN documents none:

* A recording of ResNet-50 on a real A100 (cuDNN 8.9, batch 1) has 402 workspaces. Of these, 366 equal what cuDNN 9.10
  plans without a card: 156 exactly, and 210 except for a constant of 128 MiB that the card adds.
* Of 5,400 random convolutions (9.10 and 9.20, compute capability 7.0 to 12.0), the planned workspace is at most 4 times
  the operands for 99.5 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memdiag.results.scratch import Scratch
from memdiag.units import MIB

CONSTANT_BYTES = 128 * MIB  # a card may add this to the workspace of a convolution
OPERANDS = 4  # an unplanned workspace is probably at most this many times its operands

_MOST = 1 << 50
_SEARCH = 2  # plans for each list of engines, above which PyTorch searches for the fastest one
_MOST_LISTS, _MOST_ENGINES = 1024, 1024
_OPERATIONS = ("convolution", "attention", "recurrent", "other")
_TALLY = ("calls", "unknown_calls", "largest_bytes", "largest_unknown_operand_bytes")


def scratch_in(own: Mapping[str, Any]) -> Scratch | None:
    """Returns the counts in the recorder's data; None if cuDNN was not used, or for invalid counts."""
    device = own.get("phantom_device")
    given = device.get("scratch") if isinstance(device, dict) else None
    if not isinstance(given, dict):
        return None
    tallies = {name: tally for name in _OPERATIONS if (tally := _tally(given.get(name))) is not None}
    planner, fixed, extra = (_count(given.get(name)) for name in ("planner", "given_bytes", "extra_bytes"))
    if not tallies or planner is None or fixed is None or extra is None:
        return None
    more = [_more(name, tally, max(fixed, extra)) for name, tally in tallies.items()]
    return Scratch(
        planner=f"{planner // 10000}.{planner // 100 % 100}.{planner % 100}" if planner else "",
        num_calls=sum(tally["calls"] for tally in tallies.values()),
        num_unknown_calls=sum(tally["unknown_calls"] for tally in tallies.values()),
        largest_bytes=max(tally["largest_bytes"] for tally in tallies.values()),
        more_bytes=max(more),
        workspaces=_workspaces(given.get("workspaces")),
        is_searching=(_count(given.get("plans")) or 0) > _SEARCH * (_count(given.get("lists")) or 0),
    )


def outside_error_in(own: Mapping[str, Any]) -> int:
    """Returns by about how much memory outside the allocator may differ on a card; 0 for a real or unknown device.

    The estimates of NCCL's buffers and of executable graphs count as errors of the same size, since public figures
    exceed them (nccl#864: 1.6 GB; graphs: 2 to 64 KiB for each node).
    """
    device = own.get("phantom_device")
    if not isinstance(device, dict):
        return 0
    counts = device.get("scratch")
    estimates = [counts.get(name) for name in ("communicators", "graphs")] if isinstance(counts, dict) else []
    estimated = sum(_count(one.get("bytes")) or 0 for one in estimates if isinstance(one, dict))
    return (_count(device.get("context_error_bytes")) or 0) + estimated


def _more(name: str, tally: Mapping[str, int], given_bytes: int) -> int:
    """Returns the bytes by which a workspace may be larger on a card; ``given_bytes`` were added by the user."""
    known = CONSTANT_BYTES if name == "convolution" else 0
    unknown = known + OPERANDS * tally["largest_unknown_operand_bytes"] if tally["unknown_calls"] else 0
    return max(0, max(known, unknown) - given_bytes)


def _tally(given: Any) -> dict[str, int] | None:
    if not isinstance(given, dict):
        return None
    counts = {name: count for name in _TALLY if (count := _count(given.get(name))) is not None}
    return counts if len(counts) == len(_TALLY) and counts["calls"] else None


def _workspaces(given: Any) -> tuple[tuple[int, ...], ...]:
    lists = given[:_MOST_LISTS] if isinstance(given, list) else []
    found = [[_count(each) for each in row[:_MOST_ENGINES]] for row in lists if isinstance(row, list)]
    return tuple(tuple(each for each in row if each is not None) for row in found)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST else None
