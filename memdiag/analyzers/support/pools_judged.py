"""Compares lifetime-segregated pools with other policies by replays on a device of one size.

The others are the recorded settings, expandable segments and the lower bound.

A run that fits wins. If several fit, the smallest reserved peak wins. These pools reserve new memory as long as there
is any, so their peak means little on a much larger device. The texts are in ``messages/pools.json``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.policies import POLICIES
from memdiag.allocator.scenario import Beginning, Scenario
from memdiag.allocator.subject import Subject
from memdiag.allocator.workload import Workload
from memdiag.analyzers.lifetime_pools import buffer_bytes, buffers
from memdiag.analyzers.support.allocator_settings import NPU_EXCLUDED, AllocatorSettings
from memdiag.diagnosis.remedies import present
from memdiag.diagnosis.remedies.lifetime_pools import HCCL_ROOM
from memdiag.diagnosis.thresholds import POOLS_GAP
from memdiag.errors import MemdiagError
from memdiag.quoting import file_argument
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.results.outlook import PAST_FAILURE
from memdiag.results.prediction import PredictionReport
from memdiag.settings.conf import parse_conf
from memdiag.text import Phrase, phrase
from memdiag.trace.table import Array
from memdiag.units import format_bytes

POOLS = ("lifecycle", "lifecycle-stack")  # hooks around each layer, or around the stack of layers
ORACLE = "lifetime-oracle"  # the same pools with the true lifetimes: what they can reach at best
RECORDED, EXPANDABLE = "recorded", "expandable"
_USUAL_FRACTION = 0.94  # the example of the feature's documentation
_CALIBRATED = 0.9
_GRAIN = 512
# A page, and a fraction of the peak: smaller savings are not worth losing expandable segments.
_WORTH, _WORTH_SHARE = 2 << 20, 0.01


@dataclass(frozen=True)
class Run:
    """One replay.

    Attributes:
        kind: RECORDED, EXPANDABLE, or the policy of the pools.
        peak_bytes: Reserved peak.
        num_ooms: Requests that failed.
    """

    kind: str
    peak_bytes: int
    num_ooms: int

    @property
    def fits(self) -> bool:
        """Whether nothing failed."""
        return not self.num_ooms

    def evidence(self, *, is_whole: bool) -> Evidence:
        """Returns the run as a fact; ``is_whole``: no allocation failed when it was recorded."""
        fate = phrase("pools.fate.oom" if not self.fits else "pools.fate.whole" if is_whole else "pools.fate.past")
        return Evidence(phrase("pools.run", name=phrase(f"pools.run.{self.kind}")), self.peak_bytes, "bytes", fate)


@dataclass(frozen=True)
class _Runs:
    """The replays to compare.

    They are the recorded settings, expandable segments (None if already recorded, or not supported), the pools, and the
    lower bound.
    """

    plain: Run
    expandable: Run | None
    pools: tuple[Run, ...]
    bound_bytes: int

    @property
    def rivals(self) -> list[Run]:
        return [run for run in (self.plain, self.expandable) if run is not None]

    @property
    def best(self) -> Run:
        """The better of the two generations of pools."""
        return min(self.pools, key=lambda run: (run.num_ooms, run.peak_bytes))


def judged(
    subject: Subject, finding: Finding | None = None, *, like: Scenario | None = None, communicators: int | None = None
) -> Finding | None:
    """Returns the effect of lifetime-segregated pools (MD114), or None if unknown.

    Args:
        subject: The recording.
        finding: The hint that the result replaces.
        like: The scenario whose capacity and memory fraction are used, or None for the recorded ones.
        communicators: Number of HCCL communicators, or None if unknown, since no trace contains it.
    """
    own = subject.recorded
    card = own if like is None else replace(own, capacity_bytes=like.capacity_bytes, fraction=like.fraction)
    try:
        runs = _runs(subject, card)
    except MemdiagError:  # the file has settings that its allocator would refuse
        return None
    error = subject.calibration.error_bytes or 0
    is_npu = subject.trace.backend == "npu"
    is_whole = subject.reach.basis != PAST_FAILURE
    pays, title = _verdict(runs, card.capacity_bytes, error, is_whole=is_whole)
    facts, fraction = _shared(subject, card, runs, communicators) if is_npu else ([], None)
    settings = AllocatorSettings.of(subject.trace)
    fixes: tuple[Fix | None, ...] = ()
    if pays and is_npu:
        fixes = (settings.offer("lifetime-pools"), _room(fraction, card.capacity_bytes))
    if not pays and runs.expandable is not None and runs.expandable.fits:
        fixes = (settings.offer("expandable-segments"),)
    first = finding.evidence[:1] if finding is not None else ()
    bound = Evidence(phrase("pools.bound"), runs.bound_bytes, "bytes")
    return Finding(
        "MD114",
        title,
        "info",
        subject.device.device,
        (*(run.evidence(is_whole=is_whole) for run in (*runs.pools, *runs.rivals)), bound, *first, *facts),
        present(*fixes),
        _saving(subject, card, runs, error) if pays else None,
        weight_bytes=finding.weight_bytes if finding is not None else POOLS_GAP,
    )


def _room(fraction: float | None, capacity_bytes: int | None) -> Fix | None:
    if fraction is None or capacity_bytes is None:
        return None
    return HCCL_ROOM.limited(f"{fraction:.2f}", int(fraction * capacity_bytes))


def is_calibrated(subject: Subject) -> bool:
    """Returns True if a replay of the recorded settings reproduces the recording well enough to trust other replays."""
    found = subject.calibration
    return (found.exact_fraction or 0) >= _CALIBRATED and found.error_bytes is not None


def _runs(subject: Subject, card: Scenario) -> _Runs:
    keys = parse_conf(card.conf)
    backend = POLICIES[card.policy].backend
    plain = _run(subject, card, RECORDED)
    expandable = None
    if keys.get("expandable_segments") != "True" and not card.policy.endswith("expandable"):
        left_out = NPU_EXCLUDED if backend == "npu" else ()
        conf = ",".join(f"{key}:{value}" for key, value in keys.items() if key not in left_out)
        policy = "npu-expandable" if backend == "npu" else "expandable"
        try:
            expandable = _run(subject, replace(card, policy=policy, conf=conf), EXPANDABLE)
        except MemdiagError:  # the version does not support them
            expandable = None
    adopted = POLICIES["lifecycle"].inherit_conf(keys)
    conf = ",".join(f"{key}:{value}" for key, value in adopted.items())
    pools = tuple(_run(subject, replace(card, policy=policy, conf=conf), policy) for policy in POOLS)
    return _Runs(plain, expandable, pools, most_live(subject.workload))


def most_live(workload: Workload) -> int:
    """Returns the peak of live bytes: the lower bound of every allocator (as in the policy ``bound``)."""
    return int(live_bytes(workload).max())


def live_bytes(workload: Workload) -> Array:
    """Returns the bytes that are live before the first call and after each, in units of 512 (int64)."""
    change = np.where(workload.op == w.ALLOC, -(-workload.size // _GRAIN) * _GRAIN, 0)
    size = np.zeros(workload.num_tensors + 1, np.int64)
    asks = (workload.op == w.ALLOC) & (workload.tensor >= 0)
    start = workload.start
    before = -(-np.where(start.block_requested > 0, start.block_requested, start.block_size) // _GRAIN) * _GRAIN
    size[start.block_tensor] = before
    size[workload.tensor[asks]] = change[asks]
    ends = np.flatnonzero(((workload.op == w.FREE) | (workload.op == w.FREE_COMPLETED)) & (workload.tensor >= 0))
    first = ends[np.unique(workload.tensor[ends], return_index=True)[1]]
    change[first] -= size[workload.tensor[first]]
    return np.cumsum(np.concatenate(([before.sum()], change)))


def _run(subject: Subject, scenario: Scenario, kind: str) -> Run:
    """Replays from an empty allocator, so that all runs begin alike."""
    if POLICIES[scenario.policy].standing != "native":
        found = subject.replay(scenario, log=False)
    else:
        found = subject.replayer(subject.workload, scenario, Beginning(keep_start=False))
    return Run(kind, int(found.reserved.max(initial=0)), int(found.ooms.max(initial=0)))


def _verdict(runs: _Runs, capacity: int | None, error: int, *, is_whole: bool = True) -> tuple[bool, Phrase]:
    """Returns whether the pools help, and the title that says so.

    Args:
        is_whole: Whether no allocation failed in the recording.
    """
    pools, fitting = runs.best, [run for run in runs.rivals if run.fits]
    best = min(fitting, key=lambda run: run.peak_bytes, default=None)
    here = (
        phrase("pools.here", bytes=format_bytes(capacity)) if capacity is not None else phrase("pools.here.unlimited")
    )
    if best is None:
        if pools.fits:
            return True, phrase("pools.yes.only" if is_whole else "pools.yes.only.past", here=here)
        if capacity is not None and runs.bound_bytes > capacity:
            return False, phrase("pools.no.bound", bytes=format_bytes(runs.bound_bytes), here=here)
        return False, phrase("pools.no.either", here=here)
    other, least = phrase(f"pools.other.{best.kind}"), format_bytes(best.peak_bytes)
    if not pools.fits:
        return False, phrase(
            "pools.no.fails" if is_whole else "pools.no.fails.past", here=here, other=other, peak=least
        )
    peak, gain = format_bytes(pools.peak_bytes), best.peak_bytes - pools.peak_bytes
    if gain <= 0:
        return False, phrase("pools.no.more", peak=peak, other=other, least=least)
    pays = gain > max(error, _WORTH, _WORTH_SHARE * best.peak_bytes)
    return pays, phrase(
        "pools.yes.less" if pays else "pools.no.hardly", peak=peak, gain=format_bytes(gain), other=other
    )


def _shared(
    subject: Subject, card: Scenario, runs: _Runs, communicators: int | None
) -> tuple[list[Evidence], float | None]:
    """Returns the known facts about HCCL's part of the device, and the fraction to set with these pools."""
    pair = buffer_bytes(subject.trace)
    if communicators is None:
        count = Evidence(
            phrase("pools.communicators"),
            phrase("pools.communicators.unknown"),
            "",
            phrase("pools.communicators.option"),
        )
    else:
        given = phrase("pools.communicators.given", count=communicators)
        count = Evidence(phrase("pools.communicators.all"), communicators * pair, "bytes", given)
    facts = [buffers(subject.trace), count]
    capacity = card.capacity_bytes
    if not capacity:
        return facts, None
    left = max(capacity - runs.best.peak_bytes, 0)
    facts.append(Evidence(phrase("pools.left"), left, "bytes", phrase("pools.left.room", count=left // pair)))
    others = int(subject.limits.steps[:, 1].max()) if len(subject.limits.steps) else 0
    outside = communicators * pair if communicators is not None else 0
    if 0 < others < capacity:
        facts.append(
            Evidence(phrase("pools.outside"), others, "bytes", phrase("pools.outside.most", count=others // pair))
        )
        outside = max(outside, others)
    fraction = max(math.floor((capacity - outside) / capacity * 100) / 100, 0.01) if outside else _USUAL_FRACTION
    kept = capacity - int(fraction * capacity)
    policy = runs.best.kind
    adopted = POLICIES[policy].inherit_conf(parse_conf(card.conf))
    conf = ",".join(f"{key}:{value}" for key, value in adopted.items())
    held = _run(subject, replace(card, policy=policy, conf=conf, fraction=fraction), policy)
    served = phrase("pools.kept.fits" if subject.reach.basis != PAST_FAILURE else "pools.kept.past")
    fate = served if held.fits else phrase("pools.kept.oom")
    why = phrase("pools.kept.why" if outside else "pools.kept.why.assumed", count=kept // pair, fate=fate)
    facts.append(Evidence(phrase("pools.kept", fraction=f"{fraction:.2f}"), kept, "bytes", why))
    return facts, fraction


def _saving(subject: Subject, card: Scenario, runs: _Runs, error: int) -> Saving | None:
    """Returns the saving of the pools at the recorded settings' peak, if a replay reproduces the recording."""
    saved = runs.plain.peak_bytes - runs.best.peak_bytes
    if not is_calibrated(subject) or saved <= error:
        return None
    path = file_argument(subject.trace.path)
    size = f" --capacity {card.capacity_bytes}" if card.capacity_bytes is not None else ""
    return Saving(
        saved - error, saved, saved + error, "simulated", f"memdiag simulate {path} --policy {runs.best.kind}{size}"
    )


def with_advice(
    report: PredictionReport, subject: Subject, scenarios: Iterable[Scenario], communicators: int | None = None
) -> PredictionReport:
    """Returns a report of simulated runs with the effect of lifetime-segregated pools (MD114), if simulated."""
    like = next((scenario for scenario in scenarios if scenario.policy in {*POOLS, ORACLE}), None)
    return report if like is None else replace(report, advice=judged(subject, like=like, communicators=communicators))
