"""Result of a placement plan: how well it fitted unseen steps, and the memory allocated outside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from memdiag.allocator.policies.evidence import basis_name
from memdiag.results.detail import Cell, DetailRow, gap, paragraph, table
from memdiag.text import Phrase, joined, phrase
from memdiag.units import format_bytes, format_count


@dataclass(frozen=True, slots=True)
class Served:
    """Outcome of requests of the default pool; bytes are rounded up to 512.

    Attributes:
        num_requests: Number of requests.
        requested_bytes: Bytes of all requests.
        num_planned: Requests that got a planned slot of at least their size.
        planned_bytes: Bytes of those requests.
        num_in_gaps: Requests without a slot that got space that the plan leaves free at that moment.
        gap_bytes: Bytes of those requests.
        num_unknown: Requests served by the caching allocator because the plan has no similar request nearby.
        num_too_large: Requests served by the caching allocator because they exceed their slot.
        num_taken: Requests served by the caching allocator because their slot was in use.
        num_no_room: Requests served by the caching allocator because there was no memory for the plan.
    """

    num_requests: int
    requested_bytes: int
    num_planned: int
    planned_bytes: int
    num_in_gaps: int
    gap_bytes: int
    num_unknown: int
    num_too_large: int
    num_taken: int
    num_no_room: int


@dataclass(frozen=True, slots=True)
class PlanDetail:
    """Outcome of a placement plan.

    Attributes:
        basis: How the steps were identified.
        num_steps: Number of steps.
        planned_step: Number of the planned step, or None if no steps are known and the whole recording was planned.
        height_bytes: Bytes that the plan needs.
        live_peak_bytes: Peak of live bytes in the plan, the lower bound of any plan.
        run_live_peak_bytes: Peak of live bytes of the whole run, the lower bound of any allocator.
        next_step: Number of the next recorded step (else the previous one), which the plan has not seen; None if there
            is none.
        next_step_requests: Outcome of the requests of the next step.
        unseen_requests: Outcome of the requests of all steps that the plan has not seen.
        arena_bytes: Peak bytes reserved for the plan.
        fallback_bytes: Peak bytes reserved by the caching allocator for all other requests.
    """

    key: ClassVar[str] = "planned"

    basis: str
    num_steps: int
    planned_step: int | None
    height_bytes: int
    live_peak_bytes: int
    run_live_peak_bytes: int
    next_step: int | None
    next_step_requests: Served | None
    unseen_requests: Served | None
    arena_bytes: int
    fallback_bytes: int

    def rows(self, run: str) -> Iterator[DetailRow]:
        """Yields the height of the plan, its success in unseen steps, and the memory in addition to the plan."""
        yield gap()
        step = self.planned_step
        ratio = self.height_bytes / self.live_peak_bytes if self.live_peak_bytes else 1.0
        what = phrase("policies.plan.step", step=str(step)) if step is not None else phrase("policies.plan.whole")
        sizes = {
            "bytes": format_bytes(self.height_bytes),
            "ratio": f"{ratio:.4f}",
            "beside": format_bytes(self.fallback_bytes),
        }
        yield paragraph(phrase("policies.plan", name=run, what=what, **sizes), indent=2)
        rows: list[Sequence[Cell]] = []
        if self.next_step_requests is not None:
            rows.append(_row(phrase("policies.plan.next", step=str(self.next_step)), self.next_step_requests))
        if self.unseen_requests is not None and self.num_steps > 2:
            rows.append(_row(phrase("policies.plan.others"), self.unseen_requests))
        if rows:
            heads = (phrase(f"policies.plan.head.{head}") for head in ("requests", "planned", "gaps", "beside"))
            yield from table("lrrrr", [[(phrase("policies.plan.unseen", name=run), "bold"), *heads], *rows])
            parts = (
                phrase("policies.plan.shares"),
                _reasons(self.unseen_requests),
                phrase("policies.plan.steps", basis=basis_name(self.basis)),
            )
            yield paragraph(joined(parts), "dim", indent=2)
        else:
            yield paragraph(phrase("policies.plan.untried"), "dim", indent=2)


def _row(label: str, served: Served) -> list[Cell]:
    whole = served.requested_bytes or 1
    beside = served.requested_bytes - served.planned_bytes - served.gap_bytes
    return [
        label,
        format_count(served.num_requests),
        *(f"{part / whole:.1%}" for part in (served.planned_bytes, served.gap_bytes, beside)),
    ]


def _reasons(served: Served | None) -> Phrase | str:
    if served is None:
        return ""
    counts = {
        "unknown": served.num_unknown,
        "large": served.num_too_large,
        "taken": served.num_taken,
        "room": served.num_no_room,
    }
    said = joined([phrase(f"policies.plan.beside.{why}", count=count) for why, count in counts.items() if count], "; ")
    return phrase("policies.plan.beside", reasons=said) if said else ""
