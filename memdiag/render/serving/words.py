"""Texts that the forms of ``memdiag serving`` share."""

from __future__ import annotations

from memdiag.render.support.amounts import percent
from memdiag.render.support.bar import level_row
from memdiag.results.serving import ServingCard, ServingPart, ServingReport, ServingUse
from memdiag.text import Phrase, phrase
from memdiag.units import format_bytes, format_count

_SAME = 0.02  # of the card, for each part


def title(report: ServingReport) -> Phrase:
    """Returns the title of the report."""
    version = f" {report.version}" if report.version else ""
    return phrase("serving.title", program=report.program, version=version)


def card_title(card: ServingCard) -> Phrase:
    """Returns the name of a card, and what its parts sum up to."""
    return phrase("serving.card", who=card.who) if card.who else phrase("serving.card.only")


def whole(card: ServingCard) -> Phrase:
    """Returns the sum of a card's parts, and its meaning."""
    return phrase(f"serving.whole.{card.whole}", total=format_bytes(card.total_bytes))


def origin(part: ServingPart) -> str:
    """Returns where the size of a part comes from."""
    if part.bytes is None:
        return ""
    if part.basis == "computed" and part.line:
        return phrase("serving.from.computed.line", line=part.line)
    return phrase(f"serving.from.{part.basis}", line=part.line)


def rows(card: ServingCard) -> list[tuple[str, str, str, str]]:
    """Returns the parts of a card: name, size, share, origin; the last row is the sum."""
    total = card.total_bytes

    def share(size: int | None) -> str:
        return percent(size / total) if total and size is not None else ""

    found: list[tuple[str, str, str, str]] = [
        (phrase(f"serving.part.{part.kind}"), format_bytes(part.bytes), share(part.bytes), origin(part))
        for part in card.parts
    ]
    line = phrase("serving.from.printed", line=card.total_line) if card.total_line else ""
    return [*found, (phrase("serving.sum"), format_bytes(card.sum_bytes), share(card.sum_bytes), line)]


def groups(report: ServingReport) -> list[tuple[ServingCard, list[str]]]:
    """Returns the cards to show, each with the names of later cards whose parts are the same within 2 %."""
    found: list[tuple[ServingCard, list[str]]] = []
    for card in report.cards:
        like = next((others for first, others in found if _is_like(first, card)), None)
        if like is None:
            found.append((card, []))
        else:
            like.append(card.who)
    return found


def _is_like(one: ServingCard, other: ServingCard) -> bool:
    if (one.whole, len(one.parts)) != (other.whole, len(other.parts)):
        return False
    room = _SAME * max(one.sum_bytes, 1)
    return all(
        first.kind == second.kind and abs((first.bytes or 0) - (second.bytes or 0)) <= room
        for first, second in zip(one.parts, other.parts, strict=True)
    )


def requests(report: ServingReport) -> list[str]:
    """Returns the capacity for requests, in sentences."""
    lines: list[str] = []
    if report.kv_tokens is not None:
        lines.append(phrase("serving.kv-tokens", tokens=report.kv_tokens))
    if report.kv_blocks is not None:
        lines.append(phrase("serving.kv-blocks", blocks=report.kv_blocks))
    if report.max_model_len is not None:
        lines.append(phrase("serving.longest", length=report.max_model_len))
    if report.max_concurrency is not None:
        lines.append(phrase("serving.concurrency", number=f"{report.max_concurrency:.2f}"))
    return lines


def use(found: ServingUse) -> list[str]:
    """Returns the use of the KV cache, in sentences."""
    lines: list[str] = []
    if found.peak_usage is not None:
        when = f"{found.peak_time}, " if found.peak_time else ""
        line = phrase("serving.from.printed", line=found.peak_line)
        lines.append(phrase("serving.use.peak", usage=percent(found.peak_usage), when=when, line=line))
        lines.append(phrase("serving.use.requests", running=found.running_at_peak, waiting=found.waiting_at_peak))
        lines.append(phrase("serving.use.most", running=found.max_running, waiting=found.max_waiting))
    if found.num_preemptions:
        lines.append(phrase("serving.use.preemptions", count=found.num_preemptions))
    return lines


def use_row(found: ServingUse, width: int) -> str:
    """Returns the use over time as a row of blocks in at most ``width`` columns; "" for fewer than 2 points."""
    return level_row([point.usage for point in found.points], width) if len(found.points) > 1 else ""


def use_over_time(found: ServingUse) -> Phrase:
    """Returns the first, largest and last use, for at least 2 points."""
    first, last = found.points[0], found.points[-1]
    begin, end = (point.time or phrase("serving.from.printed", line=point.line) for point in (first, last))
    return phrase(
        "serving.use.over-time",
        first=percent(first.usage),
        peak=percent(found.peak_usage),
        last=percent(last.usage),
        begin=begin,
        end=end,
    )


def use_means(found: ServingUse) -> Phrase:
    """Returns what follows from the use of the KV cache."""
    return phrase(f"serving.use.{found.conclusion}")


def settings(report: ServingReport) -> str:
    """Returns the memory settings that the log names."""
    return "  ".join(f"{name} {_number(value)}" for name, value in report.settings.items())


def _number(value: float) -> str:
    return f"{value:g}" if value != int(value) else format_count(int(value)).replace(",", "")


def missing(size: int) -> Phrase:
    """Returns how much memory was missing."""
    return phrase("serving.failure.missing", size=format_bytes(size))
