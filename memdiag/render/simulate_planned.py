"""A plan in a simulated run, for people: how low it is, how far it held in steps that it had not seen, what came beside it."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.allocator.planned.told import PlanTold, Served
from memdiag.render.lightpage import Cell, LightPage
from memdiag.units import format_bytes, format_count, plural


def planned(page: LightPage, name: str, found: PlanTold) -> None:
    """Adds what became of the plan of the run called ``name`` to a page."""
    page.gap()
    what = f"step {found.planned_step}, the one that needs most," if found.planned_step is not None else "the whole recording"
    ratio = found.plan_bytes / found.load_bytes if found.load_bytes else 1.0
    said = f"{name}: the plan of {what} takes {format_bytes(found.plan_bytes)}, {ratio:.4f} x what it has live at one moment; "
    page.text(f"{said}beside it the caching allocator held up to {format_bytes(found.fallback_bytes)}.", indent=2)
    rows: list[Sequence[Cell]] = []
    for label, served in ((f"step {found.next_step}, next to it", found.next), ("all steps but the planned one", found.unseen)):
        if served is not None and (label.startswith("step") or found.num_steps > 2):
            rows.append([label, format_count(served.num), *_shares(served)])
    if rows:
        head: list[Cell] = [(f"{name}, steps the plan has not seen", "bold"), "requests", "as planned", "in gaps", "beside the plan"]
        page.grid("lrrrr", [head, *rows])
        page.text(f"Shares of bytes. {_reasons(found.unseen)}Steps are known from {found.basis}.", "dim", indent=2)
    else:
        page.text("No other step is known to try the plan on: how well it would hold cannot be told.", "dim", indent=2)


def _shares(served: Served) -> list[str]:
    whole = served.num_bytes or 1
    beside = served.num_bytes - served.planned_bytes - served.gap_bytes
    return [f"{part / whole:.1%}" for part in (served.planned_bytes, served.gap_bytes, beside)]


def _reasons(served: Served | None) -> str:
    if served is None:
        return ""
    parts = [
        (served.num_unknown, "had nothing like it in the plan"),
        (served.num_too_large, "asked for more than was planned for"),
        (served.num_taken, "found the place taken"),
        (served.num_no_room, "found no memory for the plan"),
    ]
    said = "; ".join(f"{plural(num, 'request')} {why}" for num, why in parts if num)
    return f"Beside the plan: {said}. " if said else ""
