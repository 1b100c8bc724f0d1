"""Replays of allocator settings on the trace.

It replays every remedy of a finding, the obvious candidates, and all remedies together.

A saving is quoted only if a replay of the recorded settings reproduces the recording, with its error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from memdiag.allocator.subject import Subject
from memdiag.analyzers.lifetime_pools import CODES as _POOLS
from memdiag.analyzers.support.allocator_settings import NPU_EXCLUDED, AllocatorSettings
from memdiag.analyzers.support.candidates import candidates
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.demand import exceeds_memory
from memdiag.analyzers.support.habits_judged import CODES as _HABITS
from memdiag.analyzers.support.habits_judged import answered
from memdiag.analyzers.support.moments import look
from memdiag.analyzers.support.offered import offered
from memdiag.analyzers.support.pools_judged import is_calibrated, judged
from memdiag.diagnosis.refuted import judged_results
from memdiag.errors import MemdiagError
from memdiag.quoting import argument, file_argument
from memdiag.results.finding import Finding, Fix
from memdiag.results.report import WhatIf
from memdiag.settings.conf import parse_conf
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import has_requests, is_nearly_full

# Fraction of the compared values that must match the recording; below it the model does not match.
_EXACT_ENOUGH = 0.9
_MOST_EVENTS = 5_000_000  # a replay takes about a second per two million events
_REPLAYED = ("cuda", "npu")
_ASKED = (*_POOLS, *_HABITS)  # findings that replays confirm, refute or extend


def replayed(trace: Trace, context: Context, findings: Iterable[Finding]) -> tuple[list[Finding], tuple[WhatIf, ...]]:
    """Returns the findings adjusted by replays, and all replays, device by device."""
    found = list(findings)
    if trace.backend not in _REPLAYED:
        return found, ()
    settings = AllocatorSettings.of(trace)
    results: list[WhatIf] = []
    proposals: dict[str, Fix] = {}
    for view in context.views(trace):
        mine = [finding for finding in found if finding.device in {None, view.device.device}]
        asked = [finding for finding in mine if finding.code in _ASKED]
        if not view.device.has_addresses or not has_requests(view.device) or view.device.num_events > _MOST_EVENTS:
            continue
        obvious = {fix.change: fix for fix in candidates(trace, view.device, settings)}
        lines = {**_lines(settings, mine), **{line: () for line in obvious if line not in _lines(settings, mine)}}
        with contextlib.suppress(MemdiagError):  # the file has settings that its allocator would refuse
            replays = _Replays.of(trace, view.device, settings)
            here = look(view, settings)
            beyond = exceeds_memory(here)
            results += judged_results(
                [replace(each, is_rest_too_large=each.is_rest_too_large or beyond) for each in replays.results(lines)]
            )
            answers = (
                (_answered(replays.subject, view, finding) if finding in asked else finding) for finding in found
            )
            found = [finding for finding in answers if finding is not None]
            proposals |= {line: fix for line, fix in obvious.items() if line not in proposals}
    nearly_full = [device.device for device in trace.devices if is_nearly_full(device)]
    return offered(found, results, proposals, nearly_full), tuple(results)


def _answered(subject: Subject, view: DeviceView, question: Finding) -> Finding | None:
    """Returns a finding with the evidence of replays, if they reproduce the recording; None if they refute it."""
    if not is_calibrated(subject):
        return question
    return answered(subject, view, question) if question.code in _HABITS else judged(subject, question) or question


def _lines(settings: AllocatorSettings, findings: Iterable[Finding]) -> dict[str, tuple[str, ...]]:
    """Returns the lines that remedies suggest, with the codes of their findings."""
    lines: dict[str, tuple[str, ...]] = {}
    for finding in findings:
        for fix in finding.fixes:
            if fix.kind == "env" and _conf_of(settings, fix.change) is not None:
                codes = lines.get(fix.change, ())
                lines[fix.change] = codes if finding.code in codes else (*codes, finding.code)
    return lines


def _conf_of(settings: AllocatorSettings, line: str) -> str | None:
    """Returns the settings in a line, or None if it is not about settings."""
    if line == f"unset {settings.variable}":
        return ""
    lead = f"export {settings.variable}="
    return line.removeprefix(lead) if line.startswith(lead) else None


@dataclass(frozen=True)
class _Replays:
    """Replays of one device."""

    subject: Subject
    settings: AllocatorSettings
    path: str
    recorded_ooms: int

    @classmethod
    def of(cls, trace: Trace, device: DeviceTrace, settings: AllocatorSettings) -> _Replays:
        ooms = int(np.count_nonzero(device.events.action == schema.OOM))
        return cls(Subject.of(trace, device), settings, trace.path, ooms)

    def results(self, lines: dict[str, tuple[str, ...]]) -> Iterator[WhatIf]:
        """Yields the result of each line, and of all lines together."""
        calibration = self.subject.calibration
        if (
            (calibration.exact_fraction or 0) < _EXACT_ENOUGH
            or calibration.error_bytes is None
            or not self.subject.comparable_peak
        ):
            return
        for line, codes in lines.items():
            yield from self._result(line, codes, is_combination=False)
        remedies = {line: codes for line, codes in lines.items() if codes}
        together = self._together(remedies)
        if remedies and together not in lines:
            every = tuple(dict.fromkeys(code for codes in remedies.values() for code in codes))
            yield from self._result(together, every, is_combination=True)

    def _together(self, lines: Iterable[str]) -> str:
        """Returns one line with every change; of contradicting changes, the first wins."""
        changes: dict[str, str | None] = {}
        for line in lines:
            keys = parse_conf(_conf_of(self.settings, line) or "")
            removed = dict.fromkeys(set(self.settings.keys) - set(keys))
            changed = {key: value for key, value in keys.items() if self.settings.keys.get(key) != value}
            changes = {**removed, **changed, **changes}
        if changes.get("expandable_segments") == "True":  # a limit on splitting is an alternative, not an addition
            changes = {key: value for key, value in changes.items() if key not in NPU_EXCLUDED}
        return self.settings.line(changes)

    def _result(self, line: str, codes: tuple[str, ...], *, is_combination: bool) -> Iterator[WhatIf]:
        conf = _conf_of(self.settings, line)
        if conf is None:
            return
        found = self.subject.calibration
        scenario = replace(self.subject.recorded, conf=conf)
        try:
            replay = self.subject.replay(scenario, log=False)
        except MemdiagError:  # the version that was recorded refuses these settings
            return
        peak, num_ooms = int(replay.reserved.max(initial=0)), int(replay.ooms.max(initial=0))
        yield WhatIf(
            device=self.subject.device.device,
            change=line,
            codes=codes,
            is_combination=is_combination,
            peak_reserved_bytes=peak,
            saved_bytes=(self.subject.comparable_peak or 0) - peak,
            calibration_error_bytes=found.error_bytes or 0,
            num_ooms=num_ooms,
            num_recorded_ooms=self.recorded_ooms,
            calibration=phrase(
                "verdict.exact" if found.is_exact else "verdict.partly", exact=found.exact or 0, events=found.events
            ),
            repro=f"memdiag simulate {file_argument(self.path)} --conf {argument(conf)}",
            num_retries=int(replay.retries.max(initial=0)),
            starts_with_live_tensors=bool(len(self.subject.workload.start.block_off)),
            num_driver_calls=int(replay.device_allocs.max(initial=0)) + int(replay.device_frees.max(initial=0)),
            is_rest_too_large=bool(self.recorded_ooms) and not num_ooms and self.subject.rest_fails(scenario),
        )
