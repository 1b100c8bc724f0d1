"""Facts that a trace and its run state about themselves, as comparable words.

They are versions, settings, options and environment.
"""

from __future__ import annotations

import json
from pathlib import Path

from memdiag.redaction import is_on
from memdiag.results.compare import FactDifference, Side
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.units import format_bytes

_LONGEST = 200  # characters of a value
_MOST_BYTES = 4 << 20  # of a manifest
_BEGINNING = {True: "from an empty allocator", False: "memory was in use already", None: ""}
_PLAIN = (str, int, float, bool)


def facts_of(trace: Trace, device: DeviceTrace) -> dict[str, str]:
    """Returns the facts that a trace states about itself, without missing ones."""
    capacity = device.capacity_bytes
    facts = {
        "backend": trace.backend or "",
        "torch": trace.torch_version or "",
        "format": trace.format,
        "device memory": "" if capacity is None else format_bytes(capacity),
        "phantom device": "yes" if trace.phantom else "no",
        "recorded": _BEGINNING[trace.complete_from_start],
        "expandable segments": "yes" if device.regions.expandable.any() or device.segments.expandable.any() else "no",
    }
    return {name: value for name, value in facts.items() if value}


def settings_of(trace: Trace) -> dict[str, str]:
    """Returns allocator settings as recorded in the file."""
    return {name: _words(value) for name, value in trace.settings.items()}


def _words(value: object) -> str:
    if isinstance(value, str):
        return value[:_LONGEST] or "not set"
    try:
        return json.dumps(value, sort_keys=True, default=str)[:_LONGEST]
    except (RecursionError, TypeError, ValueError):
        return f"({type(value).__name__})"


def run_of(trace: Path) -> dict[str, str]:
    """Returns options, environment and versions of a run, from the manifest next to its trace; empty if there is none.

    With redaction, only the versions are returned.
    """
    path = trace.parent / "manifest.json"
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}
        manifest = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not _is_of_a_run(manifest):
        return {}
    found: dict[str, str] = {}
    sections = (
        (("versions", "version of "),)
        if is_on()
        else (("versions", "version of "), ("environment", ""), ("phantom", "phantom "))
    )
    for section, lead in sections:
        values = manifest.get(section)
        if isinstance(values, dict):
            plain = {
                name.removesuffix("_version"): value
                for name, value in values.items()
                if isinstance(value, _PLAIN) and name != "torch_version"
            }
            found |= {f"{lead}{name}": _words(value) for name, value in plain.items()}
    argv = manifest.get("argv")
    if not is_on() and isinstance(argv, list) and all(isinstance(word, str) for word in argv):
        found |= options_of(argv)
    return found


def _is_of_a_run(manifest: object) -> bool:
    """Returns whether ``memdiag record`` wrote it: many tools have a manifest.json."""
    versions = manifest.get("versions") if isinstance(manifest, dict) else None
    return isinstance(versions, dict) and isinstance(versions.get("memdiag"), str)


def options_of(argv: list[str]) -> dict[str, str]:
    """Returns the options of a command: ``--batch 4`` and ``--batch=4`` as ``--batch``: ``4``.

    A flag has the value "given".
    """
    found: dict[str, str] = {}
    name = ""
    for word in argv:
        if word.startswith("-") and len(word) > 1 and not _is_number(word):
            name, _, value = word.partition("=")
            found[name] = value[:_LONGEST] or "given"
        elif name:
            found[name] = word[:_LONGEST] if found[name] == "given" else f"{found[name]} {word}"[:_LONGEST]
    return found


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def differences_of(sides: tuple[Side, ...]) -> tuple[FactDifference, ...]:
    """Returns the facts, settings and options that differ, in that order.

    Values missing from a file are not differences. An option or variable that only one of two known commands has is a
    difference.
    """
    rows = []
    for facts_by_side in (
        [side.facts for side in sides],
        [side.settings for side in sides],
        [side.run for side in sides],
    ):
        are_runs = facts_by_side[0] is sides[0].run
        for name in dict.fromkeys(name for values in facts_by_side for name in values):
            values = tuple(each.get(name) for each in facts_by_side)
            known = {
                value
                for each, value in zip(facts_by_side, values, strict=True)
                if value is not None or (are_runs and each)
            }
            is_set = name.endswith("ALLOC_CONF") and None in values and known - {"not set"}
            if len(known) > 1 or is_set:
                rows.append(FactDifference(name, values))
    return tuple(rows)
