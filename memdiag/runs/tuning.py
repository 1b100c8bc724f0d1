"""Finds the allocator settings with which recordings need the least memory: ``memdiag tune``.

Calibration comes first, for each trace. Recommended settings gain more than the calibration error, and the recorded
version supports them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from memdiag.allocator.calibration.from_trace import PLAIN_EVENTS
from memdiag.allocator.calibration.recorded_settings import possible_versions
from memdiag.allocator.policies import POLICIES
from memdiag.allocator.result import OUT_OF_MEMORY, UNDEFINED, Replay
from memdiag.allocator.scenario import Beginning, Scenario
from memdiag.allocator.subject import Subject, recorded_peak
from memdiag.allocator.tuning.space import GC, GRID, Choice, Space
from memdiag.allocator.tuning.tune import Progress, SearchState, merit, recommendable, search
from memdiag.allocator.workload import ALLOC, Workload
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.cards import card_of, room_on
from memdiag.diagnosis.refuted import RELEVANT_SHARE
from memdiag.diagnosis.windows import line_for_windows
from memdiag.errors import MemdiagError
from memdiag.results.outlook import PAST_FAILURE
from memdiag.results.report import CardReport
from memdiag.results.tune import Reason, Recommended, Score, Tried, TunedTrace, TuneReport
from memdiag.runs.outlook import outlook, weakest_basis
from memdiag.runs.simulation import calibration_report, recorded_run
from memdiag.settings.conf import parse_conf
from memdiag.text import Phrase, joined, phrase
from memdiag.trace import schema
from memdiag.units import MIB, format_bytes

_PART_AT_MOST = 0.35  # of the calls: otherwise the first part is hardly cheaper than the whole
_NUM_FRONT = 12
_LEAST_GAIN = 2 * MIB  # a device page: smaller savings count as none


@dataclass(frozen=True)
class _Member:
    """One of several traces: its requests, their first part, and the settings that remain fixed."""

    subject: Subject
    settings: AllocatorSettings
    scenario: Scenario
    first: Workload | None
    fixed: str
    recorded: Choice

    @classmethod
    def of(cls, subject: Subject, capacity: int | None) -> _Member:
        scenario = subject.recorded if capacity is None else subject.on_card(capacity)
        keys = parse_conf(scenario.conf)
        fixed = ",".join(f"{key}:{value}" for key, value in keys.items() if key not in GRID)
        recorded = {key: value for key, value in keys.items() if key in GRID and value != "False"}
        return cls(subject, AllocatorSettings.of(subject.trace), scenario, None, fixed, recorded)

    @property
    def has_limit(self) -> bool:
        share = parse_conf(self.fixed).get("per_process_memory_fraction", "1")
        return self.scenario.fraction is not None or (self.scenario.capacity_bytes is not None and float(share) < 1)

    def with_first_part(self, replay: Replay) -> _Member:
        """Returns the member with its calls up to the peak of a replay."""
        work = self.subject.workload
        end = int(np.argmax(replay.reserved)) + 1 if len(replay.reserved) else 0
        if not 0 < end < _PART_AT_MOST * len(work.op):
            return self
        columns = {name: getattr(work, name)[:end] for name in ("op", "tensor", "size", "stream", "pool", "row")}
        return replace(self, first=replace(work, **columns))

    def replay(self, scenario: Scenario, *, is_part: bool) -> Replay:
        """Replays a scenario, or its first part.

        Tensors from before the first event are placed again, even with the recorded settings: their recorded cache
        would put only these at a disadvantage.
        """
        work = self.subject.workload if self.first is None or not is_part else self.first
        return self.subject.replayer(work, scenario, Beginning(keep_start=False))

    @property
    def possible_versions(self) -> tuple[str, ...]:
        """Versions that may have recorded it."""
        subject = self.subject
        return () if subject.trace.format == PLAIN_EVENTS else possible_versions(subject.trace, subject.device)

    @property
    def begins_late(self) -> bool:
        """Returns True if the trace begins with live tensors."""
        return bool(len(self.subject.workload.start.block_off))


def _score(members: list[_Member], scenarios: list[Scenario], *, is_part: bool) -> Score:
    failing, ooms, retries, allocs, frees = 0, 0, 0, 0, 0
    peaks = []
    for member, scenario in zip(members, scenarios, strict=True):
        replay = member.replay(scenario, is_part=is_part)
        failed = int(np.count_nonzero(replay.status == OUT_OF_MEMORY)) + int((replay.status == UNDEFINED).any())
        failing += bool(failed)
        ooms += failed
        peaks.append(int(replay.reserved.max(initial=0)))
        if len(replay.retries):
            retries += int(replay.retries[-1])
            allocs += int(replay.device_allocs[-1])
            frees += int(replay.device_frees[-1])
    return Score(failing, ooms, tuple(peaks), retries, allocs, frees)


def tune(
    subjects: list[Subject],
    *,
    capacity: int | None = None,
    seconds: float = 60.0,
    most: int = 400,
    least_share: float = RELEVANT_SHARE,
    progress: Progress | None = None,
) -> TuneReport:
    """Searches one settings line for all of ``subjects``.

    Args:
        subjects: Recordings of one backend, prepared for simulation.
        capacity: Bytes of the device, or None for the recorded value.
        seconds: Time limit for the search.
        most: Maximum number of choices to evaluate.
        least_share: Fraction of the reserved peak; smaller savings are not recommended.
        progress: Called with the number of evaluated choices, and their total.

    Raises:
        MemdiagError: The recordings are of several backends, or of one whose allocator has no settings.
    """
    begin = time.monotonic()
    for subject in subjects:
        if not (subject.workload.op == ALLOC).any():
            raise MemdiagError(
                phrase("errors.no-allocations", path=str(subject.trace.path)),
                phrase("errors.from-beginning"),
            )
        if subject.is_foreign:
            raise MemdiagError(
                phrase("errors.tune-none", path=str(subject.trace.path), backend=str(subject.trace.backend)),
                phrase("errors.tune-none.hint"),
            )
    backends = {POLICIES[subject.recorded.policy].backend for subject in subjects}
    if len(backends) > 1:
        raise MemdiagError(phrase("errors.tune-mixed"), phrase("errors.tune-mixed.hint"))
    members = [_Member.of(subject, capacity) for subject in subjects]
    space = Space(
        backends.pop(),
        tuple(member.scenario.torch_version for member in members),
        tuple(member.fixed for member in members),
        all(member.has_limit for member in members),
        tuple(version for member in members for version in member.possible_versions),
        any(subject.trace.stacks.on_windows for subject in subjects),
    )
    own = [member.scenario for member in members]
    baseline = _score(members, own, is_part=False)
    members = [
        member.with_first_part(member.replay(scenario, is_part=False))
        for member, scenario in zip(members, own, strict=True)
    ]

    def evaluate(choice: Choice, is_part: bool) -> Score:
        scenarios = [replace(scenario, conf=space.text(choice, k)) for k, scenario in enumerate(own)]
        return _score(members, scenarios, is_part=is_part)

    is_cheap = any(member.first is not None for member in members)
    found = search(
        space,
        members[0].recorded,
        baseline,
        evaluate if is_cheap else lambda choice, part: Score(0, 0, (), 0, 0, 0) if part else evaluate(choice, False),
        most=most,
        seconds=seconds,
        progress=progress,
    )
    return _report(members, space, found, baseline, evaluate, time.monotonic() - begin, least_share)


def _report(
    members: list[_Member],
    space: Space,
    found: SearchState,
    baseline: Score,
    evaluate: Callable[[Choice, bool], Score],
    seconds: float,
    least_share: float,
) -> TuneReport:
    recorded_peaks = [recorded_peak(member.subject.device, "reserved") for member in members]
    known = [peak for peak in (member.subject.comparable_peak for member in members) if peak is not None]
    before = max(known) if len(known) == len(members) else baseline.peak  # the baseline of `memdiag simulate`
    errors = [member.subject.calibration.error_bytes for member in members]
    error = max((each for each in errors if each is not None), default=None) if None not in errors else None

    def tried(choice: Choice, score: Score) -> Tried:
        return Tried(space.text(choice), score, before - score.peak)

    basis = weakest_basis([member.subject.reach.basis for member in members])
    recommended, verdict = None, phrase("tune.why.nothing")
    if found.scores:
        choices = recommendable(space, found, baseline, evaluate)
        judged = [
            (choice, score, *_verdict(baseline, choice, score, before, error, basis, least_share))
            for choice, score in choices
        ]
        choice, score, worth, verdict = next((each for each in judged if each[2]), judged[0])
        if worth:
            recommended = _recommended(members, space, choice, score, tried(choice, score), evaluate)
    front = [tried(choice, score) for choice, score in found.front()]
    best = [] if recommended is None else [recommended.tried]  # also if a longer line dominates it
    front = sorted(
        [*best, *[each for each in front if each not in best][: _NUM_FRONT - len(best)]],
        key=lambda each: each.score.axes,
    )
    return TuneReport(
        traces=tuple(_trace(member, peak) for member, peak in zip(members, recorded_peaks, strict=True)),
        recorded=_recorded(members, baseline),
        baseline=Tried(members[0].scenario.conf, baseline, before - baseline.peak),
        front=tuple(front),
        recommended=recommended,
        verdict=verdict,
        calibration_error_bytes=error,
        num_settings=len(found.scores) + found.num_cut_short,
        num_stopped_early=found.num_cut_short,
        seconds=seconds,
        is_complete=found.is_complete,
        is_phantom=any(member.subject.trace.phantom for member in members),
        basis=basis,
    )


def _recorded(members: list[_Member], baseline: Score) -> Score:
    """Returns the recorded result if the traces contain it, else the replay of the recorded settings."""
    devices = [member.subject.device for member in members]
    peaks = [recorded_peak(device, "reserved") for device in devices]
    known = tuple(peak for peak in peaks if peak is not None)
    if len(known) < len(devices) or not all(device.has_addresses for device in devices):
        return baseline
    runs = [recorded_run(member.subject) for member in members]
    counts = np.sum([np.bincount(device.events.action, minlength=len(schema.ACTIONS)) for device in devices], axis=0)
    ooms = [run.num_ooms or 0 for run in runs]
    return Score(
        sum(map(bool, ooms)),
        sum(ooms),
        known,
        sum(run.num_retries or 0 for run in runs),
        int(counts[schema.SEGMENT_ALLOC] + counts[schema.SEGMENT_MAP]),
        int(counts[schema.SEGMENT_FREE] + counts[schema.SEGMENT_UNMAP]),
    )


def _trace(member: _Member, peak: int | None) -> TunedTrace:
    subject, scenario = member.subject, member.scenario
    return TunedTrace(
        subject.trace.path,
        subject.device.device,
        scenario.torch_version,
        calibration_report(subject),
        subject.recorded.conf,
        peak,
        scenario.capacity_bytes,
        len(subject.workload.op),
        room_on(subject, scenario),
        _card(member),
    )


def _card(member: _Member) -> CardReport:
    card = card_of(member.subject)
    if member.has_limit or card.memory_fraction is not None:
        return card
    return replace(card, notes=(*card.notes, phrase("tune.note.untried", key=GC)))


def _verdict(
    baseline: Score, choice: Choice, score: Score, before: int, error: int | None, basis: str, least_share: float
) -> tuple[bool, Phrase]:
    """Returns whether a choice is worth setting, and why."""
    off = error or 0
    if (score.num_failing, score.num_ooms) < (baseline.num_failing, baseline.num_ooms):
        if score.num_failing:
            return True, phrase("tune.why.fewer", count=score.num_ooms)
        if basis == PAST_FAILURE:
            return True, phrase("tune.why.past")
        return True, phrase("tune.why.fits")
    saved = before - score.peak
    nothing = phrase("tune.why.nothing")
    if merit(score, baseline, choice) >= merit(baseline, baseline, {}):
        return False, nothing
    gains = []
    if saved > max(off, _LEAST_GAIN) and saved >= least_share * before:
        within = phrase("tune.why.error", bytes=format_bytes(off)) if off else ""
        gains.append(phrase("tune.why.falls", bytes=format_bytes(saved), error=within))
    if score.num_retries < baseline.num_retries and saved >= -off:
        gains.append(phrase("tune.why.retries", count=baseline.num_retries - score.num_retries))
    if gains:
        return True, joined(gains, "; ")
    if 0 < saved <= off:
        return False, phrase("tune.why.within", bytes=format_bytes(saved), error=format_bytes(off))
    if saved > _LEAST_GAIN:
        return False, phrase("tune.why.little", bytes=format_bytes(saved), share=f"{saved / before:.1%}")
    return False, nothing


def _recommended(
    members: list[_Member],
    space: Space,
    choice: Choice,
    score: Score,
    tried: Tried,
    evaluate: Callable[[Choice, bool], Score],
) -> Recommended:
    reasons = []
    for key, value in choice.items():
        shorter = {other: its for other, its in choice.items() if other != key}
        if space.numbers(shorter) is None:  # another one needs it
            shorter = {other: its for other, its in shorter.items() if space.numbers({other: its}) is not None}
        other = evaluate(shorter, False)
        reasons.append(
            Reason(f"{key}:{value}", other.peak, other.num_retries, other.num_driver_calls, not other.num_failing)
        )
    settings = members[0].settings
    line = settings.line({key: choice.get(key) for key in GRID})
    caveats = [phrase(f"tune.key.{key}") for key in choice]
    if GC in choice:
        caveats.append(phrase("tune.note.fraction"))
    if any(member.subject.calibration.exact is None for member in members):
        caveats.append(phrase("tune.note.addresses"))
    if not all(member.subject.calibration.is_version_known for member in members):
        caveats.append(phrase("tune.note.version"))
    if any(member.begins_late for member in members):
        caveats.append(phrase("tune.note.start"))
    if len(members) == 1 and score.num_failing == 0:
        caveats.append(phrase("tune.note.one"))
    outlooks = tuple(
        outlook(member.subject, replace(member.scenario, conf=space.text(choice, k)), fails=bool(score.num_failing))
        for k, member in enumerate(members)
    )
    command = line_for_windows(line) if space.on_windows else line
    return Recommended(line.partition("=")[2], command, tried, tuple(reasons), tuple(caveats), outlooks)
