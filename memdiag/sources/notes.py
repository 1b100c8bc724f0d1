"""Notes on limits of a diagnosis that come from the file (codes MD9xx).

A source adds a note for each fact that its format, or this particular file, does not contain. MD901 to MD909 are about
the file itself, MD910 and higher about formats that contain less than a memory snapshot. The texts are in
``messages/notes.json``.
"""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.results.finding import Note
from memdiag.text import Phrase, joined, phrase


def of_format(code: str, details: Sequence[str] = ()) -> Note:
    """Returns the note ``code`` (MD910 to MD919); ``details`` are the facts of this file."""
    text = phrase(f"notes.format.{code}")
    return Note(code, phrase("notes.detailed", text=text, details=joined(details, "; ")) if details else text)


def on_device(device: int, text: str) -> Phrase:
    """Returns a detail about one device."""
    return phrase("notes.device", device=str(device), text=text)


class Notes:
    """Collects notes while a file is read: one note for each code, with all details."""

    def __init__(self) -> None:
        self._details: dict[str, list[str]] = {}

    def add(self, code: str, detail: str = "") -> None:
        """Adds the note ``code``; ``detail`` is a fact of this file."""
        details = self._details.setdefault(code, [])
        if detail and detail not in details:
            details.append(detail)

    def list(self) -> list[Note]:
        """Returns the notes, by code."""
        return [of_format(code, details) for code, details in sorted(self._details.items())]
