"""Remedies for an out-of-memory message, by cause, backend and version, with the expected effect of each.

``device``, ``elsewhere`` and ``rest`` make the findings of one cause each, with remedies from
``memdiag.diagnosis.remedies``. Remedies that only a dialect knows (``Found.fixes``) come first. The fixes of one
finding are ranked alternatives; the first fixes of different findings do not exclude each other.
"""

from __future__ import annotations

from dataclasses import replace

from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.thresholds import ANY_RUN, SECOND_FOREIGN
from memdiag.diagnosis.windows import findings_for_windows
from memdiag.oom.advice.case import Case
from memdiag.oom.advice.device import capacity, fragmentation
from memdiag.oom.advice.elsewhere import limit, other_process, workspace_or_comm
from memdiag.oom.advice.rest import hint, host, unknown
from memdiag.oom.advice.serving import serving
from memdiag.oom.advice.training import training
from memdiag.oom.dialects.host_memory import PAGE_FILE
from memdiag.oom.model import Found
from memdiag.results.finding import Finding, Fix
from memdiag.results.oom import Cause, Judgement
from memdiag.settings.exclusions import exclude

CODES = {
    "MD701": "out of memory: fragmentation",
    "MD702": "out of memory: out of capacity",
    "MD703": "out of memory: other processes hold the device's memory",
    "MD704": "out of memory: a memory limit was reached",
    "MD705": "out of memory: libraries, communication or private pools hold memory",
    "MD706": "out of host memory",
    "MD707": "out of memory: cause unknown",
    "MD708": "settings that cannot prevent this failure",
}
_MAKERS = {
    "fragmentation": fragmentation,
    "capacity": capacity,
    "other_process": other_process,
    "limit": limit,
    "workspace_or_comm": workspace_or_comm,
    "host": host,
    "unknown": unknown,
}

# Messages of the driver or a library that do not identify the running program.
_BARE_DIALECTS = frozenset({"cuda_bare", "torch_cuda_mallocasync", "cublas_cudnn", "cuda_driver"})


def advise(found: Found, judgement: Judgement) -> tuple[Finding, ...]:
    """Returns findings, the most useful first.

    Within a finding the fixes are ranked alternatives; no fix of one finding excludes the first of another.
    """
    case = Case(found, judgement, Facts.from_fields(found.fields, found.backend))
    findings = [_MAKERS[judgement.verdict](case)]
    second = _second(case)
    if second is not None:
        findings.append(replace(_MAKERS[second](case), severity="info"))
    wrong = hint(case)
    if wrong is not None:
        findings.append(wrong)
    main = findings[0]
    findings[0] = replace(main, severity="warning" if found.is_warning else main.severity, fixes=_ranked(case, main))
    if case.windows:
        if judgement.verdict == "host" and PAGE_FILE.change not in {fix.change for fix in findings[0].fixes}:
            findings[0] = replace(findings[0], fixes=(*findings[0].fixes[:1], PAGE_FILE.fix(), *findings[0].fixes[1:]))
        findings = findings_for_windows(findings)
    return _compatible(found.backend, findings)


def _second(case: Case) -> Cause | None:
    """Returns the second most probable cause, if its numbers are large enough for a finding."""
    numbers, short = case.numbers, max((case.numbers.requested or 0) - (case.numbers.free or 0), 1)
    if case.judgement.confidence == "high" or numbers.requested is None:
        return None
    for cause in case.judgement.alternatives[:2]:
        if cause == "fragmentation" and (numbers.slack or 0) >= max(short, ANY_RUN * (numbers.total or 0)):
            return cause
        if cause == "other_process" and numbers.foreign_excess >= max(short, SECOND_FOREIGN * (numbers.total or 0)):
            return cause
    return None


def _ranked(case: Case, main: Finding) -> tuple[Fix, ...]:
    """Puts a dialect's fixes before the general ones, without general ones that differ only in the value.

    If a dialect has its own judgement and several fixes, the general ones are omitted: they would only dilute them. The
    driver's bare error does not identify the system, so the settings of the running program come first.
    """
    found = case.found
    own = tuple(fix.fix() for fix in found.fixes)
    lead = _of_program(case)
    if lead:
        return (lead, *(fix for fix in (*own, *main.fixes) if not exclude(found.backend, lead.change, fix.change)))
    if found.judgement is not None and len(own) > 1 and main.code != "MD707":
        return own
    seen, actions = {fix.change for fix in own if fix.change}, {fix.title for fix in own}
    others = (fix for fix in main.fixes if fix.title not in actions and (not fix.change or fix.change not in seen))
    return (*own, *(fix for fix in others if not any(exclude(found.backend, fix.change, line) for line in seen)))


def _of_program(case: Case) -> Fix | None:
    """Returns the first setting of the running program, if the dialect knows only the driver's message."""
    if (
        case.judgement.verdict not in {"unknown", "limit", "capacity", "workspace_or_comm"}
        or case.found.dialect not in _BARE_DIALECTS
    ):
        return None
    if case.judgement.confidence == "high" or case.stage == "checkpoint":
        return None
    return next(iter(serving(case)), None) or training(case)


def _said(fix: Fix) -> tuple[str, str]:
    return ("", fix.change) if fix.change else (fix.title, "")


def _compatible(backend: str, findings: list[Finding]) -> tuple[Finding, ...]:
    """Removes repeated fixes, and fixes of later findings that exclude the first fix of an earlier one."""
    chosen: list[str] = []
    said: set[tuple[str, str]] = set()
    result = []
    for finding in findings:
        fixes = tuple(
            fix for fix in finding.fixes if not any(exclude(backend, fix.change, change) for change in chosen)
        )
        new: dict[tuple[str, str], Fix] = {}
        for fix in fixes:
            if _said(fix) not in said:
                new.setdefault(_said(fix), fix)
        fixes = tuple(new.values())
        said |= new.keys()
        chosen += [fix.change for fix in fixes[:1]]
        result.append(replace(finding, fixes=fixes))
    return tuple(result)
