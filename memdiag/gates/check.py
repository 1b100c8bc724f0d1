"""Compares traces with budgets and a baseline, and finds where memory grew."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from memdiag.analyzers.support.names import kind_words
from memdiag.compare.places import Known
from memdiag.compare.report import site_rows
from memdiag.compare.side import ComparedTrace, choose_device, side_of
from memdiag.gates.baseline import BaselineEntry, changes_of, entry_of
from memdiag.gates.budgets import Budget
from memdiag.gates.judging import Tolerances, against_baseline, against_budget
from memdiag.gates.metrics import METRICS, Measured, measure
from memdiag.results.check import CheckedSite, CheckReport, DeviceCheck
from memdiag.results.compare import Side, SiteHeld
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.moments import DEFAULT

MOST_HOLDERS = 5
WORTH = 0.01  # fraction of the call site that grew most: less is not worth a line
_RANK = re.compile(r"rank\d+")


@dataclass(frozen=True)
class MeasuredDevice:
    """The measurements of one device of one trace, or the error if the file could not be read.

    Attributes:
        key: Its key in a baseline.
        path: The file.
        device: Device index, or None if it could not be read.
        measured, side, known: Measurements, or None if it could not be read.
        error: Why it could not be read.
    """

    key: str
    path: str
    device: int | None = None
    measured: Measured | None = None
    side: Side | None = None
    known: Known | None = None
    error: str = ""

    @property
    def entry(self) -> BaselineEntry:
        """Its baseline entry."""
        assert self.measured is not None  # noqa: S101 - only measured devices get here
        assert self.side is not None  # noqa: S101
        return entry_of(self.measured.values, self.side.sites, self.side.facts)


def examine(key: str, trace: Trace, device: int | None = None, at: str | int = DEFAULT) -> list[MeasuredDevice]:
    """Measures the devices of a trace with data, or the chosen one.

    Raises:
        MemdiagError: The trace does not have the chosen device, or any.
    """
    from memdiag.analyzers.report import build_report

    used = [each for each in trace.devices if each.num_events or len(each.tensors)]
    chosen = used if device is None and used else [choose_device(trace, device)]
    subjects = []
    for each in chosen:
        side, known = side_of(ComparedTrace("A", trace, each, {}), None, at=at, with_findings=False)
        report = build_report(trace, at=at, device=each.device, replay=False)
        name = f"{key}/device{each.device}" if len(chosen) > 1 else key
        subjects.append(MeasuredDevice(name, trace.path, each.device, measure(each, side, report), side, known))
    return subjects


def keys_of(paths: Sequence[Path]) -> list[str]:
    """Returns the keys of traces in a baseline: ``rank0``, or the file name; with folders if that is ambiguous."""
    stems = Counter(path.absolute().with_suffix("") for path in paths)
    parts = [
        [*path.absolute().parent.parts, path.name if stems[path.absolute().with_suffix("")] > 1 else path.stem]
        for path in paths
    ]
    depth = [1] * len(paths)
    while True:
        keys = ["/".join(each[-deep:]) for each, deep in zip(parts, depth, strict=True)]
        double = {key for key, count in Counter(keys).items() if count > 1}
        longer = [
            min(deep + 1, len(each)) if key in double else deep
            for key, each, deep in zip(keys, parts, depth, strict=True)
        ]
        if longer == depth:
            return keys
        depth = longer


def check(
    subjects: Sequence[MeasuredDevice],
    budgets: Sequence[Budget],
    baseline: Mapping[str, BaselineEntry] | None,
    tolerances: Tolerances,
    *,
    name: str = "",
    root: Path | None = None,
) -> CheckReport:
    """Judges measurements.

    Args:
        subjects: Every device of every trace.
        budgets: Each applies to every device.
        baseline: Baseline to compare with, or None.
        tolerances: Allowed excess over the baseline.
        name: The file of the baseline.
        root: Folder in which the files of call sites are searched, or None.
    """
    entries = _paired(subjects, baseline)
    checked, notes = [], []
    for subject in subjects:
        entry = entries.get(subject.key)
        judged, said = _judged(subject, budgets, entry, tolerances, has_baseline=baseline is not None)
        over = {judgement.kind for judgement in judged.checks if judgement.status == "failed"}
        holders = _holders(subject, entry if "baseline" in over else None, root) if over else ()
        checked.append(replace(judged, sites=holders))
        notes += said
    missing = sorted(set(baseline or {}) - {key for subject in subjects for key in _names(subject, subjects, baseline)})
    return CheckReport(tuple(checked), tuple(missing), name, None, tuple(notes))


def updated(
    report: CheckReport, before: Mapping[str, BaselineEntry], subjects: Sequence[MeasuredDevice]
) -> tuple[CheckReport, dict[str, BaselineEntry]]:
    """Returns the report with the changes to the baseline, and its new entries."""
    after = {subject.key: subject.entry for subject in subjects}
    return replace(report, changes=changes_of(before, after)), after


def _names(
    subject: MeasuredDevice, subjects: Sequence[MeasuredDevice], baseline: Mapping[str, BaselineEntry] | None
) -> set[str]:
    """Returns the keys of the baseline that a trace may match."""
    if baseline and _is_the_only_one(subjects, baseline):
        return {subject.key, *baseline}
    return {subject.key}


def _is_the_only_one(subjects: Sequence[MeasuredDevice], baseline: Mapping[str, BaselineEntry]) -> bool:
    """Returns whether there is one trace on either side: then their names do not matter, unless they are ranks."""
    if len(subjects) != 1 or len(baseline) != 1:
        return False
    return not all(_RANK.fullmatch(key.rsplit("/", 1)[-1]) for key in (subjects[0].key, next(iter(baseline))))


def _paired(
    subjects: Sequence[MeasuredDevice], baseline: Mapping[str, BaselineEntry] | None
) -> dict[str, BaselineEntry]:
    if baseline and _is_the_only_one(subjects, baseline):
        return {subjects[0].key: next(iter(baseline.values()))}
    return dict(baseline or {})


def _judged(
    subject: MeasuredDevice,
    budgets: Sequence[Budget],
    entry: BaselineEntry | None,
    tolerances: Tolerances,
    *,
    has_baseline: bool,
) -> tuple[DeviceCheck, list[str]]:
    """Returns the judgements on one device, and notes."""
    if subject.measured is None or subject.side is None:
        return DeviceCheck(subject.key, subject.path, None, subject.error), []
    judgements = [against_budget(budget, subject.measured) for budget in budgets]
    notes: list[str] = []
    error = ""
    if entry is not None:
        found, better = against_baseline(subject.measured, entry, tolerances)
        judgements += found
        notes += [phrase("check.note", key=subject.key, text=line) for line in better]
        notes += _other_facts(subject.key, entry.facts, subject.side.facts)
        error = "" if judgements else phrase("check.empty")
    elif has_baseline:
        error = phrase("check.new")
    values = {name: subject.measured.values.get(name) for name in METRICS}
    checked = DeviceCheck(
        subject.key,
        subject.path,
        subject.device,
        error,
        tuple(judgements),
        (),
        values,
        dict(subject.side.facts),
        subject.side.at_event is not None,
    )
    return checked, notes


def _other_facts(key: str, before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    differs = [f"{name} {before[name]} → {now[name]}" for name in now if name in before and before[name] != now[name]]
    return [phrase("check.facts", key=key, facts=", ".join(differs))] if differs else []


def _holders(subject: MeasuredDevice, entry: BaselineEntry | None, root: Path | None) -> tuple[CheckedSite, ...]:
    """Returns the call sites that grew, most first; without a baseline or growth, those that hold most."""
    if subject.side is None or subject.side.sites is None:
        return ()
    known = subject.known or Known(())
    if entry is not None and entry.sites is not None:
        grown = _grown(entry.sites, subject.side.sites, known, root)
        if grown:
            return grown
    return tuple(_holder(held, root) for held in subject.side.sites[:MOST_HOLDERS])


def _grown(
    before: tuple[SiteHeld, ...], now: tuple[SiteHeld, ...], known: Known, root: Path | None
) -> tuple[CheckedSite, ...]:
    from memdiag.gates.baseline import MOST_SITES

    rows = site_rows([before, now], [Known([held.place for held in before]), known]) or ()
    # the baseline stores the largest call sites only, so smaller ones may have existed
    least = before[-1].amount.bytes if len(before) >= MOST_SITES else 0
    found = []
    for row in rows:
        was, is_now = row.amounts
        place = row.places[1]
        if (
            was is None
            or is_now is None
            or place is None
            or is_now.bytes <= max(was.bytes, least if was.num_tensors == 0 else 0)
        ):
            continue
        moved = row.places[0].line if row.matched[1] == "moved" and row.places[0] is not None else 0
        held = _holder(SiteHeld(place, is_now), root)
        found.append(
            (
                is_now.bytes - was.bytes,
                replace(held, baseline_bytes=was.bytes, baseline_num_tensors=was.num_tensors, baseline_line=moved),
            )
        )
    found.sort(key=lambda item: -item[0])
    return tuple(held for more, held in found[:MOST_HOLDERS] if more >= WORTH * found[0][0])


def _holder(held: SiteHeld, root: Path | None) -> CheckedSite:
    place, amount = held.place, held.amount
    return CheckedSite(
        place.label, _below(place.path, root), place.line, kind_words(amount.category), amount.bytes, amount.num_tensors
    )


def _below(path: str, root: Path | None) -> str:
    """Returns a file relative to a folder: the longest existing suffix of its path, or ""."""
    if root is None or not path or "\0" in path:
        return ""
    parts = [part for part in path.replace("\\", "/").split("/") if part]
    for first in range(max(len(parts) - 12, 0), len(parts)):
        end = "/".join(parts[first:])
        try:
            if ".." not in parts[first:] and (root / end).is_file():
                return end
        except (OSError, ValueError):
            return ""
    return ""
