"""A comparison of traces, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape, ShapeKey
from memdiag.results.compare import (
    Amount,
    CodePlace,
    ComparedFinding,
    Comparison,
    Curves,
    Fate,
    FindingRow,
    NameRow,
    Side,
    SiteRow,
)
from memdiag.results.report import Fragmentation

if TYPE_CHECKING:
    from collections.abc import Callable

_KINDS = {
    "reserved": "Bytes reserved at the compared moment; null: unknown.",
    "active": "Bytes allocated, or freed but still waiting for a stream; null: unknown.",
    "allocated": "Bytes allocated to tensors; null: unknown.",
    "requested": "Bytes that live tensors requested; null: unknown.",
}
_PARTS = tuple(f"{name}_bytes" for name in ("rounding", "pending", "stranded", "foreign", "cache"))


def _differences(of: Callable[[Amount], float | None]) -> Callable[[SiteRow | NameRow], list[Any]]:
    """Returns a function that subtracts the first trace's amount from that of each other trace."""

    def values(row: SiteRow | NameRow) -> list[Any]:
        first, *others = (None if amount is None else of(amount) for amount in row.amounts)
        return [None if first is None or each is None else round(each - first, 4) for each in others]

    return values


def _usage(name: str) -> ShapeKey:
    return ShapeKey(f"{name}_bytes", lambda side: getattr(side.usage, f"{name}_bytes"), int | None, _KINDS[name])


def _curve(name: str) -> ShapeKey:
    def values(curves: Curves) -> list[list[int | None]]:
        return [[value if value >= 0 else None for value in curve] for curve in getattr(curves, name)]

    meaning = (
        f"For each trace the highest {name} bytes in each of equal parts of the axis; null: unknown, or outside the "
        "trace."
    )
    return ShapeKey(f"{name}_bytes", values, list[list[int | None]], meaning)


_AMOUNTS: tuple[str | ShapeKey, ...] = (
    "amounts",
    ShapeKey(
        "delta_bytes",
        _differences(lambda amount: amount.bytes),
        list[int | None],
        "Bytes of each other trace minus bytes of the first; null: unknown.",
    ),
    ShapeKey(
        "delta_num_tensors",
        _differences(lambda amount: amount.num_tensors),
        list[int | None],
        "Number of tensors of each other trace minus that of the first; null: unknown.",
    ),
    ShapeKey(
        "delta_mean_lifetime",
        _differences(lambda amount: amount.mean_lifetime),
        list[float | None],
        "Mean lifetime of each other trace minus that of the first, in lifetime_unit; null: unknown.",
    ),
)

LAYOUT = JsonLayout(
    name="compare",
    title="memdiag compare --json",
    meaning="Two or more traces compared. Lists with an entry for each trace have the order of `traces`.",
    version=2,
    root=Comparison,
    shapes=(
        Shape(
            Comparison,
            (
                "is_same",
                "at",
                "verdicts",
                ShapeKey(
                    "traces",
                    lambda report: report.sides,
                    list[Side],
                    "The traces; the others are compared with the first.",
                ),
                "lifetime_unit",
                ShapeKey(
                    "by_site",
                    lambda report: report.sites,
                    list[SiteRow] | None,
                    "Memory by call site, the largest difference first; null: fewer than two traces have call stacks.",
                ),
                ShapeKey(
                    "by_name",
                    lambda report: report.names,
                    list[NameRow] | None,
                    "Memory by tensor name; null: fewer than two traces have names.",
                ),
                "differences",
                "findings",
                ShapeKey(
                    "timeline",
                    lambda report: report.curves,
                    Curves | None,
                    "Curves on one axis; null: fewer than two traces have any.",
                ),
                "notes",
            ),
        ),
        Shape(
            Side,
            (
                "letter",
                "path",
                "device",
                "at_event",
                "moment",
                "num_steps",
                *map(_usage, _KINDS),
                ShapeKey(
                    "peak_reserved_bytes",
                    lambda side: side.peak.reserved_bytes,
                    int | None,
                    "Reserved peak; null: unknown.",
                ),
                ShapeKey(
                    "peak_allocated_bytes",
                    lambda side: side.peak_allocated.allocated_bytes,
                    int | None,
                    "Allocated peak; null: unknown.",
                ),
                ShapeKey(
                    "fragmentation",
                    lambda side: side.split,
                    Fragmentation,
                    "What reserved - requested bytes consist of.",
                ),
                ShapeKey(
                    "reference_request_bytes",
                    lambda side: side.split.reference_request_bytes,
                    int | None,
                    "Size of the request that decides which free blocks are too small; null: unknown.",
                ),
                "counts",
                "facts",
                "settings",
                "run",
            ),
        ),
        Shape(Fragmentation, _PARTS),
        Shape(Amount, null_if_empty=frozenset({"category", "lifetime"})),
        Shape(
            SiteRow,
            (
                "label",
                "tensor_names",
                "places",
                "matched",
                *_AMOUNTS,
            ),
        ),
        Shape(NameRow, ("name", *_AMOUNTS), null_if_empty=frozenset({"name"})),
        Shape(CodePlace, null_if_empty=frozenset({"path", "line", "function"})),
        Shape(ComparedFinding, ("severity", "title")),
        Shape(
            FindingRow,
            (
                "code",
                "found",
                ShapeKey(
                    "change",
                    lambda row: [row.fate(number) for number in range(1, len(row.found))],
                    list[Fate],
                    "How the finding changed in each other trace, compared with the first.",
                ),
            ),
        ),
        Shape(Curves, ("aligned_by", "start", "end", "first_steps", _curve("reserved"), _curve("allocated"))),
    ),
)


def render(report: Comparison, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the comparison as one JSON object, indented, with a newline at its end. ``look`` is not used."""
    return LAYOUT.text(report)


def as_dict(report: Comparison) -> dict[str, Any]:
    """Returns the comparison as ``memdiag compare --json`` shows it."""
    return LAYOUT.as_dict(report)
