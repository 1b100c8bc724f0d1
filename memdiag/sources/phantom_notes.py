"""Notes on recordings from simulated devices: assumptions, and values that the program read but no kernel computed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memdiag.results.finding import Note
from memdiag.text import Phrase, joined, phrase
from memdiag.trace.recording import AssumedSizes
from memdiag.units import format_bytes

_MOST = 12  # limits on sentences, places and functions: the file may come from a stranger
_MOST_LETTERS = 300


def phantom_notes(own: Mapping[str, Any]) -> list[Note]:
    """Returns the notes on a simulated device, from the key ``memdiag`` of a file."""
    notes = [Note("MD923", phrase("notes.phantom"))]
    device = own.get("phantom_device")
    if not isinstance(device, dict):
        return notes
    if assumed := _texts(device.get("assumptions")):
        name = _text(device.get("device")) or phrase("notes.phantom.device")
        notes.append(
            Note(
                "MD926",
                phrase("notes.phantom.assumed", name=name, list=joined([_assumption(each) for each in assumed], "; ")),
            )
        )
    if num_reads := num_reads_in(own):
        notes.append(Note("MD927", _read_backs(num_reads, device["read_backs"], device.get("values"))))
    if sizes := assumed_sizes_in(own):
        notes.append(Note("MD932", _sizes(sizes, num_reads, _places(device["assumed_sizes"]))))
    if refused := _texts(device.get("refused")):
        notes.append(Note("MD928", phrase("notes.phantom.refused", names=", ".join(refused))))
    if computed := _computed(device.get("computed")):
        notes.append(Note("MD929", computed))
    if experts := _experts(device.get("experts")):
        notes.append(Note("MD931", experts))
    if untimed := _untimed(device.get("timing")):
        notes.append(Note("MD930", untimed))
    return notes


# Sentences of ``memdiag.phantom.profiles.Profile.assumptions``, as recordings contain them.
_ASSUMPTIONS = (
    (
        re.compile(r"(?P<name>.+?): (?P<total>[\d.,]+ \w+), of which (?P<context>[\d.,]+ \w+) is taken by the runtime"),
        "size",
    ),
    (re.compile(r"the part of the runtime is known to within (?P<error>[\d.,]+ \w+)"), "error"),
    (re.compile(r"(?P<name>\S+) was given on the command line"), "given"),
    (re.compile(r"(?P<name>\S+) is an estimate: (?P<why>.+)"), "estimate"),
)


def _assumption(said: str) -> str:
    """Returns an assumption as a phrase; an unknown sentence unchanged."""
    for pattern, key in _ASSUMPTIONS:
        if (match := pattern.fullmatch(said)) is not None:
            return phrase(f"notes.phantom.assumed.{key}", **match.groupdict())
    return said


def _untimed(given: Any) -> str:
    count = given.get("candidates") if isinstance(given, dict) else 0
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count < 1 << 60:
        return ""
    return phrase("notes.phantom.compile", count=count)


def _experts(given: Any) -> str:
    """Returns the assumed load of experts and where it was used; "" without such an assumption."""
    if not isinstance(given, dict) or not (load := _text(given.get("load"))):
        return ""
    if not (count := _number(given.get("count"))):
        return phrase("notes.phantom.experts.none", load=load)
    listed = given.get("places")
    places = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    named = [
        phrase(
            "notes.phantom.experts.place",
            where=where,
            each=_number(entry.get("per_token")),
            **{key: _number(entry.get(key)) for key in ("count", "tokens", "experts", "fewest", "most")},
        )
        for entry in places[:_MOST]
        if (where := _text(entry.get("where")))
    ]
    shown = phrase("notes.phantom.experts.places", places=joined(named, "; ")) if named else ""
    return phrase("notes.phantom.experts", load=load, count=count, places=shown)


def _number(given: Any) -> int:
    return given if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << 60 else 0


def _computed(given: Any) -> str:
    """Returns how many operators were computed, and why the others were not; "" if unknown."""
    if not isinstance(given, dict):
        return ""
    counts = {key: given.get(key) for key in ("limit_bytes", "computed", "partly", "unknown", "large", "failed")}
    known = {
        key: count
        for key, count in counts.items()
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 60
    }
    if len(known) < len(counts):
        return ""
    partly = phrase("notes.phantom.partly", count=known["partly"]) if known["partly"] else ""
    names = _texts(list(given["failures"])) if isinstance(given.get("failures"), dict) else []
    failed = phrase("notes.phantom.others.failed", count=known["failed"])
    if names:
        failed = phrase("notes.phantom.others.failed.names", count=known["failed"], names=", ".join(names))
    reasons = [
        phrase("notes.phantom.others.unknown", count=known["unknown"]) if known["unknown"] else "",
        phrase("notes.phantom.others.large", count=known["large"]) if known["large"] else "",
        failed if known["failed"] else "",
    ]
    left = known["unknown"] + known["large"] + known["failed"]
    others = (
        phrase("notes.phantom.others", count=left, reasons=joined(reasons, ", "))
        if left
        else phrase("notes.phantom.all")
    )
    limit = format_bytes(known["limit_bytes"])
    return phrase("notes.phantom.computed", count=known["computed"], limit=limit, partly=partly, others=others)


def _read_backs(count: int, given: Mapping[str, Any], values: Any) -> str:
    return phrase(
        "notes.phantom.read", count=count, places=_places(given), values=_text(values) or phrase("notes.phantom.zeros")
    )


def assumed_sizes_in(own: Mapping[str, Any]) -> AssumedSizes | None:
    """Returns the sizes that a simulated device assumed; None for none, or for invalid counts."""
    device = own.get("phantom_device")
    given = device.get("assumed_sizes") if isinstance(device, dict) else None
    if not isinstance(device, dict) or not isinstance(given, dict):
        return None
    count, fraction = _number(given.get("count")), given.get("fraction")
    if not count or not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
        return None
    place = next((where for where, _ in _known_places(given)), "")
    return AssumedSizes(count, float(fraction), place)


def num_reads_in(own: Mapping[str, Any]) -> int:
    """Returns how many values a program read that a simulated device did not compute."""
    device = own.get("phantom_device")
    given = device.get("read_backs") if isinstance(device, dict) else None
    return _number(given.get("count")) if isinstance(given, dict) else 0


def expert_load_in(own: Mapping[str, Any]) -> str:
    """Returns the load of experts that a simulated device assumed; "" for none."""
    device = own.get("phantom_device")
    given = device.get("experts") if isinstance(device, dict) else None
    return _text(given.get("load")) if isinstance(given, dict) else ""


def _sizes(found: AssumedSizes, num_reads: int, places: Phrase | str) -> Phrase:
    if found.fraction == 1:
        unless = phrase("notes.phantom.sizes.unless", count=num_reads) if num_reads else ""
        return phrase("notes.phantom.sizes.all", count=found.count, places=places, unless=unless)
    return phrase("notes.phantom.sizes", count=found.count, places=places, fraction=f"{found.fraction:g}")


def _places(given: Mapping[str, Any]) -> Phrase | str:
    """Returns the first places in the program at which something happened, and how often; "" if unknown."""
    named = [phrase("notes.phantom.read.place", where=where, count=count) for where, count in _known_places(given)]
    return phrase("notes.phantom.read.places", places=joined(named, ", ")) if named else ""


def _known_places(given: Mapping[str, Any]) -> list[tuple[str, int]]:
    listed = given.get("places")
    places = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return [(where, _times(entry.get("count"))) for entry in places[:_MOST] if (where := _text(entry.get("where")))]


def _times(count: Any) -> int:
    return count if isinstance(count, int) and 1 < count < 1 << 60 else 1


def _texts(given: Any) -> list[str]:
    return [text for entry in given[:_MOST] if (text := _text(entry))] if isinstance(given, list) else []


def _text(given: Any) -> str:
    return given[:_MOST_LETTERS] if isinstance(given, str) else ""
