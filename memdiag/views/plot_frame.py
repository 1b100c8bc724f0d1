"""Shared by all plots: the selection of a curve's points, and the frame of a run: phases, steps, failures, device size.

A picture has some thousand columns of pixels, a trace up to millions of events. For each column, the first, lowest,
highest and last value are kept, so the plot looks complete and no peak is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from memdiag import vocabulary
from memdiag.analyzers.support.places import moment_name
from memdiag.errors import MemdiagError
from memdiag.results.plots import PhaseBand, PlotCurve, PlotFrame, PlotMark
from memdiag.text import phrase, plain
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import DEFAULT, choose_moment, failed_allocations, require_moment
from memdiag.trace.table import Array
from memdiag.units import format_bytes
from memdiag.views.timeline import phase_spans, retries, step_starts

if TYPE_CHECKING:
    from memdiag.allocator.simulated_run import SimulatedRuns

_MOST_NAME = 80


@dataclass(frozen=True)
class Ask:
    """A request for a plot.

    Attributes:
        columns: Width in columns of pixels.
        at: The moment of the plot: a name or an event, as in ``memdiag.trace.moments``.
        simulated: Simulated runs, for the plot of policies.
    """

    columns: int
    at: str | int = DEFAULT
    simulated: SimulatedRuns | None = None


def frame_of(trace: Trace, device: DeviceTrace, columns: int, notes: Sequence[str] = ()) -> PlotFrame:
    """Returns the frame of a device's run."""
    starts, ooms = step_starts(device), failed_allocations(device)
    said: list[str] = [*notes]
    if device.num_events > 4 * columns:
        said.append(phrase("plots.note.columns", count=device.num_events))
    if trace.phantom:
        said.append(phrase("plots.note.simulated"))
    return PlotFrame(
        facts=facts_of(trace, device),
        num_events=device.num_events,
        bands=bands_of(device, columns) if trace.bases.get("phase", "none") != "none" else (),
        steps=tuple(zip(starts["event"].tolist(), starts["step"].tolist(), strict=True)),
        retries=tuple(retries(device).tolist()),
        ooms=tuple(ooms.tolist()),
        asked_bytes=int(device.events.size[ooms[-1]]) if len(ooms) else 0,
        capacity_bytes=device.capacity_bytes,
        notes=tuple(said),
    )


def facts_of(trace: Trace, device: DeviceTrace) -> tuple[str, ...]:
    """Returns the file, its device and its size."""
    path = PurePath(trace.path)
    name = f"{path.parent.name}/{path.name}" if path.stem.startswith("rank") and path.parent.name else path.name
    facts: list[str] = [plain(name, _MOST_NAME), phrase("plots.device", device=str(device.device))]
    facts += [plain(trace.backend, 20)] if trace.backend else []
    facts += [f"torch {plain(trace.torch_version, 20)}"] if trace.torch_version else []
    counts = phrase("plots.events", count=device.num_events), phrase("plots.tensors", count=len(device.tensors))
    return (*facts, *counts)


def bands_of(device: DeviceTrace, columns: int) -> tuple[PhaseBand, ...]:
    """Returns the phases of a run; if they change too often to be shown, each column gets its most frequent phase."""
    spans = phase_spans(device)
    if len(spans["start"]) > columns // 2:
        n, kinds = device.num_events, len(schema.PHASES)
        column = np.arange(n) * columns // n
        most = (
            np.bincount(column * kinds + device.events.phase, minlength=columns * kinds)
            .reshape(columns, kinds)
            .argmax(axis=1)
        )
        first = np.flatnonzero(np.diff(most, prepend=-1))
        edges = -(-np.arange(columns + 1) * n // columns)
        spans = {"start": edges[first], "end": np.append(edges[first[1:]], n), "phase": most[first]}
    rows = zip(spans["start"].tolist(), spans["end"].tolist(), spans["phase"].tolist(), strict=True)
    return tuple(PhaseBand(start, end, schema.PHASES[phase]) for start, end, phase in rows if phase)


def thin(values: Sequence[Array], columns: int) -> Array:
    """Returns the events (int64, ascending) that draw these curves.

    In every column, they are the first, lowest, highest and last of each curve.
    """
    n = len(values[0]) if values else 0
    if n <= 4 * columns:
        return np.arange(n)
    edges = np.arange(columns + 1, dtype=np.int64) * n // columns
    first = edges[:-1]
    column = np.repeat(np.arange(columns), np.diff(edges))
    chosen = [first, edges[1:] - 1]
    for curve in values:
        for best in (np.maximum.reduceat(curve, first), np.minimum.reduceat(curve, first)):
            hits = np.flatnonzero(curve == best[column])
            chosen.append(hits[np.append(True, column[hits[1:]] != column[hits[:-1]])])
    return np.unique(np.concatenate(chosen))


def numbers(values: Array) -> tuple[int, ...]:
    """Returns the values of a column as plain integers for renderers."""
    return tuple(values.tolist())


def settled(device: DeviceTrace) -> Array:
    """Returns, for every event, the event at which its call is complete.

    A free is two events without a state in between.

    A block that waits for a stream is different: its free is not followed by its completion.
    """
    events, n = device.events, device.num_events
    then = np.arange(n)
    halfway = (events.action[:-1] == schema.FREE_REQUESTED) & (events.action[1:] == schema.FREE_COMPLETED)
    then[:-1] += halfway & (events.tensor[:-1] == events.tensor[1:])
    return then


def curve_of(device: DeviceTrace, name: str, columns: int) -> PlotCurve | None:
    """Returns one of the curves of ``usage``, or None if unknown."""
    values = device.usage[name][settled(device)]
    if not (values >= 0).any():
        return None
    at = thin([values], columns)
    return PlotCurve(name, numbers(at), numbers(values[at]))


def mark_of(device: DeviceTrace, at: str | int, name: str) -> PlotMark:
    """Returns the moment of a plot on one of the curves of ``usage``.

    Raises:
        MemdiagError: The trace does not have that moment.
    """
    require_moment([device], at)
    event, kind = choose_moment(device, at)
    bytes_ = device.usage_at(event)[name]
    highest = max(int(device.usage[name].max(initial=-1)), device.start[name])
    amount = phrase("plots.amount", bytes=format_bytes(bytes_), curve=vocabulary.name("curve", name))
    return PlotMark(event, bytes_, vocabulary.title(kind), amount, moment_name(device, event), highest)


def need_events(trace: Trace, device: DeviceTrace, kind: str) -> None:
    """Checks that there are events to draw.

    Raises:
        MemdiagError: The file has only a final state.
    """
    if not device.num_events:
        raise MemdiagError(
            phrase("plots.no-events", kind=kind, path=trace.path, device=str(device.device)),
            phrase("plots.no-events.state") if len(device.segments) else phrase("errors.from-beginning"),
        )


def need_addresses(trace: Trace, device: DeviceTrace, kind: str) -> None:
    """Checks that addresses are known.

    Raises:
        MemdiagError: They are unknown.
    """
    if not device.has_addresses:
        raise MemdiagError(
            phrase("plots.no-addresses", kind=kind, path=trace.path, format=trace.format),
            phrase("plots.no-addresses.hint"),
        )
