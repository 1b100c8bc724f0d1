"""Whether pools by lifetime pay for a program, on a card of this size: replays of them, of their rivals, and of the bound.

What counts is whether the run fits. Where several do, the reserved peak does: pools by lifetime take new memory for as long as there is
some, so that their peak says little on a card that is much too large.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.prediction import PredictionReport
from memdiag.allocator.workload import Workload
from memdiag.analyzers import remedies
from memdiag.analyzers.allocator_settings import NPU_EXCLUDED, AllocatorSettings
from memdiag.analyzers.lifetime_pools import GAP, buffer_bytes, buffers, share, switch
from memdiag.analyzers.simulation import Scenario, Subject
from memdiag.errors import MemdiagError
from memdiag.findings import PAST_FAILURE, Evidence, Finding, Fix, Saving
from memdiag.quoting import file_argument
from memdiag.registry import POLICIES, resolve
from memdiag.settings.conf import parse_conf
from memdiag.trace.table import Array
from memdiag.units import format_bytes, plural

POOLS: dict[str, str] = {"lifecycle": "hooks around layers", "lifecycle-stack": "hooks around the stack of layers"}
_USUAL_FRACTION = 0.94  # the one that the authors give as an example
_CALIBRATED = 0.9
_GRAIN = 512
_WORTH, _WORTH_SHARE = 2 << 20, 0.01  # a page, and of the peak: less is not worth going without expandable segments


@dataclass(frozen=True)
class Run:
    """One replay: what it was, the most that was reserved, and how many requests failed."""

    name: str
    peak_bytes: int
    num_ooms: int

    @property
    def fits(self) -> bool:
        """Whether nothing failed."""
        return not self.num_ooms

    def evidence(self, *, is_whole: bool) -> Evidence:
        """Returns the run as a fact; ``is_whole``: no allocation failed when it was recorded."""
        fate = "out of memory" if not self.fits else "no request fails" if is_whole else "gets past the failed allocation"
        return Evidence(f"reserved peak, {self.name}", self.peak_bytes, "bytes", fate)


@dataclass(frozen=True)
class _Runs:
    """The recorded settings, expandable segments (None: they are the recorded ones, or not to be had), pools, and the bound."""

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
    """Returns the answer to whether pools by lifetime pay; None: it cannot be told.

    Args:
        subject: The recording.
        finding: The question, which the answer takes the place of.
        like: Whose card and share of it count; None: as recorded.
        communicators: How many HCCL has; None: not known, and in no trace.
    """
    own = subject.recorded
    card = own if like is None else replace(own, capacity_bytes=like.capacity_bytes, fraction=like.fraction)
    try:
        runs = _runs(subject, card)
    except MemdiagError:  # the file claims settings that its allocator would refuse
        return None
    error = subject.calibration.error_bytes or 0
    is_npu = subject.trace.backend == "npu"
    is_whole = subject.reach.basis != PAST_FAILURE
    pays, title = _verdict(runs, card.capacity_bytes, error, is_whole=is_whole)
    facts, fraction = _shared(subject, card, runs, communicators) if is_npu else ([], None)
    fixes: tuple[Fix | None, ...] = (switch(), share(fraction) if fraction is not None else None) if pays and is_npu else ()
    if not pays and runs.expandable is not None and runs.expandable.fits:
        fixes = (remedies.expandable_segments(AllocatorSettings.of(subject.trace)),)
    first = finding.evidence[:1] if finding is not None else ()
    bound = Evidence("most bytes live at a time: no allocator needs less", runs.bound_bytes, "bytes")
    return Finding(
        "MD114", title, "info", subject.device.device,
        (*(run.evidence(is_whole=is_whole) for run in (*runs.pools, *runs.rivals)), bound, *first, *facts), remedies.present(*fixes),
        _saving(subject, card, runs, error) if pays else None, weight_bytes=finding.weight_bytes if finding is not None else GAP,
    )  # fmt: skip


def is_calibrated(subject: Subject) -> bool:
    """Whether a replay of the recorded settings reproduces the recording well enough to go by others."""
    found = subject.calibration
    return (found.exact_fraction or 0) >= _CALIBRATED and found.error_bytes is not None


def _runs(subject: Subject, card: Scenario) -> _Runs:
    keys = parse_conf(card.conf)
    backend = resolve(POLICIES[card.policy]).BACKEND
    plain = _run(subject, card, "recorded settings")
    expandable = None
    if keys.get("expandable_segments") != "True" and not card.policy.endswith("expandable"):
        left_out = NPU_EXCLUDED if backend == "npu" else ()
        conf = ",".join(f"{key}:{value}" for key, value in keys.items() if key not in left_out)
        policy = "npu-expandable" if backend == "npu" else "expandable"
        try:
            expandable = _run(subject, replace(card, policy=policy, conf=conf), "expandable segments")
        except MemdiagError:  # the version has none
            expandable = None
    adopted = resolve(POLICIES["lifecycle"]).adopted(keys)
    conf = ",".join(f"{key}:{value}" for key, value in adopted.items())
    pools = tuple(
        _run(subject, replace(card, policy=policy, conf=conf), f"pools by lifetime, {hooks}") for policy, hooks in POOLS.items()
    )  # fmt: skip
    return _Runs(plain, expandable, pools, most_live(subject.workload))


def most_live(workload: Workload) -> int:
    """Returns the most bytes that are live at a time: the bound of any allocator (as the policy ``bound`` has it)."""
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


def _run(subject: Subject, scenario: Scenario, name: str) -> Run:
    """Replays from an empty beginning, so that all runs begin alike."""
    if hasattr(resolve(POLICIES[scenario.policy]), "marks"):
        found = subject.replay(scenario, log=False)
    else:
        found = subject.replayer(
            subject.workload, scenario.policy, conf=scenario.conf, torch_version=scenario.torch_version, capacity=scenario.capacity_bytes,
            fraction=scenario.fraction, log=False, keep_start=False,
        )  # fmt: skip
    return Run(name, int(found.reserved.max(initial=0)), int(found.ooms.max(initial=0)))


def _verdict(runs: _Runs, capacity: int | None, error: int, *, is_whole: bool = True) -> tuple[bool, str]:
    """Returns whether the pools pay, and the title that says so; ``is_whole``: no allocation failed when it was recorded."""
    pools, fitting = runs.best, [run for run in runs.rivals if run.fits]
    best = min(fitting, key=lambda run: run.peak_bytes, default=None)
    here = f"on {format_bytes(capacity)}" if capacity is not None else "without a limit"
    if not pools.fits and best is None:
        if capacity is not None and runs.bound_bytes > capacity:
            return (
                False,
                f"Pools by lifetime would not pay: no allocator fits this run {here}, {format_bytes(runs.bound_bytes)} are live at once",
            )
        return False, f"Pools by lifetime would not pay: they run out of memory {here} as well"
    if best is None:
        goes = "fits" if is_whole else "gets past the failed allocation"
        return True, f"Pools by lifetime would pay: with them the run {goes} {here}, and with nothing else that was tried"
    if not pools.fits:
        served = f"{_named(best)} {'fit' if is_whole else 'get past the failure'} with {format_bytes(best.peak_bytes)}"
        return False, f"Pools by lifetime would not pay: they run out of memory {here}, {served}"
    gain = best.peak_bytes - pools.peak_bytes
    if gain > max(error, _WORTH, _WORTH_SHARE * best.peak_bytes):
        return (
            True,
            f"Pools by lifetime would pay: {format_bytes(pools.peak_bytes)} at the peak, {format_bytes(gain)} less than {_named(best)}",
        )
    against = f"{_named(best)} need {format_bytes(best.peak_bytes)}" if gain <= 0 else f"{format_bytes(gain)} less than {_named(best)}"
    return False, f"Pools by lifetime would not pay: {format_bytes(pools.peak_bytes)} at the peak, {against}"


def _named(run: Run) -> str:
    return "the recorded settings" if run.name == "recorded settings" else run.name


def _shared(subject: Subject, card: Scenario, runs: _Runs, communicators: int | None) -> tuple[list[Evidence], float | None]:
    """Returns what is known of HCCL's part of the device, and the fraction to set with these pools."""
    pair = buffer_bytes(subject.trace)
    if communicators is None:
        count = Evidence("communicators", "not in a trace", "", "memdiag simulate --communicators N works the share out for N")
    else:
        count = Evidence("HCCL needs, in all", communicators * pair, "bytes", f"{plural(communicators, 'communicator')}, as given")
    facts = [buffers(subject.trace), count]
    capacity = card.capacity_bytes
    if not capacity:
        return facts, None
    left = max(capacity - runs.best.peak_bytes, 0)
    facts.append(Evidence("left beside pools by lifetime at their peak", left, "bytes", f"room for {plural(left // pair, 'communicator')}"))
    others = int(subject.limits.steps[:, 1].max()) if len(subject.limits.steps) else 0
    outside = communicators * pair if communicators is not None else 0
    if 0 < others < capacity:
        at_most = f"at failures; buffers of {plural(others // pair, 'communicator')} at most"
        facts.append(Evidence("outside of PyTorch's memory", others, "bytes", at_most))
        outside = max(outside, others)
    fraction = max(math.floor((capacity - outside) / capacity * 100) / 100, 0.01) if outside else _USUAL_FRACTION
    kept = capacity - int(fraction * capacity)
    policy = next(policy for policy, hooks in POOLS.items() if runs.best.name.endswith(hooks))
    adopted = resolve(POLICIES[policy]).adopted(parse_conf(card.conf))
    conf = ",".join(f"{key}:{value}" for key, value in adopted.items())
    held = _run(subject, replace(card, policy=policy, conf=conf, fraction=fraction), "")
    served = "the pools fit" if subject.reach.basis != PAST_FAILURE else "the pools get past the failed allocation"
    fate = served if held.fits else "the pools run out of memory"
    why = f"{plural(kept // pair, 'communicator')}; with it {fate}" + ("" if outside else "; assumed, as in the feature's documentation")
    facts.append(Evidence(f"kept free by a memory fraction of {fraction:.2f}", kept, "bytes", why))
    return facts, fraction


def _saving(subject: Subject, card: Scenario, runs: _Runs, error: int) -> Saving | None:
    """Returns what the pools save at the peak of the recorded settings, where a replay of these reproduces the recording."""
    saved = runs.plain.peak_bytes - runs.best.peak_bytes
    if not is_calibrated(subject) or saved <= error:
        return None
    policy = next(policy for policy, hooks in POOLS.items() if runs.best.name.endswith(hooks))
    path = file_argument(subject.trace.path)
    size = f" --capacity {card.capacity_bytes}" if card.capacity_bytes is not None else ""
    return Saving(saved - error, saved, saved + error, "simulated", f"memdiag simulate {path} --policy {policy}{size}")


def with_advice(
    report: PredictionReport, subject: Subject, scenarios: Iterable[Scenario], communicators: int | None = None
) -> PredictionReport:
    """Returns a report of simulated runs with whether pools by lifetime pay, if there are such pools among them."""
    like = next((scenario for scenario in scenarios if scenario.policy in {*POOLS, "lifetime-oracle"}), None)
    return report if like is None else replace(report, advice=judged(subject, like=like, communicators=communicators))
