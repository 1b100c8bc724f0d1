"""Memory that grows from step to step, by the call site whose tensors stay live.

For each call site, a curve has the live bytes at the ends of steps of tensors allocated within the steps. A call site
leaks if its curve keeps rising, even in the last third of the steps, without falling back. Memory that is allocated
once (workspaces, optimizer state in the second step, caches that fill up) rises early and then stays constant. Tensors
that a variable holds until the next step are the same every time. Batches of different lengths go up and down. None of
these is a leak.

Thresholds: growth counts if at its rate 10,000 steps would take a tenth of the reserved peak (warning: 1,000 steps).
With fewer than MIN_STEPS step ends, the evidence is weak, and the finding (MD302) reports it as uncertain (warning: if
100 steps would take that much).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.held import held_by
from memdiag.analyzers.support.names import place_of
from memdiag.analyzers.support.sites import label_of, stackless, without_stack
from memdiag.analyzers.support.without import from_next_steps, peak_without, saving_without
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.schema import CATEGORIES, OOM, PHASES
from memdiag.trace.table import Array
from memdiag.units import format_bytes

CODES: dict[str, str] = {
    "MD301": "memory grows from step to step",
    "MD302": "possible memory growth in a short trace",
}

MIN_STEPS = 4  # ends of steps
FEWEST_STEPS = 3  # below, not even a guess
SHARE = 0.1  # fraction of the reserved peak that this many more steps would take:
FEWER_STEPS, FEW_STEPS, MANY_STEPS = 100, 1_000, 10_000
MAX_FALLS = 0.1  # fraction of the differences between consecutive steps
LATE = 0.5  # required growth in the last third, relative to the slope
NUM_PLACES = 4
MIN_RISES = 4  # fewer are events, not a rate
EVEN = 3  # in a short trace, no step grows by more than this multiple of another's growth
PAIRS = 200  # maximum number of steps for computing the slope

_FORWARD, _OPTIMIZER = PHASES.index("forward"), PHASES.index("optimizer")
# Allocated once and retained on purpose.
_BY_DESIGN = [CATEGORIES.index(name) for name in ("parameter", "optimizer_state", "workspace", "kv_cache")]


@dataclass(frozen=True)
class GrowingSite:
    """One growing call site: bytes per step, its tensors (``every``) and those at the end.

    ``place`` has known names.
    """

    label: str
    place: str
    slope: float
    rows: Array
    bytes: int
    every: Array


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields findings MD301 and MD302 of every device."""
    for view in context.views(trace):
        num_ends = _num_ends(view.device)
        if num_ends >= FEWEST_STEPS:
            yield from _growth(view, num_ends)


def _num_ends(device: DeviceTrace) -> int:
    """Returns how many steps the trace shows completely.

    The last one counts only if its optimizer step (or backward) is recorded, without a failure. If each parameter has
    an optimizer that runs within backward, a step ends before the last of them has run. These then begin another step,
    without a forward pass.
    """
    if not device.num_events:
        return 0
    step, phase = device.events.step, device.events.phase
    last_step = int(step.max())
    if last_step < 0:
        return 0
    steps = last_step - _first_step(device) + 1
    last = np.flatnonzero(step == last_step)
    ends_with = _OPTIMIZER if (phase == _OPTIMIZER).any() else PHASES.index("backward")
    failed = (device.events.action[last] == OOM).any()
    is_begun = (phase[last] == _FORWARD).any() or not (phase == _FORWARD).any()
    return steps if (phase[last] == ends_with).any() and is_begun and not failed else steps - 1


def _first_step(device: DeviceTrace) -> int:
    """Returns the first step of the trace: a recording of a window may begin with any."""
    step = device.events.step
    return int(step[step >= 0].min(initial=step.max()))


def _growth(view: DeviceView, num_ends: int) -> Iterator[Finding]:
    device, tensors = view.device, view.device.tensors
    kept = tensors.free_requested_at >= device.num_events
    outlives = (tensors.step_alloc >= 0) & (kept | (tensors.step_free > tensors.step_alloc))
    rows = np.flatnonzero(outlives & ~np.isin(tensors.category, _BY_DESIGN))
    if not len(rows):
        return
    first = _first_step(device)
    born = tensors.step_alloc[rows] - first
    until = np.where(kept[rows], num_ends, np.minimum(tensors.step_free[rows] - first, num_ends))
    reserved = max(int(device.usage.reserved.max()), int(device.usage.allocated.max()))
    least = SHARE * reserved / MANY_STEPS
    names, place = _places(view, rows)
    found = []
    for number, label in enumerate(names):
        mine = place == number
        slope = _slope(_curve(born[mine], until[mine], tensors.block_bytes[rows[mine]], num_ends), least)
        if slope > 0:
            there = rows[mine & kept[rows]]
            found.append(
                GrowingSite(
                    label, place_of(view, there, label), slope, there, int(tensors.block_bytes[there].sum()), rows[mine]
                )
            )
    found.sort(key=lambda growth: -growth.slope)
    if not found:  # many call sites, each with too little or too irregular growth
        slope = _slope(_curve(born, until, tensors.block_bytes[rows], num_ends), least)
        there = rows[kept[rows]]
        found = (
            [GrowingSite("", place_of(view, there, ""), slope, there, int(tensors.block_bytes[there].sum()), rows)]
            if slope > 0
            else []
        )
    if found:
        yield _finding(view, found, num_ends, reserved)


def _places(view: DeviceView, rows: Array) -> tuple[list[str], Array]:
    """Returns the names of the tensors' call sites, and the index of each tensor's call site.

    Tensors without a stack are grouped by size.
    """
    tensors = view.device.tensors
    stack, group = np.unique(tensors.stack[rows], return_inverse=True)
    numbers: dict[str, int] = {}
    of_stack = np.array([numbers.setdefault(label_of(view, int(number)), len(numbers)) for number in stack], np.int64)
    place = of_stack[group]
    if "" in numbers:
        silent = np.flatnonzero(place == numbers[""])
        sizes, which = np.unique(tensors.requested_bytes[rows[silent]], return_inverse=True)
        first = np.zeros(len(sizes), np.int64)
        first[which] = silent
        reasons = without_stack(view, rows[first])
        base = len(numbers)
        for size, reason in zip(sizes, reasons.tolist(), strict=True):
            numbers[phrase("leaks.silent", size=format_bytes(int(size)), reason=stackless(reason))] = len(numbers)
        place[silent] = base + which
    return list(numbers), place


def _curve(born: Array, until: Array, size: Array, num_ends: int) -> Array:
    """Returns the live bytes at the end of every step.

    They are those of tensors live from the end of step ``born`` to that of step ``until - 1``.
    """
    change = np.zeros(num_ends + 1, np.int64)
    np.add.at(change, np.minimum(born, num_ends), size)
    np.subtract.at(change, until, size)
    return np.cumsum(change[:num_ends])


def _slope(curve: Array, least: float) -> float:
    """Returns the bytes per step by which a curve keeps growing (Theil-Sen: median over pairs of steps), or 0."""
    change = np.diff(curve)
    if len(curve) >= 2 * MIN_STEPS:
        curve, change = curve[2:], change[2:]  # the first steps contain one-time allocations
    if (change < 0).mean() > MAX_FALLS or curve[-1] < 0.95 * curve.max():
        return 0.0
    short = len(change) < 2 * MIN_STEPS
    if (change.min() <= 0 or change.max() > EVEN * change.min()) if short else (change > 0).sum() < MIN_RISES:
        return 0.0
    at = np.unique(np.linspace(0, len(curve) - 1, PAIRS).astype(int))
    earlier, later = np.triu_indices(len(at), 1)
    slope = float(np.median((curve[at[later]] - curve[at[earlier]]) / (at[later] - at[earlier])))
    third = len(change) // 3
    slows_down = curve[-1] - curve[-1 - third] < LATE * slope * third
    return 0.0 if slope < max(least, 1.0) or slows_down else slope


def _finding(view: DeviceView, found: list[GrowingSite], num_ends: int, reserved: int) -> Finding:
    device, total = view.device, sum(growth.slope for growth in found)
    certain = num_ends >= MIN_STEPS
    soon = total * (FEW_STEPS if certain else FEWER_STEPS) >= SHARE * reserved
    label, place = found[0].label, found[0].place
    where: str = ""
    if place:
        where = phrase("leaks.at", place=place) if place == label else phrase("leaks.of", place=place)
    if len(found) > 1:
        where = phrase("leaks.more", place=where, count=len(found) - 1)
    rate = format_bytes(round(total))
    every = np.concatenate([growth.every for growth in found])
    since = from_next_steps(device, every)
    evidence = [
        Evidence(phrase("leaks.growth"), round(total), "bytes/step", found[0].place if len(found) == 1 else ""),
        Evidence(phrase("leaks.ends"), num_ends, "steps"),
    ]
    evidence += [
        Evidence(phrase("leaks.grows"), round(growth.slope), "bytes/step", growth.place)
        for growth in found[:NUM_PLACES]
        if len(found) > 1
    ]
    evidence += [
        Evidence(phrase("leaks.kept"), sum(growth.bytes for growth in found), "bytes"),
        Evidence(phrase("leaks.count"), sum(len(growth.rows) for growth in found), "tensors"),
        peak_without(device, every, since=since),
    ]
    holders = list(held_by(view, found[0].every))
    evidence += holders
    if device.capacity_bytes and device.end["reserved"] >= 0:
        left = device.capacity_bytes - device.end["reserved"]
        evidence.append(Evidence(phrase("leaks.full"), max(round(left / total), 0), "steps"))
    fixes = [
        Fix(
            phrase("leaks.fix.held", holder=holders[0].where) if holders else phrase("leaks.fix.find"),
            "code",
            phrase("leaks.keep.change"),
            phrase("remedies.every"),
            phrase("leaks.fix.find.caveat"),
        ),
        Fix(
            phrase("leaks.fix.limit"),
            "code",
            "self.cache[key] = z.detach().cpu()",
            phrase("remedies.every"),
            phrase("leaks.fix.limit.caveat"),
        ),
    ]
    if not certain:
        fixes.insert(0, Fix(phrase("leaks.fix.record", steps=MIN_STEPS + 1), "record"))
    return Finding(
        "MD301" if certain else "MD302",
        phrase("leaks.title", rate=rate, where=where)
        if certain
        else phrase("leaks.title.short", rate=rate, where=where, steps=num_ends),
        "warning" if soon else "info",
        device.device,
        tuple(evidence),
        tuple(fixes),
        saving_without(device, every, since=since) if certain else None,
        round(total * FEW_STEPS),
    )
