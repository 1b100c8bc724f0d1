"""A plan in a simulated run, for people: how low it is, how far it held in steps that it had not seen, what came beside it."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.render.simulate.lifetimes import basis_name
from memdiag.render.support.lightpage import Cell, LightPage
from memdiag.results.planned import PlanTold, Served
from memdiag.text import Phrase, joined, phrase
from memdiag.units import format_bytes, format_count


def planned(page: LightPage, name: str, found: PlanTold) -> None:
    """Adds what became of the plan of the run called ``name`` to a page."""
    page.gap()
    step = found.planned_step
    ratio = found.plan_bytes / found.load_bytes if found.load_bytes else 1.0
    what = phrase("policies.plan.step", step=str(step)) if step is not None else phrase("policies.plan.whole")
    sizes = {
        "bytes": format_bytes(found.plan_bytes),
        "ratio": f"{ratio:.4f}",
        "beside": format_bytes(found.fallback_bytes),
    }
    page.text(phrase("policies.plan", name=name, what=what, **sizes), indent=2)
    rows: list[Sequence[Cell]] = []
    if found.next is not None:
        rows.append(_row(phrase("policies.plan.next", step=str(found.next_step)), found.next))
    if found.unseen is not None and found.num_steps > 2:
        rows.append(_row(phrase("policies.plan.others"), found.unseen))
    if rows:
        heads = (phrase(f"policies.plan.head.{head}") for head in ("requests", "planned", "gaps", "beside"))
        page.grid("lrrrr", [[(phrase("policies.plan.unseen", name=name), "bold"), *heads], *rows])
        parts = (
            phrase("policies.plan.shares"),
            _reasons(found.unseen),
            phrase("policies.plan.steps", basis=basis_name(found.basis)),
        )
        page.text(joined(parts), "dim", indent=2)
    else:
        page.text(phrase("policies.plan.untried"), "dim", indent=2)


def _row(label: str, served: Served) -> list[Cell]:
    whole = served.num_bytes or 1
    beside = served.num_bytes - served.planned_bytes - served.gap_bytes
    return [
        label,
        format_count(served.num),
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
