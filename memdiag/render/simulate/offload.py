"""Offloading in a simulated run, for people: does it fit now, what moves, what it costs, how to do it."""

from __future__ import annotations

from memdiag import vocabulary
from memdiag.render.support.lightpage import Cell, LightPage
from memdiag.results.offloading import MovedTensors, Offloading
from memdiag.text import Phrase, joined, phrase, plain, sentence
from memdiag.units import format_bytes, format_count, format_us

_LISTED = 8
LONGEST = 60


def offloading(page: LightPage, name: str, found: Offloading) -> None:
    """Adds the plan of the run called ``name`` to a page."""
    page.title(phrase("offload.title", name=name, strategy=phrase(f"offload.strategy.{found.strategy}")))
    page.grid("lw", [_verdict(found)])
    if found.fits is False:
        page.text(_why_not(found), indent=2)
    page.gap()
    left, before = format_bytes(found.load_left_bytes), format_bytes(found.load_peak_bytes)
    rows = [
        ("live", phrase("offload.instead", now=left, before=before)),
        ("bound", phrase("offload.bound", bytes=format_bytes(found.bound_bytes))),
        (
            "host",
            phrase("offload.host", held=format_bytes(found.host_peak_bytes), used=format_bytes(found.host_used_bytes)),
        ),
    ]
    if found.disk_peak_bytes:
        rows.append(("disk", joined((format_bytes(found.disk_peak_bytes),))))
    rows.append(
        ("moves", phrase("offload.moves", away=format_bytes(found.bytes_away), back=format_bytes(found.bytes_back)))
    )
    if found.hidden_us is not None and found.exposed_us is not None:
        rows.append(
            ("copies", phrase("offload.copies", hidden=format_us(found.hidden_us), exposed=format_us(found.exposed_us)))
        )
    if found.step_us and found.new_step_us is not None:
        rows.append(
            ("step", phrase("offload.instead", now=format_us(found.new_step_us), before=format_us(found.step_us)))
        )
    rows.append(("rates", joined((found.link, found.disk), "; ")))
    page.grid("lw", [[(phrase(f"offload.row.{what}"), "dim"), said] for what, said in rows])
    _moves(page, found)
    for note in found.notes:
        page.text(sentence(note), "dim", indent=2)
    _alternatives(page, found)
    _how(page, found)


def _verdict(found: Offloading) -> list[Cell]:
    budget = phrase("offload.unlimited") if found.budget_bytes is None else format_bytes(found.budget_bytes)
    if found.fits is None:
        return [(phrase("offload.past"), "yellow"), (phrase("offload.past.in", budget=budget), "bold")]
    if found.fits:
        return [(phrase("offload.fits"), "green"), (phrase("offload.in", budget=budget), "bold")]
    missing = phrase("offload.missing", bytes=format_bytes(found.missing_bytes)) if found.missing_bytes else ""
    return [
        (phrase("offload.fails"), "bold red"),
        (joined((phrase("offload.in", budget=budget), missing), "; "), "bold"),
    ]


def _why_not(found: Offloading) -> Phrase:
    """Returns why a plan does not fit, and what to try."""
    if found.budget_bytes is not None and found.bound_bytes > found.budget_bytes:
        return phrase("offload.why.bound")
    if found.host_peak_bytes > found.host_budget_bytes:
        return phrase(
            "offload.why.host", bytes=format_bytes(found.host_peak_bytes), allowed=format_bytes(found.host_budget_bytes)
        )
    if found.disk_peak_bytes > found.disk_budget_bytes:
        return phrase(
            "offload.why.disk", bytes=format_bytes(found.disk_peak_bytes), allowed=format_bytes(found.disk_budget_bytes)
        )
    if found.fits_with_host_bytes is not None:
        needed, allowed = format_bytes(found.fits_with_host_bytes), format_bytes(found.host_budget_bytes)
        return phrase("offload.why.more_host", bytes=needed, allowed=allowed)
    if found.budget_bytes is not None and found.load_left_bytes <= found.budget_bytes:
        return phrase("offload.why.placement")
    return phrase("offload.why.forced") if found.strategy == "forced" else phrase("offload.why.link")


def _moves(page: LightPage, found: Offloading) -> None:
    page.gap()
    if not found.moved:
        page.text(phrase("offload.nothing"), indent=2)
        return
    heads = [phrase(f"offload.head.{head}") for head in ("what", "to", "away", "back", "times", "copied")]
    rows: list[list[Cell]] = [[(text, "bold") for text in (heads[0], "", *heads[1:])]]
    rows += [list(_cells(each)) for each in found.moved[:_LISTED]]
    page.grid("lwlllrr", rows)
    left = len(found.moved) - _LISTED
    if left > 0:
        page.text(phrase("offload.others", count=left), "dim", indent=2)


def _cells(each: MovedTensors) -> tuple[str, ...]:
    name = plain(each.name, LONGEST) or phrase("offload.unnamed")
    category = vocabulary.name("category", each.category.replace(" ", "_"))
    away, back = (vocabulary.name("phase", phase) if phase else "-" for phase in (each.away_in, each.back_in))
    return (
        category,
        name,
        phrase(f"offload.place.{each.place}"),
        away,
        back,
        format_count(each.num_moves),
        format_bytes(each.bytes),
    )


def _alternatives(page: LightPage, found: Offloading) -> None:
    if not found.recomputable:
        return
    page.gap()
    page.text(phrase("offload.recompute"), "bold", indent=2)
    rows = [
        [
            plain(each.module, LONGEST) or phrase("offload.unnamed"),
            format_bytes(each.bytes),
            phrase("offload.tensors", count=each.num_tensors),
        ]
        for each in found.recomputable[:5]
    ]
    page.grid("wrr", rows, indent=4)


def _how(page: LightPage, found: Offloading) -> None:
    if not found.snippets:
        return
    page.gap()
    page.text(phrase("offload.how"), "bold", indent=2)
    for name, part, text in found.snippets:
        page.gap()
        page.text(phrase("offload.snippet", name=name, part=part), indent=4)
        lines = text.splitlines()
        for line in lines[:3] if len(lines) > 12 else lines:
            page.paste(plain(line), indent=6)
        if len(lines) > 12:
            page.text(phrase("offload.snippet.more"), "dim", indent=6)
