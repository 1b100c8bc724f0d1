"""One trace of a comparison: its memory at the peak, by call site and by name, as plain data.

The moment is that of ``memdiag analyze`` (``memdiag.trace.moments``): the failed allocation, else the peak. The bytes
of all call sites, and stranded, foreign and cached bytes, add up to the reserved bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.devices import describe
from memdiag.analyzers.support.names import has_names, names_of
from memdiag.analyzers.support.places import moment_name
from memdiag.analyzers.support.sites import label_of, stackless, without_stack
from memdiag.compare.axis import Axis
from memdiag.compare.facts import facts_of, run_of, settings_of
from memdiag.compare.places import Known
from memdiag.errors import MemdiagError
from memdiag.results.compare import Amount, CodePlace, ComparedFinding, Side, SiteHeld
from memdiag.results.report import Usage
from memdiag.sources import load
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import DEFAULT, choose_moment, has_history
from memdiag.trace.names import collapsed
from memdiag.trace.table import Array

_LETTERS = "ABCDEFGH"
_MOST = len(_LETTERS)  # columns of a table
_MOST_NAMED = 200  # number of largest call sites whose tensors are named
NO_TENSOR = "(of no tensor in this file)"
_KINDS = ("reserved", "allocated", "active", "requested")


@dataclass(frozen=True)
class ComparedTrace:
    """A trace, its compared device, and its letter.

    Attributes:
        letter: "A", "B", …
        run: Options, environment and versions from its manifest; empty if there is none.
    """

    letter: str
    trace: Trace
    device: DeviceTrace
    run: dict[str, str]


def sides(
    paths: Sequence[Path], device: int | None = None, read: Callable[[Path], Trace] = load
) -> list[ComparedTrace]:
    """Returns the traces of a comparison, or the devices of a single trace.

    Args:
        paths: Their files, the base first.
        device: The device of each to compare, or None for the one with the most memory.
        read: Reads a trace.

    Raises:
        MemdiagError: A trace cannot be read or does not have the device, or there are too few or too many traces.
    """
    if len(paths) > _MOST:
        raise MemdiagError(
            phrase("errors.too-many", value=str(len(paths)), most=str(_MOST)), phrase("errors.too-many.hint")
        )
    traces = {path: read(path) for path in dict.fromkeys(paths)}
    if len(paths) == 1:
        return _devices(paths[0], traces[paths[0]], device)
    numbers = [choose_device(traces[path], device).device for path in paths]
    return [_one(letter, path, traces[path], n) for letter, path, n in zip(_LETTERS, paths, numbers, strict=False)]


def _devices(path: Path, trace: Trace, device: int | None) -> list[ComparedTrace]:
    """Returns the devices of one trace, to be compared with each other.

    Raises:
        MemdiagError: The trace has only one device.
    """
    used = [each.device for each in trace.devices if each.num_events or len(each.tensors)]
    if device is not None or len(used) < 2:
        raise MemdiagError(phrase("errors.alone", path=str(path)), phrase("errors.second-trace"))
    if len(used) > _MOST:
        raise MemdiagError(
            phrase("errors.too-many-devices", path=str(path), value=str(len(used))),
            phrase("errors.too-many-devices.hint"),
        )
    return [_one(letter, path, trace, number) for letter, number in zip(_LETTERS, used, strict=False)]


def _one(letter: str, path: Path, trace: Trace, number: int) -> ComparedTrace:
    return ComparedTrace(letter, trace, choose_device(trace, number), run_of(path))


def choose_device(trace: Trace, number: int | None) -> DeviceTrace:
    """Returns the device with that number, or with None the one with the most memory.

    Raises:
        MemdiagError: The trace does not have it, or any.
    """
    if number is not None:
        found = next((device for device in trace.devices if device.device == number), None)
        if found is None:
            have = ", ".join(str(device.device) for device in trace.devices) or "none"
            raise MemdiagError(
                phrase("errors.no-device.path", path=str(trace.path), number=str(number)),
                phrase("errors.devices", have=str(have)),
            )
        return found
    if not trace.devices:
        raise MemdiagError(phrase("errors.without-device", path=str(trace.path)), phrase("errors.without-device.hint"))
    return max(trace.devices, key=lambda device: device.most_held_bytes)


def side_of(
    chosen: ComparedTrace, axis: Axis | None, *, at: str | int = DEFAULT, with_findings: bool = True
) -> tuple[Side, Known]:
    """Returns the compared data of one trace, and its known call sites.

    Args:
        chosen: The trace.
        axis: Axis for lifetimes, or None to omit them.
        at: The moment, as in ``memdiag.trace.moments``.
        with_findings: Whether the trace is also analyzed.
    """
    trace, device = chosen.trace, chosen.device
    view = DeviceView(trace, device, *choose_moment(device, at))
    moment = view.at
    described = describe(view, Context(top=1, device=device.device))
    usage = device.end if at == "end" and device.has_final_state else device.usage_at(moment)
    lives = _Lives(view, axis)
    has_tensors = bool(len(device.tensors)) or usage["active"] == 0
    side = Side(
        letter=chosen.letter,
        path=trace.path,
        device=device.device,
        facts=facts_of(trace, device),
        settings=settings_of(trace),
        run=dict(chosen.run),
        num_steps=len(np.unique(device.events.step[device.events.step >= 0]))
        if (device.events.step >= 0).any()
        else None,
        at_event=moment if has_history(device) else None,
        moment=moment_name(device, moment) if has_history(device) else "the snapshot",
        moment_kind=view.kind,
        usage=_usage(usage),
        peak=described.peak,
        peak_allocated=described.peak_allocated,
        split=described.fragmentation,
        counts=dict(described.counts),
        sites=tuple(_sites(view, lives, usage["active"])) if has_tensors and len(trace.stacks) else None,
        names=_names(view, lives) if has_tensors and has_names(view) else None,
        findings=_findings(trace, device, at) if with_findings else (),
        notes=trace.notes,
    )
    return side, Known([held.place for held in side.sites or ()], _lines(trace))


def _usage(values: dict[str, int]) -> Usage:
    return Usage(**{f"{name}_bytes": values[name] if values[name] >= 0 else None for name in _KINDS})


class _Lives:
    """Lifetimes of tensors, and sums over some of them."""

    def __init__(self, view: DeviceView, axis: Axis | None) -> None:
        self._tensors = view.device.tensors
        self._end = view.device.num_events
        self._axis = axis if view.device.num_events > 1 else None

    def amount(self, rows: Array) -> Amount:
        """Returns the memory of some tensors."""
        tensors, size = self._tensors, self._tensors.block_bytes[rows]
        freed = tensors.free_requested_at[rows] < self._end
        ended = rows[freed]
        weight, life = size[freed].astype(np.float64), None
        if self._axis is not None and weight.sum() > 0:
            lasted = self._axis.place(tensors.free_requested_at[ended]) - self._axis.place(
                np.maximum(tensors.alloc_at[ended], 0)
            )
            life = round(float((lasted * weight).sum() / weight.sum()), 4)
        return Amount(
            bytes=int(size.sum()),
            num_tensors=len(rows),
            category=_most(schema.CATEGORIES, tensors.category[rows], size),
            lifetime=_most(schema.LIFETIMES, tensors.lifetime[rows], size),
            mean_lifetime=life,
            never_freed_bytes=int(size[~freed].sum()),
        )


def _most(names: tuple[str, ...], index: Array, size: Array) -> str:
    """Returns which of ``names`` has the most bytes, or "" if it is the unknown one (the first)."""
    number = int(np.argmax(np.bincount(index, size, len(names)))) if len(index) else 0
    return names[number] if number else ""


def _sites(view: DeviceView, lives: _Lives, active: int) -> list[SiteHeld]:
    """Returns the call sites that hold memory at the moment, most bytes first.

    Active bytes that belong to no tensor of the file are included.
    """
    rows = view.live
    tensors = view.device.tensors
    numbers, group = np.unique(tensors.stack[rows], return_inverse=True)
    places: dict[CodePlace, int] = {}
    of_stack = np.array([places.setdefault(_place(view, int(number)), len(places)) for number in numbers], np.int64)
    own = of_stack[group] if len(rows) else np.empty(0, np.int64)
    silent = np.flatnonzero(own == places.get(CodePlace(""), -1))
    if len(silent):  # separates the reasons for a missing stack
        reasons = [stackless(reason) for reason in without_stack(view, rows[silent]).tolist()]
        own[silent] = [places.setdefault(CodePlace(reason), len(places)) for reason in reasons]
    order = np.argsort(own, kind="stable")
    ends = np.searchsorted(own[order], np.arange(len(places) + 1))
    found = []
    for place, number in places.items():
        mine = rows[order[ends[number] : ends[number + 1]]]
        if len(mine):
            found.append((SiteHeld(place, lives.amount(mine)), mine))
    found.sort(key=lambda item: (-item[0].amount.bytes, item[0].place.label, item[0].place.path))
    named = (
        [replace(held, names=names_of(view, mine, 2)) for held, mine in found[:_MOST_NAMED]] if has_names(view) else []
    )
    sites = [*named, *(held for held, _ in found[len(named) :])]
    rest = active - sum(held.amount.bytes for held in sites)
    if rest > 0:
        sites.append(SiteHeld(CodePlace(NO_TENSOR), Amount(rest, never_freed_bytes=rest)))
    return sorted(sites, key=lambda held: -held.amount.bytes)


def _place(view: DeviceView, stack: int) -> CodePlace:
    """Returns the call site that names a stack; without a file if it is not a Python line."""
    label = label_of(view, stack)
    frame = view.trace.stacks.site(stack)
    if frame is None or not frame.is_python or label.startswith("("):
        return CodePlace(label)
    return CodePlace(label, frame.filename, frame.line, frame.name)


def _names(view: DeviceView, lives: _Lives) -> dict[str, Amount]:
    """Returns memory by tensor name, with stars for numbers, most bytes first; "" for unnamed ones."""
    rows = view.live
    numbers, group = np.unique(view.device.tensors.name[rows], return_inverse=True)
    names: dict[str, int] = {}
    strings = view.trace.strings
    of_number = np.array(
        [names.setdefault(collapsed(strings[n]) if n >= 0 else "", len(names)) for n in numbers.tolist()], np.int64
    )
    own = of_number[group] if len(rows) else np.empty(0, np.int64)
    order = np.argsort(own, kind="stable")
    ends = np.searchsorted(own[order], np.arange(len(names) + 1))
    found = {name: lives.amount(rows[order[ends[number] : ends[number + 1]]]) for name, number in names.items()}
    return dict(sorted(found.items(), key=lambda item: (-item[1].bytes, item[0])))


def _lines(trace: Trace) -> dict[str, frozenset[tuple[str, int]]]:
    """Returns, for each file on any stack, its functions and lines on stacks."""
    found: dict[str, set[tuple[str, int]]] = {}
    for frame in trace.stacks.frames:
        if frame.is_python:
            found.setdefault(frame.filename, set()).add((frame.name, frame.line))
    return {path: frozenset(lines) for path, lines in found.items()}


def _findings(trace: Trace, device: DeviceTrace, at: str | int) -> tuple[ComparedFinding, ...]:
    from memdiag.analyzers.report import build_report

    report = build_report(trace, at=at, device=device.device, replay=False)
    return tuple(
        ComparedFinding(finding.code, finding.severity, finding.title, finding.device) for finding in report.findings
    )
