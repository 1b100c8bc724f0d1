"""Replays a recording under its own settings and measures the calibration error in addresses and segment events.

Predictions carry the same error. After a difference, the replay restarts from the recorded state after it, so each
difference counts only once, without its effects on later addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from memdiag.allocator.calibration.causes import Divergence, divergence
from memdiag.allocator.calibration.comparing import RecordedColumns, ReplayComparison, compare
from memdiag.allocator.calibration.fitting import fit_limit
from memdiag.allocator.calibration.from_trace import resumed
from memdiag.allocator.calibration.limits import Limits
from memdiag.allocator.calibration.readings import Interpretation
from memdiag.allocator.calibration.recorded_settings import RecordedSettings, Shares, recorded_settings
from memdiag.allocator.result import Replay, Replayer
from memdiag.allocator.scenario import Beginning, Scenario
from memdiag.allocator.workload import Workload
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array

# Number of steps that are replayed at once after a difference; it doubles after each stretch without one.
_FIRST_STRETCH = 256
_MOST_READINGS = 64  # most readings to try; each resolves the ambiguity behind one difference
# The model does not match the recording with this many differences, or if so many are most of what was compared. Each
# takes a replay from the recorded state, so the rest is not compared, and counts as not exact.
_MOST_DIFFERENCES, _HOPELESS_DIFFERENCES = 2000, 100
_HOPELESS = 0.5  # exact fraction


@dataclass(frozen=True)
class Calibration:
    """How well the replay of the recorded settings matches the recording.

    Attributes:
        policy, conf, torch_version: The policy, settings and version that were replayed.
        is_version_known: The file names the version; otherwise memdiag chose the one that matches best.
        is_conf_known: The file has the settings.
        num_requests, exact_requests: Number of requests (including failed ones), and of those with the recorded
            address. None: the recording has no addresses.
        num_segment_events, exact_segment_events: Number of segments reserved and released, and of exact ones.
            Additional ones of the replay count as not exact.
        first: The first difference; None: no differences.
        num_differences: Number of differences, up to the event at which the comparison ended.
        error_bytes: Largest difference in reserved bytes between the recording and one replay of the whole trace. None:
            unknown.
        peak_error_bytes: Replayed reserved peak - recorded one.
        bases: Recorded addresses of the driver's ranges, in order, and their lanes (two rows).
        limits: The memory that was available to the allocator.
    """

    policy: str
    conf: str
    torch_version: str
    is_version_known: bool
    is_conf_known: bool
    limits: Limits
    num_requests: int | None = None
    exact_requests: int | None = None
    num_segment_events: int = 0
    exact_segment_events: int = 0
    first: Divergence | None = None
    num_differences: int = 0
    error_bytes: int | None = None
    peak_error_bytes: int | None = None
    bases: Array | None = None

    @property
    def events(self) -> int:
        """Number of compared requests and segment events."""
        return (self.num_requests or 0) + self.num_segment_events

    @property
    def exact(self) -> int | None:
        """Number of those that match the recording; None: the file has no addresses."""
        return None if self.exact_requests is None else self.exact_requests + self.exact_segment_events

    @property
    def exact_fraction(self) -> float | None:
        """Fraction of those that match the recording; None: the file has no addresses."""
        return None if self.exact is None else self.exact / self.events if self.events else 1.0

    @property
    def is_exact(self) -> bool:
        """True if every compared event matches the recording."""
        return self.exact is not None and self.exact == self.events and self.first is None


def calibrate(trace: Trace, device: DeviceTrace, replayer: Replayer | None = None) -> Calibration:
    """Replays the recording of ``device`` and compares the result with it.

    Args:
        trace, device: The recording.
        replayer: Used instead of ``memdiag.allocator.replay.serve``.
    """
    return described_best(trace, device, replayer)[1]


def described_best(trace: Trace, device: DeviceTrace, replayer: Replayer | None = None) -> tuple[Workload, Calibration]:
    """Returns the workload of ``device`` and its calibration, under the best reading of the recording.

    A recording does not always show why memory was released: for a refused request, by garbage collection, or by the
    program. If a replay differs there, the function tries the other readings and uses the best match. It finds the
    kinds of private pools in the same way.
    """
    reading = Interpretation()
    best = _read(trace, device, reading, replayer)
    if best[1].is_exact or not device.has_addresses:
        return best
    ways: tuple[bool | None, ...] = (None, False, True) if Shares.of(trace, device).threshold else (None,)
    for collects in ways:
        reading = Interpretation(collects)
        workload, found = best if collects is None else _read(trace, device, reading, replayer)
        for _ in range(_MOST_READINGS):
            if found.first is None:
                break
            others = [
                (other, *_read(trace, device, other, replayer))
                for other in reading.others(device, workload, found.first)
            ]
            other = max(others, key=lambda each: _rank(each[2]), default=None)
            if other is None or _rank(other[2]) <= _rank(found):
                break
            reading, workload, found = other
        if _rank(found) > _rank(best[1]):
            best = workload, found
        if best[1].is_exact:
            break
    return best


def _read(
    trace: Trace, device: DeviceTrace, reading: Interpretation, replayer: Replayer | None
) -> tuple[Workload, Calibration]:
    workload, limits = reading.described(trace, device)
    return workload, calibrate_workload(trace, device, workload, limits, replayer)


def _rank(found: Calibration) -> tuple[float, int]:
    """Returns a sort key of readings: number of matching events, then position of the first difference."""
    return found.exact_fraction or 0.0, found.first.event if found.first else 1 << 62


def calibrate_workload(
    trace: Trace, device: DeviceTrace, workload: Workload, limits: Limits, replayer: Replayer | None = None
) -> Calibration:
    """Calibrates a workload that was already made from the recording."""
    if replayer is None:
        from memdiag.allocator.replay import serve

        replayer = serve
    settings = recorded_settings(trace, device)
    found = Calibration(
        settings.policy, settings.conf, settings.versions[0], settings.is_version_known, settings.is_conf_known, limits
    )
    if not device.has_addresses:
        return found
    recorded = RecordedColumns.of(workload, device)
    best: Calibration | None = None
    for version in _distinct(settings):
        tried = _one_version(replace(found, torch_version=version), workload, recorded, replayer)
        if best is None or (tried.exact or 0) > (best.exact or 0):
            best = tried
        if best.is_exact:
            break
    assert best is not None  # noqa: S101 - there is always one version
    return best


def _distinct(settings: RecordedSettings) -> Iterator[str]:
    """Returns the versions to try, one for each distinct set of rules."""
    from memdiag.allocator.versions.rules import rules_for

    seen = []
    for version in settings.versions:
        rules = rules_for(settings.backend, version)
        if rules not in seen:
            seen.append(rules)
            yield version


def _one_version(found: Calibration, workload: Workload, recorded: RecordedColumns, replayer: Replayer) -> Calibration:
    device = recorded.device

    end = device.num_events - 1

    def run(part: Workload, since: int, limits: Limits | None = None) -> Replay:
        room = limits or found.limits
        bases = recorded.bases_given[:, recorded.bases_at > since]
        scenario = Scenario(found.policy, found.conf, found.torch_version, room.capacity_bytes, room.fraction)
        return replayer(part, scenario, Beginning(bases=bases), log=True)

    if found.limits.limit_bytes is not None:
        fitted = fit_limit(found.limits, lambda limits: compare(recorded, workload, run(workload, -1, limits), -1, end))
        found = replace(found, limits=fitted)
    whole = run(workload, -1)
    seen = compare(recorded, workload, whole, -1, end)
    error, peak_error = _errors(recorded, workload, whole)
    totals = np.array(
        [seen.num_requests, seen.exact_requests, seen.num_segment_events + seen.num_extra, seen.exact_segment_events]
    )
    first = divergence(device, workload, whole, seen) if seen.bad is not None else None
    differences = int(seen.bad is not None)
    for later in _resumptions(recorded, workload, seen, run, end):
        totals += (
            later.num_requests,
            later.exact_requests,
            later.num_segment_events + later.num_extra,
            later.exact_segment_events,
        )
        differences += int(later.bad is not None)
        if _is_hopeless(differences, totals):
            totals = np.maximum(totals, (len(recorded.requests), 0, len(recorded.segment_rows), 0))
            break
    return replace(
        found,
        num_requests=int(totals[0]),
        exact_requests=int(totals[1]),
        num_segment_events=int(totals[2]),
        exact_segment_events=int(totals[3]),
        first=first,
        num_differences=differences,
        error_bytes=error,
        peak_error_bytes=peak_error,
        bases=recorded.bases_given,
    )


def _is_hopeless(differences: int, totals: Array) -> bool:
    """Returns whether the rest of a recording need not be compared; ``totals``: requests, exact ones, and segments."""
    exact = totals[1] + totals[3]
    is_low = differences >= _HOPELESS_DIFFERENCES and exact < _HOPELESS * (totals[0] + totals[2])
    return bool(is_low or differences >= _MOST_DIFFERENCES)


def _resumptions(
    recorded: RecordedColumns,
    workload: Workload,
    seen: ReplayComparison,
    run: Callable[[Workload, int], Replay],
    end: int,
) -> Iterator[ReplayComparison]:
    """Yields the comparisons of replays that restart after each difference, until the end of the trace."""
    stretch = _FIRST_STRETCH
    since = seen.bad
    while since is not None:
        number = int(np.searchsorted(recorded.steps, since, side="right"))
        if number >= len(recorded.steps):
            return
        last = number + stretch >= len(recorded.steps)
        until = end if last else int(recorded.steps[number + stretch])
        part = _until(resumed(workload, recorded.device, since), until)
        seen = compare(recorded, part, run(part, since), since, until)
        yield seen
        if seen.bad is not None:
            since, stretch = seen.bad, max(stretch // 2, _FIRST_STRETCH)
        elif last:
            return
        else:
            since, stretch = until, stretch * 2


def _until(workload: Workload, row: int) -> Workload:
    """Returns the calls up to event ``row``."""
    count = int(np.searchsorted(workload.row, row, side="right"))
    columns = {name: getattr(workload, name)[:count] for name in ("op", "tensor", "size", "stream", "pool", "row")}
    return replace(workload, **columns)


def _errors(recorded: RecordedColumns, workload: Workload, replay: Replay) -> tuple[int, int]:
    """Returns the largest difference in reserved bytes after any step, and the difference of the peaks."""
    device, steps = recorded.device, recorded.steps
    steps = steps[steps >= 0]
    if not len(steps):
        return 0, 0
    last = np.searchsorted(workload.row, steps, side="right") - 1
    difference = replay.reserved[last] - device.usage.reserved[steps]
    start = device.start["reserved"]
    peaks = max(int(replay.reserved.max()), start) - max(int(device.usage.reserved[steps].max()), start)
    return int(np.abs(difference).max()), peaks
