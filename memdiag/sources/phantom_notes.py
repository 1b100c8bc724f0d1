"""What a recording from a device that is not there takes for granted, and where the program was steered by values that nobody computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memdiag.findings import Note
from memdiag.units import format_bytes, format_count, plural

_MOST = 12  # sentences, places, functions: who made the file may be a stranger
_MOST_LETTERS = 300


def phantom_notes(own: Mapping[str, Any]) -> list[Note]:
    """Returns the notes on the device that is not there, from the part of a file that is memdiag's own."""
    notes = [Note("MD923", "recorded on a device that is not there: sizes and order are real, times and results are not")]
    device = own.get("phantom_device")
    if not isinstance(device, dict):
        return notes
    if assumed := _texts(device.get("assumptions")):
        name = _text(device.get("device")) or "the device"
        notes.append(Note("MD926", f"taken for granted of {name}: {'; '.join(assumed)}"))
    if read := _read_backs(device.get("read_backs")):
        notes.append(Note("MD927", read + _values(device.get("values"))))
    if refused := _texts(device.get("refused")):
        notes.append(Note("MD928", f"called, and failed since it cannot be imitated: {', '.join(refused)}"))
    if computed := _computed(device.get("computed")):
        notes.append(Note("MD929", computed))
    if untimed := _untimed(device.get("timing")):
        notes.append(Note("MD930", untimed))
    return notes


def _untimed(given: Any) -> str:
    count = given.get("candidates") if isinstance(given, dict) else 0
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count < 1 << 60:
        return ""
    candidates = plural(count, "candidate")
    return (
        f"torch.compile was asked for the fastest kernels, and {candidates} could not be timed: the first was taken each time; "
        "the fastest on a device may ask for other memory"
    )


def _computed(given: Any) -> str:
    """Says how many operators were computed, and why others were not."""
    if not isinstance(given, dict):
        return ""
    counts = {key: given.get(key) for key in ("limit_bytes", "computed", "partly", "unknown", "large", "failed")}
    known = {key: count for key, count in counts.items() if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 60}
    if len(known) < len(counts):
        return ""
    partly = f", {format_count(known['partly'])} more for a part of their tensors" if known["partly"] else ""
    text = f"{plural(known['computed'], 'operator')} on tensors up to {format_bytes(known['limit_bytes'])} computed on the CPU{partly}"
    names = _texts(list(given["failures"])) if isinstance(given.get("failures"), dict) else []
    by_name = f" ({', '.join(names)})" if names else ""
    whys = [
        f"{format_count(known['unknown'])} read what is not known" if known["unknown"] else "",
        f"{format_count(known['large'])} had larger tensors" if known["large"] else "",
        f"{format_count(known['failed'])} could not be done there{by_name}" if known["failed"] else "",
    ]
    left = known["unknown"] + known["large"] + known["failed"]
    return text + (f"; {format_count(left)} were not: {', '.join(filter(None, whys))}" if left else "; none was left out")


def _read_backs(given: Any) -> str:
    count = given.get("count") if isinstance(given, dict) else 0
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count < 1 << 60:
        return ""
    listed = given.get("places")
    places = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    said = [f"{where} ({_times(entry.get('count'))})" for entry in places[:_MOST] if (where := _text(entry.get("where")))]
    where = f", first at {', '.join(said)}" if said else ""
    return f"the program read back {plural(count, 'value')} that a kernel would have computed{where}"


def _times(count: Any) -> str:
    return f"{format_count(count)} times" if isinstance(count, int) and 1 < count < 1 << 60 else "once"


def _values(given: Any) -> str:
    values = _text(given) or "zeros"
    return f"; these read as {values}: where they decide what it does next, it may have gone another way than on a device"


def _texts(given: Any) -> list[str]:
    return [text for entry in given[:_MOST] if (text := _text(entry))] if isinstance(given, list) else []


def _text(given: Any) -> str:
    return given[:_MOST_LETTERS] if isinstance(given, str) else ""
