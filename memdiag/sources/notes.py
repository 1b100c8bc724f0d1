"""What limits a diagnosis because of the file it is made from: codes MD9xx and their meaning.

A source adds a note for what its format, or this one file, cannot know. MD901 to MD909 are about the file itself; MD910 and on
about formats that carry less than a memory snapshot does.
"""

from __future__ import annotations

from memdiag.findings import Note

NOTES: dict[str, str] = {
    "MD910": "places in memory are not known: no fragmentation, no segments, nothing about which tensor pins what",
    "MD911": "call stacks are not known: tensors cannot be traced to lines of code",
    "MD912": "frees are not recorded, or not all of them: tensors may look alive that are gone",
    "MD913": "bytes held from the driver are not known, or not by segment: reserved or its parts are missing",
    "MD914": "sizes are those of blocks after rounding: what was asked for is not known",
    "MD915": "tensors have no identity in this file: curves are exact; of several tensors of a size it is a guess which one was freed",
    "MD916": "some rows of the file could not be used",
    "MD917": "the file covers a window: what was there before it is known in part or not at all",
    "MD918": "the file also counts memory outside of the framework's allocator, which is not part of the curves",
    "MD919": "a device number in this report is memdiag's own: the file has none, or uses it twice",
}


class Notes:
    """Collects notes while a file is read: one a code, with all that was found."""

    def __init__(self) -> None:
        self._details: dict[str, list[str]] = {}

    def add(self, code: str, detail: str = "") -> None:
        """Adds the note ``code``; ``detail`` says what it means for this file."""
        details = self._details.setdefault(code, [])
        if detail and detail not in details:
            details.append(detail)

    def list(self) -> list[Note]:
        """Returns the notes, by code."""
        notes = []
        for code, details in sorted(self._details.items()):
            found = f" ({'; '.join(details)})" if details else ""
            notes.append(Note(code, NOTES[code] + found))
        return notes
