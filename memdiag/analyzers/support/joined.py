"""An out-of-memory message together with a trace of the same run: each supplies facts that the other lacks.

A snapshot dumped at or after the failure holds an entry for each failed request. memdiag finds the entry of a message
by device and numbers, and then counts the cause instead of judging it. If there is no such entry, memdiag uses the
moment most similar to the message, and the report says so. A message that does not match the trace keeps its verdict.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import numpy as np

from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.batch import depends_on_batch, optimizer_at
from memdiag.analyzers.support.demand import growth_in_first_step
from memdiag.analyzers.support.failure_cause import cause, facts_of, ledger
from memdiag.analyzers.support.failures import (
    Failure,
    FailureComparison,
    best_match,
    every_failure,
    failures,
    is_near,
    nearest,
    numbers,
)
from memdiag.analyzers.support.optimizers import for_optimizer
from memdiag.analyzers.support.root_causes import AVOIDABLE, growth_of, is_collection, is_root
from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.growth import despite_growth
from memdiag.diagnosis.refuted import as_on_card, is_stuck, without_refuted
from memdiag.diagnosis.remedies import ALLOCATOR_SETTINGS
from memdiag.diagnosis.remedies.demand import PER_BATCH
from memdiag.diagnosis.remedies.devices import with_neighbours_named
from memdiag.diagnosis.windows import findings_for_windows
from memdiag.oom.advice import advise
from memdiag.oom.frameworks import NAMES
from memdiag.oom.ledger import account
from memdiag.oom.model import Found
from memdiag.oom.verdict import judge
from memdiag.results.finding import Finding, Fix
from memdiag.results.oom import Cause, Judgement, Message, OomReport
from memdiag.results.report import Report
from memdiag.text import Phrase, joined, phrase
from memdiag.trace.model import Trace
from memdiag.trace.schema import OOM
from memdiag.units import format_bytes

MOST_LOOKED_AT = 4  # moments for which all analyzers run: each takes as long as `memdiag analyze`

# Findings that are relevant for a cause; others are about the rest of the trace.
_ARRANGEMENT = frozenset(
    {"MD111", "MD112", "MD113", "MD201", "MD202", "MD203", "MD204", "MD207", "MD208", "MD301", "MD403", *AVOIDABLE}
)
_PARTS = ("MD101", "MD102", "MD103", "MD104", "MD105", "MD131")  # of the peak
_AMOUNT = frozenset({*_PARTS, "MD111", "MD112", "MD203", "MD206", "MD208", "MD301", "MD302", *AVOIDABLE})
_OUTSIDE = frozenset({"MD206", "MD301"})
_RELEVANT: dict[Cause, frozenset[str]] = {
    "fragmentation": _ARRANGEMENT,
    "capacity": _AMOUNT,
    "limit": _AMOUNT | {"MD201"},
}
_UNCOUNTED = "_workspace"  # in the names of dialects whose memory is outside the caching allocator


@dataclass
class _Joiner:
    """State that all messages of one report share."""

    trace: Trace
    used: set[tuple[int, int]] = field(default_factory=set)
    failed: dict[int, list[Failure]] = field(default_factory=dict)
    analyzed: dict[tuple[int, int], Report] = field(default_factory=dict)

    def join(self, message: Message) -> Message:
        """Returns a message with the facts that the trace adds."""
        if not numbers(message.fields) or _UNCOUNTED in message.dialect:
            return _alone(message, phrase("joined.alone.numbers"))
        if self.trace.backend and {self.trace.backend, message.backend} in ({"cuda", "npu"}, {"hip", "npu"}):
            return _alone(message, phrase("joined.alone.backend", trace=self.trace.backend, message=message.backend))
        have = [device.device for device in self.trace.devices]
        index = message.fields.get("device_index")
        devices = [index] if isinstance(index, int) else have
        if not set(devices) & set(have):
            return _alone(message, _other_device(have, devices))
        candidates = [failure for device in devices for failure in self._failed(device)]
        if not candidates:
            return self._approximate(message, devices)
        match = best_match(message.fields, candidates, self.used)
        if match is None:
            return _alone(message, _why_not(message, candidates))
        failure, compared = match
        self.used.add(failure.key)
        return self.with_failure(message, failure, _agreement(failure, compared))

    def _failed(self, device: int) -> list[Failure]:
        if device not in self.failed:
            self.failed[device] = every_failure(self.trace, device)
        return self.failed[device]

    def _approximate(self, message: Message, devices: list[int]) -> Message:
        """Joins a message with a trace that has no failure, using the most similar moment."""
        moments = [nearest(self.trace, device, message.fields) for device in devices]
        close = [moment for moment in moments if is_near(message.fields, moment)]
        if not close or "requested_bytes" not in message.fields:
            return _alone(message, phrase("joined.alone.request" if close else "joined.alone.far"))
        if close[0].could_be_served:
            moment, split = close[0].here.name, close[0].split
            if split is None:
                return _alone(message, phrase("joined.alone.served.unknown", moment=moment))
            return _alone(message, phrase("joined.alone.served", moment=moment, cache=format_bytes(split.cache)))
        return self.with_failure(message, close[0], phrase("joined.approximate", moment=close[0].here.name))

    def with_failure(self, message: Message, failure: Failure, note: str) -> Message:
        """Returns a message with cause, ledger and findings of a failure."""
        found = self._report(failure)
        special = found.findings if found else ()
        judgement, growth = cause(failure, message), growth_of(special) or growth_in_first_step(failure.here)
        if growth is not None:
            judgement = despite_growth(judgement, facts_of(failure, message), growth)
        if failure.count > 1:
            note = joined([note, phrase("joined.last", count=failure.count)])
        judgement = replace(judgement, reasons=(*judgement.reasons, note)) if note else judgement
        kept = message.findings
        private = _private(facts_of(failure, message)) if judgement.verdict == "workspace_or_comm" else {}
        about = Found(0, 0, message.dialect, message.framework, message.backend, {**message.fields, **private})
        if private or judgement.verdict != message.judgement.verdict:  # advice for another cause, or for other numbers
            kept = advise(about, judgement)
        relevant = _RELEVANT.get(judgement.verdict, _OUTSIDE)
        if found and judgement.verdict == "fragmentation" and is_stuck(found.what_if):  # only less memory helps
            relevant = relevant | _AMOUNT
            kept = (*advise(about, replace(judgement, verdict="capacity")), *kept)
        if self.trace.stacks.on_windows:  # as in the report of the trace, with which the advice is compared
            kept = tuple(findings_for_windows(kept))
        special = tuple(finding for finding in special if finding.code in relevant)
        first = found.verdict.code if found and found.verdict else ""
        special = _without_repeats(sorted(special, key=lambda finding: not is_root(finding)), first)
        kept = _without_batch(kept, failure, special)
        kept = without_refuted(kept, found.what_if if found else ())
        optimizer = optimizer_at(failure.here)
        kept = tuple(replace(each, fixes=for_optimizer(each.fixes, optimizer)) for each in kept)
        settings = AllocatorSettings.of(self.trace)
        kept = with_neighbours_named(kept, settings.situation(facts_of(failure, message)))
        kept, in_effect = _without_those_in_effect(kept, settings)
        if in_effect:
            judgement = replace(judgement, reasons=(*judgement.reasons, in_effect))
        if failure.exact:  # it is recorded
            kept = tuple(
                replace(finding, fixes=tuple(fix for fix in finding.fixes if fix.kind != "record")) for finding in kept
            )
        findings = _merged(as_on_card((*special, *kept), found.verdict if found else None))
        return replace(
            message, judgement=judgement, ledger=ledger(failure, message), findings=findings, moment=_moment(failure)
        )

    def _report(self, failure: Failure) -> Report | None:
        """Returns the report of `memdiag analyze` for that moment; None after several, because each takes long."""
        key = failure.key
        if key not in self.analyzed and len(self.analyzed) < MOST_LOOKED_AT:
            self.analyzed[key] = build_report(self.trace, at=failure.here.at, device=failure.device.device)
        return self.analyzed.get(key)


def _private(facts: Facts) -> dict[str, int]:
    """Returns the fields on private pools, as a message prints them: their free blocks count as allocated."""
    if not facts.pool or facts.allocated is None:
        return {}
    return {
        "private_pool_bytes": facts.pool,
        "allocated_bytes": facts.allocated,
        "unallocated_bytes": facts.slack or 0,
    }


def _without_repeats(findings: list[Finding], first: str) -> tuple[Finding, ...]:
    """Returns findings without general ones that a more specific one covers, except the code that comes first."""
    codes = {finding.code for finding in findings}
    # MD101 suggests recomputing activations or a smaller batch, which does not help if a graph is retained by mistake
    # (MD106), or if outputs are collected (MD135)
    general = {"MD101"} if "MD106" in codes or any(map(is_collection, findings)) else set()
    general |= {"MD113"} & codes if codes & {"MD201", "MD202"} else set()
    rest = [finding for finding in findings if finding.code not in general]
    # these findings already list live memory, and how to reduce it
    if first != "MD206" and any(each.code.startswith("MD1") or each.code == "MD301" for each in rest):
        rest = [finding for finding in rest if finding.code != "MD206" or len(finding.fixes) > 1]
    return tuple(rest)


def _without_batch(
    findings: tuple[Finding, ...], failure: Failure, special: tuple[Finding, ...]
) -> tuple[Finding, ...]:
    """Returns advice without smaller batches and recomputation, if these would save only a little live memory.

    ``special``: findings about the failure.
    """
    if not any(map(is_collection, special)) and (not failure.exact or depends_on_batch(failure.here)):
        return findings
    return tuple(
        replace(finding, fixes=tuple(fix for fix in finding.fixes if not _needs_less_per_batch(fix)))
        for finding in findings
    )


def _without_those_in_effect(
    findings: tuple[Finding, ...], settings: AllocatorSettings
) -> tuple[tuple[Finding, ...], Phrase | None]:
    """Returns advice without the settings that do not apply to those of the trace, and a sentence that names them."""
    if not settings.can_change:
        return findings, None
    situation = settings.situation()
    useless = {each.key for each in ALLOCATOR_SETTINGS.values() if next(each.variants(situation), None) is None}
    dropped = [fix for finding in findings for fix in finding.fixes if _key(fix) in useless]
    if not dropped:
        return findings, None
    kept = tuple(replace(each, fixes=tuple(fix for fix in each.fixes if fix not in dropped)) for each in findings)
    lines = dict.fromkeys(fix.change.partition("=")[2] for fix in dropped)
    return kept, phrase("joined.in-effect", settings=joined(lines, ", "))


def _key(fix: Fix) -> str:
    return fix.title.key if isinstance(fix.title, Phrase) else ""


def _needs_less_per_batch(fix: Fix) -> bool:
    """Returns whether a remedy reduces the batch, or retains less per sample."""
    return _key(fix) in PER_BATCH


def join(report: OomReport | None, trace: Trace) -> OomReport:
    """Returns a report with the facts that a trace adds.

    Args:
        report: The report on a text; None or without messages, every failed request in the trace becomes a message
            (dialect "trace").
        trace: A trace of the same run.
    """
    joiner = _Joiner(trace)
    if report is not None and report.messages:
        return replace(report, messages=tuple(joiner.join(message) for message in report.messages))
    messages = tuple(
        _from_failure(joiner, failure) for device in trace.devices for failure in failures(trace, device.device)
    )
    base = report or OomReport(())
    return replace(base, messages=messages, sources=(*base.sources, trace.path))


def _from_failure(joiner: _Joiner, failure: Failure) -> Message:
    """Returns a failure as a message."""
    trace, device, usage = joiner.trace, failure.device, failure.usage
    backend = trace.backend or "cuda"
    fields: dict[str, object] = {"requested_bytes": failure.request_bytes, "device_index": device.device}
    left = failure.here.device_free_bytes
    known = {"free_bytes": left, "total_bytes": device.capacity_bytes}
    known |= {
        f"{name}_bytes": usage[name] if usage[name] >= 0 else None for name in ("allocated", "reserved", "active")
    }
    fields |= {name: value for name, value in known.items() if value is not None}
    found = Found(0, 0, "trace", "torch_npu" if backend == "npu" else "pytorch", backend, fields)
    judgement = judge(found)
    text = _sentence(failure)
    message = Message(
        "trace",
        found.framework,
        backend,
        None,
        failure.count,
        0,
        text,
        fields,
        judgement,
        account(found),
        advise(found, judgement),
        trace.path,
        program=NAMES[found.framework],
    )
    return joiner.with_failure(message, failure, "")


def _moment(failure: Failure) -> str:
    """Returns the options with which ``memdiag analyze`` shows a failure."""
    device = failure.device
    failed = np.flatnonzero(device.events.action == OOM)
    at = "oom" if len(failed) and failed[-1] == failure.here.at else str(failure.here.at)
    return f"--at {at}" + (f" --device {device.device}" if len(failure.view.trace.devices) > 1 else "")


def _sentence(failure: Failure) -> str:
    """Returns a sentence about the failure, like that of a message."""
    usage, left = failure.usage, failure.here.device_free_bytes
    known = {**usage, "free": -1 if left is None else left}
    amounts = [
        phrase(f"joined.amount.{name}", bytes=format_bytes(known[name]))
        for name in ("allocated", "reserved", "free")
        if known[name] >= 0
    ]
    return phrase(
        "joined.failed",
        device=str(failure.device.device),
        moment=failure.here.name,
        asked=format_bytes(failure.request_bytes),
        where=phrase("joined.failed.site", place=failure.site) if failure.site else "",
        amounts=phrase("joined.failed.amounts", amounts=joined(amounts, ", ")) if amounts else "",
    )


def _other_device(recorded: list[int], devices: list[int]) -> Phrase:
    """Returns a message about a device that the trace does not contain, with a note that says so."""
    if not recorded:
        return phrase("joined.alone.no-device")
    listed = ", ".join(map(str, recorded))
    return phrase("joined.alone.device", recorded=listed, device=str(devices[0]))


def _alone(message: Message, why: Phrase) -> Message:
    """Returns a message that the trace cannot explain, with the reason."""
    judgement: Judgement = message.judgement
    return replace(message, judgement=replace(judgement, reasons=(*judgement.reasons, phrase("joined.alone", why=why))))


def _agreement(failure: Failure, compared: FailureComparison) -> str:
    same = [
        phrase("joined.agrees.number", name=_name(name), bytes=format_bytes(size)) for name, size in compared.agreeing
    ]
    asked = format_bytes(failure.request_bytes)
    text = phrase("joined.agrees", moment=failure.here.name, asked=asked, numbers=joined(same, ", "))
    differing = [
        phrase("joined.differs.number", name=_name(name), printed=format_bytes(printed), recorded=format_bytes(size))
        for name, printed, size in compared.differing
    ]
    return joined([text, phrase("joined.differs", numbers=joined(differing, "; ")) if differing else ""])


def _name(number: str) -> Phrase:
    """Returns the name of a number of a message, see ``failures.numbers``."""
    return phrase(f"joined.name.{number}")


def _why_not(message: Message, candidates: list[Failure]) -> Phrase:
    """Returns how the numbers of the message differ from those of the trace's last failure."""
    printed = numbers(message.fields)
    last = candidates[-1]
    seen = {**last.usage, "requested": last.segment_bytes}
    pairs = [
        phrase(
            "joined.differs.number",
            name=_name(n),
            printed=format_bytes(printed[n].bytes),
            recorded=format_bytes(seen[n]),
        )
        for n in ("requested", "allocated", "reserved")
        if n in printed and seen[n] >= 0
    ]
    return phrase(
        "joined.alone.other",
        count=len(candidates),
        numbers=joined(pairs, "; "),
        event=phrase("places.event", at=int(last.here.at)),
    )


def _merged(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Returns findings without remedies that occur before, and without findings that have no others."""
    merged, offered = [], set[str]()
    for finding in findings:
        fixes = tuple(fix for fix in finding.fixes if _remedy(fix) not in offered)
        offered |= {_remedy(fix) for fix in fixes}
        if fixes or not finding.fixes:
            merged.append(replace(finding, fixes=fixes))
    return tuple(merged)


def _remedy(fix: Fix) -> str:
    """Returns the setting that a remedy changes: the same setting with another number is the same remedy."""
    return re.sub(r"[0-9]+", "", fix.change or fix.title)
