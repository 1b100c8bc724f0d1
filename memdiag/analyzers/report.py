"""A whole diagnosis: runs every analyzer, describes every device, and states the verdict in one or two sentences."""

from __future__ import annotations

import os
from dataclasses import replace

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.devices import describe
from memdiag.analyzers.support.headline import headline
from memdiag.analyzers.support.host import host_report
from memdiag.analyzers.support.verdict import verdict
from memdiag.analyzers.support.would_fit import answers
from memdiag.diagnosis.windows import findings_for_windows, line_for_windows
from memdiag.registry import ANALYZERS
from memdiag.results.finding import SEVERITIES, Finding, Note
from memdiag.results.report import EARLIER_STEPS, Report, TraceSource, WhatIf
from memdiag.text import joined, phrase
from memdiag.trace.annotate import BASES
from memdiag.trace.model import Trace
from memdiag.trace.moments import DEFAULT

WORTH = 0.05  # of the reserved peak
_EVIDENCE = ("annotations+stacks", "annotations", "stacks", "periodicity")  # bases of inferred facts


def build_report(
    trace: Trace,
    *,
    at: str | int = DEFAULT,
    top: int = 10,
    device: int | None = None,
    replay: bool = True,
    fitting: int | None = None,
) -> Report:
    """Diagnoses a trace.

    Args:
        trace: Result of ``memdiag.load``.
        at: The moment of the report: "oom" (the last failed allocation), "peak", "allocated", "reserved", "end" or an
            event (-1: before the first), see ``memdiag.trace.moments``. By default "oom" for a device with a failed
            allocation, else "peak".
        top: Number of call sites to list.
        device: Index of the only device to analyze, or None for all.
        replay: Whether settings remedies are replayed on the trace, which determines their savings.
        fitting: Bytes of a tensor; the report says whether it would fit at the moment. None to omit this.

    Raises:
        MemdiagError: The device, the event, or an out-of-memory event is not in the trace.
    """
    context = Context(at, top, device)
    views = list(context.views(trace))
    found = ANALYZERS.attempts(lambda analyzer: list(analyzer.analyze(trace, context)))
    findings: list[Finding] = [finding for _, own in found for finding in own]
    findings.sort(key=lambda finding: (SEVERITIES.index(finding.severity), -finding.weight_bytes, finding.code))
    findings, what_if, failed = _replayed(trace, context, findings) if replay else (findings, (), ())
    findings.sort(key=lambda finding: (SEVERITIES.index(finding.severity), not _is_for_a_line(finding, views)))
    if trace.stacks.on_windows:  # after the replays, which compare lines
        findings = findings_for_windows(findings)
        what_if = tuple(replace(result, change=line_for_windows(result.change)) for result in what_if)
    devices = tuple(describe(view, context) for view in views)
    happened = headline(trace, context, findings)
    return Report(
        source=TraceSource(
            path=trace.path,
            format=trace.format,
            backend=trace.backend,
            torch_version=trace.torch_version,
            is_phantom=trace.phantom,
            num_events=trace.num_events,
            num_tensors=trace.num_tensors,
            complete_from_start=trace.complete_from_start,
            bases={name: trace.bases.get(name, "none") for name in BASES},
        ),
        devices=devices,
        settings=dict(trace.settings),
        findings=tuple(findings),
        notes=(*trace.notes, *_inferred(trace), *failed),
        headline=happened,
        what_if=what_if,
        verdict=verdict(trace, devices, findings, what_if, happened, replay=replay),
        would_fit=() if fitting is None else answers(trace, context, fitting),
        libraries=tuple(memory for memory in trace.libraries if device is None or memory.device == device),
        host=host_report(trace, context.top),
    )


def _is_for_a_line(finding: Finding, views: list[DeviceView]) -> bool:
    """Returns whether a replay shows that settings save a good part of the peak.

    Such settings are worth trying before the program is changed.
    """
    mine = [view.device for view in views if finding.device in {None, view.device.device}]
    peak = max((int(device.usage.reserved.max(initial=0)) for device in mine), default=0)
    saving = finding.saving
    return saving is not None and saving.basis == "simulated" and saving.low_bytes >= WORTH * max(peak, 1)


def _replayed(
    trace: Trace, context: Context, findings: list[Finding]
) -> tuple[list[Finding], tuple[WhatIf, ...], tuple[Note, ...]]:
    """Returns the findings with simulated savings, the replays, and the note if there can be none (MD925)."""
    from memdiag.analyzers.support.what_if import replayed  # imports the allocator model

    try:
        return *replayed(trace, context, findings), ()
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # a diagnosis without savings is better than none
        if os.environ.get("MEMDIAG_DEBUG", "") not in {"", "0"}:
            raise
        return findings, (), (Note("MD925", phrase("notes.no-replay", error=f"{type(error).__name__}: {error}")),)


def _inferred(trace: Trace) -> tuple[Note, ...]:
    """Returns the note on inferred facts and their evidence (MD920)."""
    by_evidence: dict[str, list[str]] = {}
    for key in ("phase", "step", "category", "lifetime"):
        if (evidence := trace.bases.get(key, "").removesuffix(EARLIER_STEPS)) in _EVIDENCE:
            by_evidence.setdefault(evidence, []).append(phrase(f"notes.inferred.{key}"))
    if trace.bases.get("lifetime", "").endswith(EARLIER_STEPS):
        by_evidence["earlier_steps"] = [phrase("notes.inferred.open-lifetimes")]
    if not by_evidence:
        return ()
    each = [
        phrase("notes.inferred.from", what=_listed(names), evidence=phrase(f"notes.evidence.{evidence}"))
        for evidence, names in by_evidence.items()
    ]
    return (Note("MD920", phrase("notes.inferred", what=joined(each, "; "))),)


def _listed(names: list[str]) -> str:
    return (
        names[0]
        if len(names) == 1
        else phrase("notes.inferred.two", first=joined(names[:-1], phrase("notes.inferred.comma")), last=names[-1])
    )
