"""What a recording from a device that is not there takes for granted, and where the program was steered by values that nobody computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memdiag.findings import Note
from memdiag.units import format_count, plural

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
    return notes


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
