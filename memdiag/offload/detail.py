"""The result of moving tensors to the host or disk in a simulated run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from memdiag import vocabulary
from memdiag.results.detail import Cell, DetailRow, gap, paragraph, paste, table, title
from memdiag.text import Phrase, joined, phrase, plain, sentence
from memdiag.units import format_bytes, format_count, format_us

_LISTED = 8
LONGEST = 60


@dataclass(frozen=True, slots=True)
class MovedTensors:
    """A group of similar tensors that are offloaded.

    Attributes:
        category: As in CATEGORIES; "activation" for tensors that forward saves for backward.
        name: Their name with each number replaced by a star, or their line of code if they have none.
        place: "host" or "disk".
        away_in, back_in: Phase in which most of them are offloaded, and in which they are reloaded ("" if they are
            not).
        num_moves: Number of moves over the whole trace.
        bytes: Bytes copied from the device, over the whole trace.
        exposed_us: Time that the program waits for the copies.
    """

    category: str
    name: str
    place: str
    away_in: str
    back_in: str
    num_moves: int
    bytes: int
    exposed_us: int | None


@dataclass(frozen=True, slots=True)
class Recomputable:
    """Activations of one part of the model at the peak that recomputation would not retain."""

    module: str
    bytes: int
    num_tensors: int


@dataclass(frozen=True, slots=True)
class Hooked:
    """Effect of the saved-tensor hooks alone: they offload everything that their modules save, and reload it on use.

    Attributes:
        modules: Modules whose forward call the hooks surround.
        smallest_bytes: Smaller tensors stay on the device.
        bytes_a_step: Bytes copied from the device per step, on average.
        peak_reserved_bytes, peak_allocated_bytes: Device peaks from the replay.
    """

    modules: tuple[str, ...]
    smallest_bytes: int
    bytes_a_step: int
    peak_reserved_bytes: int
    peak_allocated_bytes: int


@dataclass(frozen=True, slots=True)
class Offloading:
    """An offloading plan and its effect. Bytes and times per step are means over the steps of the trace.

    Attributes:
        strategy: "automatic" or "forced".
        budget_bytes: Memory budget of the device, or None for no limit.
        fits: Whether the replay with the moves stays within the budget, and host and disk have room. None if it fits
            only up to the recorded failed allocation, so the rest is unknown.
        missing_bytes: Device memory that is missing if it does not fit; with that much more, the replay succeeds.
        fits_with_host_bytes: Host memory with which it would fit, or None if it fits or no amount helps.
        load_peak_bytes, load_left_bytes: Peak of live bytes without and with the moves.
        bound_bytes: Lower bound of the peak of live bytes: every idle tensor is offloaded and copies take no time.
        host_peak_bytes: Peak size of the pinned pool; at most ``host_used_bytes`` of it are in use.
        disk_peak_bytes: Peak bytes on disk.
        host_budget_bytes, disk_budget_bytes: Budgets for host memory and disk.
        num_moves: Number of moves over the whole trace.
        bytes_away, bytes_back: Bytes copied from the device and to the device, per step.
        hidden_us, exposed_us: Copy time per step that overlaps computation, and that the program waits for; None if the
            trace has no times.
        step_us, new_step_us: Length of a step as recorded, and including the waits; None if the trace has no times.
        link, disk: Assumed copy speeds, in words.
        moved: Tensors to offload, most bytes first.
        recomputable: Tensors that could be recomputed instead of offloaded, most bytes first.
        hooked: Effect of saved-tensor hooks alone, or None if no activations move or their modules have no names.
        snippets: How to implement the plan today: (name, part of the plan it implements, text).
        notes: Assumptions.
    """

    key: ClassVar[str] = "offload"

    strategy: str
    budget_bytes: int | None
    fits: bool | None
    missing_bytes: int
    fits_with_host_bytes: int | None
    load_peak_bytes: int
    load_left_bytes: int
    bound_bytes: int
    host_peak_bytes: int
    host_used_bytes: int
    disk_peak_bytes: int
    host_budget_bytes: int
    disk_budget_bytes: int
    num_moves: int
    bytes_away: int
    bytes_back: int
    hidden_us: int | None
    exposed_us: int | None
    step_us: int | None
    new_step_us: int | None
    link: str
    disk: str
    moved: tuple[MovedTensors, ...]
    recomputable: tuple[Recomputable, ...]
    snippets: tuple[tuple[str, str, str], ...]
    hooked: Hooked | None
    notes: tuple[str, ...] = ()

    def rows(self, run: str) -> Iterator[DetailRow]:
        """Yields whether it fits, the moved tensors, the cost, and how to implement it."""
        yield title(phrase("offload.title", name=run, strategy=phrase(f"offload.strategy.{self.strategy}")))
        yield from table("lw", [_verdict(self)])
        if self.fits is False:
            yield paragraph(_why_not(self), indent=2)
        yield gap()
        left, before = format_bytes(self.load_left_bytes), format_bytes(self.load_peak_bytes)
        rows = [
            ("live", phrase("offload.instead", now=left, before=before)),
            ("bound", phrase("offload.bound", bytes=format_bytes(self.bound_bytes))),
            (
                "host",
                phrase(
                    "offload.host", held=format_bytes(self.host_peak_bytes), used=format_bytes(self.host_used_bytes)
                ),
            ),
        ]
        if self.disk_peak_bytes:
            rows.append(("disk", joined((format_bytes(self.disk_peak_bytes),))))
        rows.append(
            ("moves", phrase("offload.moves", away=format_bytes(self.bytes_away), back=format_bytes(self.bytes_back)))
        )
        if self.hidden_us is not None and self.exposed_us is not None:
            rows.append(
                (
                    "copies",
                    phrase("offload.copies", hidden=format_us(self.hidden_us), exposed=format_us(self.exposed_us)),
                )
            )
        if self.step_us and self.new_step_us is not None:
            rows.append(
                ("step", phrase("offload.instead", now=format_us(self.new_step_us), before=format_us(self.step_us)))
            )
        rows.append(("rates", joined((self.link, self.disk), "; ")))
        yield from table("lw", [[(phrase(f"offload.row.{what}"), "dim"), said] for what, said in rows])
        yield from _moves(self)
        for note in self.notes:
            yield paragraph(sentence(note), "dim", indent=2)
        yield from _alternatives(self)
        yield from _how(self)


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


def _moves(found: Offloading) -> Iterator[DetailRow]:
    yield gap()
    if not found.moved:
        yield paragraph(phrase("offload.nothing"), indent=2)
        return
    heads = [phrase(f"offload.head.{head}") for head in ("what", "to", "away", "back", "times", "copied")]
    rows: list[list[Cell]] = [[(text, "bold") for text in (heads[0], "", *heads[1:])]]
    rows += [list(_cells(each)) for each in found.moved[:_LISTED]]
    yield from table("lwlllrr", rows)
    left = len(found.moved) - _LISTED
    if left > 0:
        yield paragraph(phrase("offload.others", count=left), "dim", indent=2)


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


def _alternatives(found: Offloading) -> Iterator[DetailRow]:
    if not found.recomputable:
        return
    yield gap()
    yield paragraph(phrase("offload.recompute"), "bold", indent=2)
    rows = [
        [
            plain(each.module, LONGEST) or phrase("offload.unnamed"),
            format_bytes(each.bytes),
            phrase("offload.tensors", count=each.num_tensors),
        ]
        for each in found.recomputable[:5]
    ]
    yield from table("wrr", rows, indent=4)


def _how(found: Offloading) -> Iterator[DetailRow]:
    if not found.snippets:
        return
    yield gap()
    yield paragraph(phrase("offload.how"), "bold", indent=2)
    for name, part, text in found.snippets:
        yield gap()
        yield paragraph(phrase("offload.snippet", name=name, part=part), indent=4)
        lines = text.splitlines()
        for line in lines[:3] if len(lines) > 12 else lines:
            yield paste(plain(line), indent=6)
        if len(lines) > 12:
            yield paragraph(phrase("offload.snippet.more"), "dim", indent=6)
