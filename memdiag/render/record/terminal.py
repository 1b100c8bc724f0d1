"""The summary of a recorded run as lines for a terminal, in the order in which ``memdiag record`` prints them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from memdiag import vocabulary
from memdiag.quoting import file_argument
from memdiag.render.support import card, shared_cards
from memdiag.render.support.line import cells
from memdiag.render.support.look import PLAIN, Look
from memdiag.results.recording import RunMemory, RunSummary
from memdiag.results.report import DeviceReport, Report
from memdiag.results.shared_cards import SharedCard
from memdiag.text import joined, phrase
from memdiag.units import format_bytes

MOST_ROWS = 8
_LABEL = 10  # columns of the labels
_ASSUMED_SIZES = "MD932"
_PARTS = ("rounding", "pending", "stranded", "foreign", "cache")


def row(label: str, text: str) -> str:
    """Returns one line of a summary: a label column and the text; an empty label continues the previous row."""
    return f"  {label}{' ' * max(_LABEL - cells(label), 0)} {text}"


def render(summary: RunSummary, look: Look = PLAIN) -> str:  # noqa: ARG001 - all forms have the same signature
    """Returns the whole summary, without the report of an out-of-memory error."""
    return "\n".join([*recorded(summary), *memory(summary), *rest(summary), ""])


def recorded(summary: RunSummary) -> list[str]:
    """Returns the first lines: the recorded files, or why there are none."""
    if not summary.recorded:
        return list(_nothing(summary))
    seconds = {
        "seconds": f"{summary.seconds:.1f}",
        "marks": f"{summary.marks_seconds:.2f}",
        "dumps": f"{summary.dumps_seconds:.2f}",
    }
    # An analysis finds steps also in a loop without an optimizer, so "0 training steps" would contradict it.
    steps = phrase("record.steps", count=summary.steps) if summary.steps else phrase("record.steps.none")
    return ["", f"memdiag: {phrase('record.recorded', processes=len(summary.recorded), steps=steps, **seconds)}"]


def _nothing(summary: RunSummary) -> Iterator[str]:
    if summary.nested:
        yield f"memdiag: {phrase('record.nested.only', folders=', '.join(summary.nested))}"
        return
    yield f"memdiag: {phrase('record.nothing', why=summary.reasons[0])}"
    for reason in summary.reasons[1:]:
        yield f"  {reason}"
    yield f"  {phrase('record.doctor')}"


def memory(summary: RunSummary) -> list[str]:
    """Returns the lines about the trace."""
    if summary.memory is None:
        return []
    return [*_memory(summary, summary.memory), *(line for card in summary.cards for line in _shared(card))]


def _shared(shared: SharedCard) -> Iterator[str]:
    """Yields what the processes of a shared card held at its last failure, else at its fullest moment."""
    ranks = joined([str(process.rank) for process in shared.processes], ", ")
    facts = phrase("record.card.shared", ranks=ranks, count=len(shared.hand_offs))
    yield row(phrase("record.card"), facts)
    fullest = min(shared.moments, key=lambda moment: moment.free_bytes, default=None)
    moment = shared.failures[-1].moment if shared.failures else fullest
    if moment is not None:
        names = shared_cards.head(shared)[1:]
        sizes = zip(names, shared_cards.sizes_of(moment), strict=True)
        parts = joined([f"{name} {format_bytes(size)}" for name, size in sizes], ", ")
        is_failure = bool(shared.failures)
        yield row("", phrase(f"record.card.{'failed' if is_failure else 'fullest'}", rank=moment.rank, parts=parts))
    for line in shared_cards.kept(shared):
        yield row("", line)


def _memory(summary: RunSummary, found: RunMemory) -> Iterator[str]:
    if found.too_large_bytes is not None:
        yield row(phrase("record.memory"), phrase("record.memory.large", bytes=format_bytes(found.too_large_bytes)))
    if found.unreadable is not None:
        yield row(phrase("record.memory"), joined(found.unreadable, "; "))
    if found.report is None:
        return
    if len(summary.recorded) > 1 and summary.chosen is not None:
        yield row(phrase("record.memory"), phrase("record.memory.of", file=Path(summary.chosen["trace"]).name))
    yield from _verdict(found.report, found.steered)
    for device in found.report.devices:
        yield from _device(found.report, device)
    for memory in found.report.libraries:
        held = format_bytes(memory.live_bytes)
        facts = phrase("record.libraries.held", library=memory.library, bytes=held, count=len(memory.communicators))
        yield row(phrase("record.libraries"), facts)


def _verdict(report: Report, steered: Sequence[str]) -> Iterator[str]:
    verdict = card.verdict_of(report)
    if any(note.code == _ASSUMED_SIZES and note.text in steered for note in report.notes):
        verdict = replace(verdict, assumed="")  # said as a reason for the failure
    yield row(phrase("record.diagnosis"), verdict.summary)
    for each in card.rows(verdict):
        yield row(each.label, each.text)
        if each.command:
            yield row("", each.command)


def _device(report: Report, device: DeviceReport) -> Iterator[str]:
    peak = device.moment
    if peak is None or not (peak.reserved_bytes or peak.allocated_bytes):
        return
    name = f"{report.source.backend or phrase('record.device')}:{device.device}"
    step = phrase("places.step", step=str(peak.step)) if peak.step is not None and peak.step >= 0 else ""
    place = joined((name, vocabulary.name("phase", peak.phase) if peak.phase else "", step), ", ")
    reserved = (
        phrase("record.reserved", bytes=format_bytes(peak.reserved_bytes)) if peak.reserved_bytes is not None else ""
    )
    allocated = phrase("record.allocated", bytes=format_bytes(peak.allocated_bytes))
    highest, here = device.peak.reserved_bytes, peak.reserved_bytes
    if highest is not None and here is not None and highest > here and format_bytes(highest) != format_bytes(here):
        more = phrase("record.reserved.most", bytes=format_bytes(highest))
        allocated = joined((allocated, more), "; ")
    title = phrase("record.at_failure") if peak.kind == "oom" else phrase("record.peak")
    yield row(title, phrase("record.usage", usage=joined((reserved, allocated), ", "), place=place))
    parts = {name: getattr(device.fragmentation, f"{name}_bytes") for name in _PARTS}
    if None not in parts.values() and any(parts.values()):
        listed = [f"{vocabulary.name('part', name)} {format_bytes(value)}" for name, value in parts.items() if value]
        yield row(
            phrase("record.unused"),
            phrase("record.unused.bytes", bytes=format_bytes(sum(parts.values())), parts=joined(listed, ", ")),
        )
    if device.by_category:
        most = sorted(device.by_category.items(), key=lambda item: -item[1])[:5]
        held = [f"{vocabulary.name('category', name)} {format_bytes(value)}" for name, value in most if value]
        yield row(phrase("record.live"), joined(held, ", "))


def rest(summary: RunSummary) -> list[str]:
    """Returns the last lines: notes, files, and the next command."""
    if summary.chosen is None:
        return []
    return [*_steered(summary.memory), *_files(summary, summary.chosen)]


def _steered(found: RunMemory | None) -> Iterator[str]:
    """Yields possible reasons for an error on a simulated device.

    They are values that were not computed, and calls that are not simulated.
    """
    if found is None:
        return
    if found.unsupported:
        yield row(phrase("record.note"), phrase("record.unsupported", code=found.unsupported))
    for number, text in enumerate(found.steered):
        yield row(phrase("record.note"), text if number else phrase("record.steered", text=text))
    if found.last_synthetic is not None:
        values, place = found.last_synthetic
        yield row("", phrase("record.steered.last", value=phrase(f"record.value.{values}"), place=place))
    if found.is_steered_by_values:
        yield row("", phrase("record.steered.how"))


def _files(summary: RunSummary, chosen: Mapping[str, Any]) -> Iterator[str]:
    for warning in summary.warnings:
        yield row(phrase("record.note"), warning)
    for status in summary.recorded[:MOST_ROWS]:
        facts = [format_bytes(status.get("bytes"))]
        events = sum(file.get("events") or 0 for file in (status.get("files") or {}).values())
        facts += [phrase("record.events", count=events)] if events else []
        facts += (
            [phrase("record.written", reason=status["reason"])] if status.get("reason") not in {None, "exit"} else []
        )
        yield row(phrase("record.file"), phrase("record.file.facts", file=status["name"], facts=joined(facts, ", ")))
    if len(summary.recorded) > MOST_ROWS:
        yield row("…", phrase("record.more", count=len(summary.recorded) - MOST_ROWS, folder=summary.folder))
    if summary.single is not None:
        why = phrase("record.copy.stays", file=summary.wanted) if summary.single != summary.wanted else ""
        yield row(phrase("record.file"), joined((phrase("record.copy", file=summary.single), why), ", "))
    elif len(summary.recorded) > 1 and summary.is_wanted_named:
        yield row(phrase("record.note"), phrase("record.several", file=summary.wanted))
    for problem in summary.problems:
        yield row(phrase("record.note"), problem)
    for folder in summary.nested:
        yield row(phrase("record.note"), phrase("record.nested", folder=folder))
    name = file_argument(
        summary.single or chosen["name"] if summary.single or len(summary.recorded) > 1 else summary.folder
    )
    yield row(phrase("record.next"), f"memdiag analyze {name}")
    failed = {oom.get("backend") for oom in chosen.get("ooms") or ()}
    if failed & {"cuda", "npu"} and summary.is_phantom:
        yield row("", phrase("record.next.fix", command=f"memdiag fix {file_argument(summary.folder)}"))
    elif failed & {"cuda", "npu"}:
        yield row("", phrase("record.next.fix", command="memdiag fix --phantom DEVICE -- …"))
        yield row("", phrase("record.next.phantom"))
