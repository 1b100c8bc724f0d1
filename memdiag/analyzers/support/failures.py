"""Failed allocations of a trace, and their comparison with an out-of-memory message.

A message prints the size of the driver request (a whole segment: "14.00 MiB"). The entry of the trace contains the
rounded request of the program (13 MiB). Both contain the free memory of the device. Messages print two decimals of a
unit; numbers that are equal after that rounding agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.fit import Fit, would_fit
from memdiag.analyzers.support.moments import DeviceMoment, look
from memdiag.sizes.cuda import SMALL_LIMIT
from memdiag.trace import schema
from memdiag.trace.free_split import Split, split_at
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.topology import Topology
from memdiag.units import GIB, KIB, MIB

NEAR = 0.1  # a moment whose numbers are this close to those of a message may be the moment of the failure


@dataclass(frozen=True)
class Failure:
    """A failed request, and its moment.

    Attributes:
        here: The device at that moment.
        request_bytes: The rounded request; if it is not exact, the driver request, which is at least as large.
        group: Its pool and stream (a row of Groups), or -1.
        exact: Whether the trace contains the failure itself; otherwise the moment is the one most similar to the
            message.
        count: Number of failed requests of the same size at the same call site.
    """

    here: DeviceMoment
    request_bytes: int
    group: int
    exact: bool = True
    count: int = 1

    @property
    def view(self) -> DeviceView:
        """The device at that moment."""
        return self.here.view

    @property
    def device(self) -> DeviceTrace:
        """The device."""
        return self.here.device

    @property
    def key(self) -> tuple[int, int]:
        """Device and event."""
        return self.device.device, self.here.at

    @property
    def usage(self) -> dict[str, int]:
        """Reserved, allocated, active and requested bytes at that moment; -1 if unknown."""
        return self.here.usage

    @property
    def site(self) -> str:
        """Call site of the request, or "" if unknown."""
        return self.view.label(int(self.device.events.stack[self.here.at])) if self.exact else ""

    @property
    def free_bytes(self) -> int:
        """Free bytes in all pools of the allocator, or -1 if unknown."""
        return self.usage["reserved"] - self.active_bytes if min(self.usage["reserved"], self.active_bytes) >= 0 else -1

    @property
    def active_bytes(self) -> int:
        """Bytes of blocks in use or waiting for a stream, else allocated bytes; -1 if unknown."""
        return self.usage["active"] if self.usage["active"] >= 0 else self.usage["allocated"]

    @property
    def segment_bytes(self) -> int:
        """Bytes of the driver request; an upper bound for files without pools."""
        if not self.exact:
            return self.request_bytes
        return (
            self.here.segment_bytes
            if self.here.failed
            else max(self.request_bytes, self.here.settings.page_bytes(small=False))
        )

    @cached_property
    def topology(self) -> Topology:
        """Segments and blocks at that moment."""
        return self.here.topology if self.here.failed else self.device.topology(self.here.at)

    @cached_property
    def fit(self) -> Fit | None:
        """The fit of the request into free memory, and the live tensors that block it; None without addresses."""
        return would_fit(self.topology, self.group, self.request_bytes) if self.device.has_addresses else None

    @cached_property
    def split(self) -> Split | None:
        """The split of the free bytes for this request, or None without addresses."""
        if not self.device.has_addresses:
            return None
        return split_at(
            self.device, self.here.at, self.request_bytes, self.group, self.here.settings.page_bytes(small=False)
        )

    @property
    def could_be_served(self) -> bool:
        """Returns True if a retry would have made room: then the failure was at another moment."""
        left = self.here.device_free_bytes or 0
        return self.split is not None and self.split.cache + left >= self.request_bytes

    @property
    def num_free(self) -> int:
        """Number of free blocks of all pools and streams."""
        return int((self.topology.blocks["tensor"] < 0).sum())

    def private_bytes(self, *, free: bool = False) -> int:
        """Returns the bytes reserved by private pools (CUDA graphs, MemPools).

        With ``free``, only their unused bytes count.
        """
        groups = self.device.groups
        if not self.device.has_addresses or not len(groups):
            return 0
        topology = self.topology
        private = ((groups.pool_major != 0) | (groups.pool_minor != 0))[topology.segments["group"]] & (
            topology.segments["group"] >= 0
        )
        blocks = topology.blocks
        chosen = private[blocks["segment"]] & ((blocks["tensor"] < 0) if free else True)
        return int(blocks["size"][chosen].sum())

    @property
    def is_private(self) -> bool:
        """Returns True if the request was made in a private pool."""
        groups = self.device.groups
        return self.group >= 0 and bool(groups.pool_major[self.group] or groups.pool_minor[self.group])


@dataclass(frozen=True)
class FailureComparison:
    """The numbers of a message compared with those of a trace.

    Attributes:
        agreeing: Equal numbers, as (name, bytes in the trace).
        differing: Different numbers, as (name, bytes printed, bytes in the trace).
    """

    agreeing: tuple[tuple[str, int], ...]
    differing: tuple[tuple[str, int, int], ...]


def failures(trace: Trace, device: int) -> list[Failure]:
    """Returns the failed requests of a device in order; repetitions of the same request count as one, at its last."""
    found: dict[tuple[int, int, int], list[int]] = {}
    chosen = next(d for d in trace.devices if d.device == device)
    events = chosen.events
    for at in np.flatnonzero(events.action == schema.OOM).tolist():
        found.setdefault((int(events.size[at]), int(events.stream[at]), int(events.stack[at])), []).append(at)
    return [_failure_at(trace, device, at[-1], len(at)) for at in found.values()]


def every_failure(trace: Trace, device: int) -> list[Failure]:
    """Returns the failed requests of a device, one for each entry of the trace, in order."""
    chosen = next(d for d in trace.devices if d.device == device)
    return [_failure_at(trace, device, at) for at in np.flatnonzero(chosen.events.action == schema.OOM).tolist()]


def _failure_at(trace: Trace, device: int, at: int, count: int = 1) -> Failure:
    here = _look_at(trace, device, at)
    return Failure(here, int(here.device.events.size[at]), here.group if here.failed else -1, count=count)


def _look_at(trace: Trace, device: int, at: int) -> DeviceMoment:
    (view,) = Context(at, device=device).views(trace)
    return look(view, AllocatorSettings.of(trace))


def nearest(trace: Trace, device: int, fields: Mapping[str, object]) -> Failure:
    """Returns the moment, in a trace without failure, that is most similar to a message (the last of several).

    The default is the end.
    """
    chosen = next(d for d in trace.devices if d.device == device)
    printed = numbers(fields)
    # One column per moment: before the first event, then after each.
    curves = {name: np.concatenate(([chosen.start[name]], chosen.usage[name])) for name in ("reserved", "allocated")}
    distance = np.zeros(chosen.num_events + 1)
    for name, curve in curves.items():
        if name in printed:
            distance += np.where(curve >= 0, np.abs(curve - printed[name].bytes), 0)
    here = _look_at(trace, device, chosen.num_events - 1 - int(np.argmin(distance[::-1])))
    request = printed["requested"].bytes if "requested" in printed else 0
    return Failure(here, request, _roomiest(chosen, here.at, small=request <= SMALL_LIMIT), exact=False)


def _roomiest(device: DeviceTrace, at: int, *, small: bool) -> int:
    """Returns the pool and stream (of small or large blocks) with the most memory, the likely origin of a request."""
    topology = device.topology(at) if device.has_addresses else None
    if topology is None or not len(topology.segments["group"]):
        return -1
    held = np.bincount(
        np.maximum(topology.segments["group"], 0), weights=topology.segments["size"], minlength=len(device.groups)
    )
    held = np.where(device.groups.small == small, held, -1)
    return int(np.argmax(held)) if held.max(initial=-1) >= 0 else -1


@dataclass(frozen=True)
class Number:
    """A number of a message in bytes, and its error from printing two decimals of its unit."""

    bytes: int
    slack: int

    @classmethod
    def printed(cls, value: int) -> Number:
        """Returns a number as it was printed."""
        unit = next((unit for unit in (GIB, MIB, KIB) if value >= unit), 1)
        return cls(value, unit // 200 + 1)

    def plus(self, other: Number, sign: int = 1) -> Number:
        """Returns the sum (or the difference) of two printed numbers."""
        return Number(self.bytes + sign * other.bytes, self.slack + other.slack)


def numbers(fields: Mapping[str, object]) -> dict[str, Number]:
    """Returns the allocator's numbers in a message: requested, allocated, reserved, active and free, if printed.

    The number that PyTorch prints as allocated includes the free blocks of private pools, which it prints too; the
    trace does not count them.
    """
    names = ("requested", "allocated", "reserved", "active", "free", "unallocated", "cached", "private_pool")
    given = {name: fields.get(f"{name}_bytes") for name in names}
    known = {name: Number.printed(value) for name, value in given.items() if isinstance(value, int)}
    unallocated, cached, private = (known.pop(name, None) for name in ("unallocated", "cached", "private_pool"))
    unallocated = unallocated or cached
    if "allocated" in known:
        if unallocated:
            known.setdefault("reserved", known["allocated"].plus(unallocated))
        if private:
            known["allocated"] = known["allocated"].plus(private, -1)
    return known


def compare(fields: Mapping[str, object], failure: Failure) -> FailureComparison:
    """Compares the numbers of a message with those of a failure."""
    agreeing, differing = [], []
    recorded = {
        **failure.usage,
        "free": -1 if failure.here.device_free_bytes is None else failure.here.device_free_bytes,
    }
    for name, printed in numbers(fields).items():
        highest = failure.segment_bytes if name == "requested" else recorded[name]
        # the message has the size of the request or of the segment, as the allocator decides
        lowest = failure.request_bytes if name == "requested" else highest
        if highest < 0:
            continue
        if lowest - printed.slack <= printed.bytes <= highest + printed.slack:
            agreeing.append((name, highest))
        else:
            differing.append((name, printed.bytes, highest))
    return FailureComparison(tuple(agreeing), tuple(differing))


def is_near(fields: Mapping[str, object], failure: Failure) -> bool:
    """Returns True if the moment could be that of the message, or one shortly before or after."""
    printed = numbers(fields)
    pairs = [
        (printed[name].bytes, failure.usage[name])
        for name in ("allocated", "reserved")
        if name in printed and failure.usage[name] >= 0
    ]
    return all(abs(one - other) <= max(NEAR * one, 32 * MIB) for one, other in pairs)


def best_match(
    fields: Mapping[str, object], candidates: list[Failure], used: set[tuple[int, int]]
) -> tuple[Failure, FailureComparison] | None:
    """Returns the failure that a message is about, or None.

    It is the first that agrees in most numbers, and in the decisive ones.

    Args:
        fields: Fields of the message.
        candidates: Failures of its device, in order.
        used: Failures of earlier messages, as (device, event): they come last.
    """
    matching = [(candidate, compared) for candidate, compared in _compared(fields, candidates) if _is_same(compared)]
    if not matching:
        return None
    return min(
        matching,
        key=lambda pair: (len(pair[1].differing), -len(pair[1].agreeing), pair[0].key in used, pair[0].here.at),
    )


def _compared(fields: Mapping[str, object], candidates: list[Failure]) -> Iterator[tuple[Failure, FailureComparison]]:
    for candidate in candidates:
        yield candidate, compare(fields, candidate)


def _is_same(compared: FailureComparison) -> bool:
    """Returns True if the allocator's own numbers agree; the free memory of the device does not count."""
    own = [name for name, *_ in compared.differing if name != "free"]
    return not own and any(name != "free" for name, _ in compared.agreeing)
