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
        destination: "host" or "disk".
        offload_phase: Phase in which most of these tensors are offloaded.
        reload_phase: Phase in which most of these tensors are reloaded, or "" if they are not reloaded.
        num_moves: Number of moves of these tensors over the whole trace.
        total_bytes: Bytes copied from the device, over the whole trace.
        exposed_us: Time that the program waits for the copies, or None if the trace has no times.
    """

    category: str
    name: str
    destination: str
    offload_phase: str
    reload_phase: str
    num_moves: int
    total_bytes: int
    exposed_us: int | None


@dataclass(frozen=True, slots=True)
class Recomputable:
    """Activations of one part of the model at the peak that recomputation would not retain.

    Attributes:
        module: The part of the model.
        bytes: Bytes of the activations.
        num_tensors: Number of the activations.
    """

    module: str
    bytes: int
    num_tensors: int


@dataclass(frozen=True, slots=True)
class Snippet:
    """A way to implement a plan today.

    Attributes:
        name: Name of the snippet.
        part: The part of the plan that it implements.
        text: The configuration or code.
    """

    name: str
    part: str
    text: str


@dataclass(frozen=True, slots=True)
class Hooked:
    """Effect of the saved-tensor hooks alone: they offload everything that their modules save, and reload it on use.

    Attributes:
        modules: Modules whose forward call the hooks surround.
        min_tensor_bytes: Smallest size of a tensor that is offloaded; smaller tensors stay on the device.
        offloaded_bytes_per_step: Bytes copied from the device per step, on average.
        peak_reserved_bytes: Reserved peak of the replay.
        peak_allocated_bytes: Allocated peak of the replay.
        peak_requested_bytes: Peak of requested bytes: without rounding, and what the allocator does not split.
    """

    modules: tuple[str, ...]
    min_tensor_bytes: int
    offloaded_bytes_per_step: int
    peak_reserved_bytes: int
    peak_allocated_bytes: int
    peak_requested_bytes: int


@dataclass(frozen=True, slots=True)
class Offloading:
    """An offloading plan and its effect. Bytes and times per step are means over the steps of the trace.

    Attributes:
        strategy: "automatic" or "forced".
        budget_bytes: Memory budget of the device, or None for no limit.
        fits: Whether the replay with the moves stays within the budget, and host and disk have room. None if it fits
            only up to the recorded failed allocation, so the rest is unknown.
        shortfall_bytes: Device memory that is missing if it does not fit; with that much more, the replay succeeds.
        sufficient_host_bytes: Host memory with which it would fit, or None if it fits or no amount helps.
        live_peak_before_bytes: Peak of live bytes without the moves.
        live_peak_after_bytes: Peak of live bytes with the moves.
        live_peak_lower_bound_bytes: Lower bound of the peak of live bytes: every idle tensor is offloaded and copies
            take no time.
        host_peak_bytes: Peak size of the pinned pool.
        host_used_bytes: Peak bytes in use in the pinned pool.
        disk_peak_bytes: Peak bytes on disk.
        host_budget_bytes: Budget for host memory.
        disk_budget_bytes: Budget for disk space.
        num_moves: Number of moves over the whole trace.
        offloaded_bytes_per_step: Bytes copied from the device per step.
        reloaded_bytes_per_step: Bytes copied to the device per step.
        hidden_us_per_step: Copy time per step that overlaps computation, or None if the trace has no times.
        exposed_us_per_step: Copy time per step that the program waits for, or None if the trace has no times.
        step_us: Recorded length of a step, or None if the trace has no times.
        predicted_step_us: Length of a step including the waits, or None if the trace has no times.
        link_speed: Assumed speed of copies to the host, in words.
        disk_speed: Assumed speed of copies to disk, in words.
        moved: Tensors to offload, most bytes first.
        recomputable: Tensors that could be recomputed instead of offloaded, most bytes first.
        saved_tensor_hooks: Effect of saved-tensor hooks alone, or None if no activations move or their modules have no
            names.
        snippets: How to implement the plan today.
        notes: Assumptions.
    """

    key: ClassVar[str] = "offload"

    strategy: str
    budget_bytes: int | None
    fits: bool | None
    shortfall_bytes: int
    sufficient_host_bytes: int | None
    live_peak_before_bytes: int
    live_peak_after_bytes: int
    live_peak_lower_bound_bytes: int
    host_peak_bytes: int
    host_used_bytes: int
    disk_peak_bytes: int
    host_budget_bytes: int
    disk_budget_bytes: int
    num_moves: int
    offloaded_bytes_per_step: int
    reloaded_bytes_per_step: int
    hidden_us_per_step: int | None
    exposed_us_per_step: int | None
    step_us: int | None
    predicted_step_us: int | None
    link_speed: str
    disk_speed: str
    moved: tuple[MovedTensors, ...]
    recomputable: tuple[Recomputable, ...]
    snippets: tuple[Snippet, ...]
    saved_tensor_hooks: Hooked | None
    notes: tuple[str, ...] = ()

    def rows(self, run: str) -> Iterator[DetailRow]:
        """Yields whether it fits, the moved tensors, the cost, and how to implement it."""
        yield title(phrase("offload.title", name=run, strategy=phrase(f"offload.strategy.{self.strategy}")))
        yield from table("lw", [_verdict(self)])
        if self.fits is False:
            yield paragraph(_why_not(self), indent=2)
        yield gap()
        left, before = format_bytes(self.live_peak_after_bytes), format_bytes(self.live_peak_before_bytes)
        rows = [
            ("live", phrase("offload.instead", now=left, before=before)),
            ("bound", phrase("offload.bound", bytes=format_bytes(self.live_peak_lower_bound_bytes))),
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
            (
                "moves",
                phrase(
                    "offload.moves",
                    away=format_bytes(self.offloaded_bytes_per_step),
                    back=format_bytes(self.reloaded_bytes_per_step),
                ),
            )
        )
        if self.hidden_us_per_step is not None and self.exposed_us_per_step is not None:
            rows.append(
                (
                    "copies",
                    phrase(
                        "offload.copies",
                        hidden=format_us(self.hidden_us_per_step),
                        exposed=format_us(self.exposed_us_per_step),
                    ),
                )
            )
        if self.step_us and self.predicted_step_us is not None:
            rows.append(
                (
                    "step",
                    phrase("offload.instead", now=format_us(self.predicted_step_us), before=format_us(self.step_us)),
                )
            )
        rows.append(("rates", joined((self.link_speed, self.disk_speed), "; ")))
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
    missing = phrase("offload.missing", bytes=format_bytes(found.shortfall_bytes)) if found.shortfall_bytes else ""
    return [
        (phrase("offload.fails"), "bold red"),
        (joined((phrase("offload.in", budget=budget), missing), "; "), "bold"),
    ]


def _why_not(found: Offloading) -> Phrase:
    """Returns why a plan does not fit, and what to try."""
    if found.budget_bytes is not None and found.live_peak_lower_bound_bytes > found.budget_bytes:
        return phrase("offload.why.bound")
    if found.host_peak_bytes > found.host_budget_bytes:
        return phrase(
            "offload.why.host", bytes=format_bytes(found.host_peak_bytes), allowed=format_bytes(found.host_budget_bytes)
        )
    if found.disk_peak_bytes > found.disk_budget_bytes:
        return phrase(
            "offload.why.disk", bytes=format_bytes(found.disk_peak_bytes), allowed=format_bytes(found.disk_budget_bytes)
        )
    if found.sufficient_host_bytes is not None:
        needed, allowed = format_bytes(found.sufficient_host_bytes), format_bytes(found.host_budget_bytes)
        return phrase("offload.why.more_host", bytes=needed, allowed=allowed)
    if found.budget_bytes is not None and found.live_peak_after_bytes <= found.budget_bytes:
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
    away, back = (
        vocabulary.name("phase", phase) if phase else "-" for phase in (each.offload_phase, each.reload_phase)
    )
    return (
        category,
        name,
        phrase(f"offload.place.{each.destination}"),
        away,
        back,
        format_count(each.num_moves),
        format_bytes(each.total_bytes),
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
    for snippet in found.snippets:
        yield gap()
        yield paragraph(phrase("offload.snippet", name=snippet.name, part=snippet.part), indent=4)
        lines = snippet.text.splitlines()
        for line in lines[:3] if len(lines) > 12 else lines:
            yield paste(plain(line), indent=6)
        if len(lines) > 12:
            yield paragraph(phrase("offload.snippet.more"), "dim", indent=6)
