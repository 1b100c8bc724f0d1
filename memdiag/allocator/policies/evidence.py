"""Evidence for the activity of a program (set-up, forward calls, steps, optimizer), in words."""

from __future__ import annotations

from collections.abc import Mapping

from memdiag.text import Phrase, joined, phrase

_NONE = "none"
_BASES = ("marks", "annotations", "annotations+stacks", "stacks", "periodicity")


def known_from(bases: Mapping[str, str]) -> Phrase:
    """Returns a clause with the known facts about the program, their evidence, and the unknown facts."""
    known = [
        phrase("policies.from", what=_what(what), basis=basis_name(basis))
        for what, basis in bases.items()
        if basis != _NONE
    ]
    unknown = joined([_what(what) for what, basis in bases.items() if basis == _NONE], ", ")
    if not known:
        return phrase("policies.unknown.all")
    return joined([joined(known, ", "), phrase("policies.unknown", what=unknown) if unknown else ""], "; ")


def _what(what: str) -> Phrase:
    return phrase(f"policies.what.{what}")


def basis_name(basis: str) -> Phrase | str:
    """Returns the name of the evidence for marks of a program."""
    return phrase(f"policies.basis.{basis}") if basis in _BASES else basis
