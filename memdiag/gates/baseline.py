"""The baseline: a small JSON file to commit with the code, with the metrics and call sites of known good runs.

Its content does not depend on when or where it was written: paths are truncated, and the same runs give the same file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.gates.metrics import METRICS, in_words
from memdiag.output_file import write_whole
from memdiag.results.check import Number
from memdiag.results.compare import Amount, CodePlace, SiteHeld
from memdiag.text import phrase
from memdiag.version import __version__

SCHEMA_VERSION = 1
MOST_SITES = 40
_MOST_BYTES = 64 << 20
_PARTS = 4  # retained components of a path: enough to find a file again, without a home directory


@dataclass(frozen=True)
class BaselineEntry:
    """The baseline entry of one trace.

    Attributes:
        metrics: Known metrics.
        sites: Call sites that hold memory at the peak, most first, or None if unknown.
        facts: Facts that the trace states about itself.
    """

    metrics: Mapping[str, Number]
    sites: tuple[SiteHeld, ...] | None
    facts: Mapping[str, str]


def read_baseline(path: Path) -> dict[str, BaselineEntry]:
    """Returns the entries of a baseline by their keys.

    Raises:
        MemdiagError: The file is missing, unreadable, or not a baseline.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise MemdiagError(
            phrase("errors.baseline-missing", path=str(path)), phrase("errors.baseline-missing.hint")
        ) from None
    except OSError as error:
        raise MemdiagError(
            phrase("errors.unreadable", path=str(path), value=str(error.strerror or error)), phrase("errors.path-mode")
        ) from None
    try:
        stored = json.loads(content) if len(content) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, dict) or not isinstance(stored.get("traces"), dict):
        raise MemdiagError(phrase("errors.no-baseline", path=str(path)), phrase("check.baseline.hint"))
    if stored.get("schema_version") != SCHEMA_VERSION:
        raise MemdiagError(
            phrase("errors.baseline-version", path=str(path), value=str(stored.get("memdiag_version"))),
            phrase("check.baseline.hint"),
        )
    try:
        return {str(key): entry_from(entry) for key, entry in stored["traces"].items()}
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise MemdiagError(phrase("errors.baseline-damaged", path=str(path)), phrase("check.baseline.hint")) from None


def entry_from(stored: Mapping[str, Any]) -> BaselineEntry:
    """Returns an entry of the file; a malformed one raises KeyError, TypeError or ValueError."""
    sites = stored["sites"]
    return BaselineEntry(
        metrics={str(name): _number(value) for name, value in stored["metrics"].items()},
        sites=None if sites is None else tuple(_held(site) for site in sites),
        facts={str(name): str(value) for name, value in stored["facts"].items()},
    )


def _number(value: object) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError("a metric is a number")
    return value


def _held(stored: Mapping[str, Any]) -> SiteHeld:
    place = CodePlace(
        str(stored["label"]), str(stored["path"] or ""), int(stored["line"] or 0), str(stored["function"] or "")
    )
    return SiteHeld(place, Amount(int(stored["bytes"]), int(stored["num_tensors"]), str(stored["category"] or "")))


def entry_of(
    metrics: Mapping[str, Number | None], sites: Sequence[SiteHeld] | None, facts: Mapping[str, str]
) -> BaselineEntry:
    """Returns the baseline entry of a trace."""
    return BaselineEntry(
        metrics={name: value for name in METRICS if (value := metrics.get(name)) is not None},
        sites=None if sites is None else tuple(_kept(held) for held in sites[:MOST_SITES]),
        facts=dict(facts),
    )


def _kept(held: SiteHeld) -> SiteHeld:
    """Returns the retained facts of a call site."""
    place, amount = held.place, held.amount
    path = "/".join(place.path.replace("\\", "/").split("/")[-_PARTS:])
    return SiteHeld(
        CodePlace(place.label, path, place.line, place.function),
        Amount(amount.bytes, amount.num_tensors, amount.category),
    )


def write_baseline(path: Path, entries: Mapping[str, BaselineEntry]) -> None:
    """Atomically replaces a baseline; the same entries give the same bytes.

    Raises:
        MemdiagError: It cannot be written.
    """
    stored = {
        "schema_version": SCHEMA_VERSION,
        "memdiag_version": __version__,
        "traces": {key: stored_form(entries[key]) for key in sorted(entries)},
    }
    write_whole(path, json.dumps(stored, indent=1, allow_nan=False) + "\n")


def stored_form(entry: BaselineEntry) -> dict[str, Any]:
    """Returns an entry in the format of the file."""
    return {
        "facts": dict(entry.facts),
        "metrics": dict(entry.metrics),
        "sites": None
        if entry.sites is None
        else [
            {
                "label": held.place.label,
                "path": held.place.path or None,
                "line": held.place.line or None,
                "function": held.place.function or None,
                "bytes": held.amount.bytes,
                "num_tensors": held.amount.num_tensors,
                "category": held.amount.category or None,
            }
            for held in entry.sites
        ],
    }


def changes_of(before: Mapping[str, BaselineEntry], after: Mapping[str, BaselineEntry]) -> tuple[str, ...]:
    """Returns the differences between two baselines, one line each."""
    lines: list[str] = []
    for key in sorted(before.keys() | after.keys()):
        if key not in before or key not in after:
            lines.append(phrase("check.change.new" if key in after else "check.change.removed", key=key))
            continue
        old, new = before[key].metrics, after[key].metrics
        for name, metric in METRICS.items():
            was, now = old.get(name), new.get(name)
            if was == now:
                continue
            words = [
                in_words(value, metric.unit) if value is not None else phrase("check.change.unknown")
                for value in (was, now)
            ]
            share = f" ({now / was - 1:+.1%})" if was and now is not None else ""
            lines.append(f"{key}: {name} {words[0]} → {words[1]}{share}")
        if before[key].sites != after[key].sites and old == new:
            lines.append(phrase("check.change.places", key=key))
    return tuple(lines)
