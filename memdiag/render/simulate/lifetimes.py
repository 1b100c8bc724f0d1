"""Lifetime-segregated pools of a simulated run: contents of each pool, misfiled tensors, and the known facts on the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memdiag.render.support.lightpage import Cell, LightPage
from memdiag.results.lifetime_pools import LifetimePools, Misfiled
from memdiag.text import Phrase, joined, phrase
from memdiag.units import format_bytes, format_count

_NONE = "none"
_BASES = ("marks", "annotations", "annotations+stacks", "stacks", "periodicity")


def lifetimes(page: LightPage, name: str, found: LifetimePools) -> None:
    """Adds the pools of the run called ``name`` to a page."""
    page.gap()
    heads = (phrase(f"policies.head.{head}") for head in ("segments", "reserved", "used", "outlives"))
    rows: list[Sequence[Cell]] = [[(phrase("policies.pools", name=name), "bold"), *heads]]
    rows += [
        [
            pool.pool,
            format_count(pool.num_segments),
            *map(format_bytes, (pool.reserved_bytes, pool.used_bytes, pool.surviving_bytes)),
        ]
        for pool in found.pools
    ]
    page.grid("lrrrr", rows)
    share = found.thought_long_bytes / found.num_bytes if found.num_bytes else 0.0
    page.text(phrase("policies.long", share=f"{share:.0%}", bytes=format_bytes(found.thought_long_bytes)), indent=2)
    for kind, misfiled in (("long", found.thought_long_wrongly), ("short", found.thought_short_wrongly)):
        page.text(_misfiled(kind, misfiled), indent=2)
    hooks = phrase(f"policies.hooks.{found.hooks}") if found.hooks in {"layer", "stack"} else found.hooks
    page.text(phrase("policies.hooks", hooks=hooks, known=known_from(found.bases)), "dim", indent=2)


def known_from(bases: Mapping[str, str]) -> Phrase:
    """Returns what is known of the program and from which evidence, and what is not, as half a sentence."""
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
    """Returns on what evidence marks of a program rest."""
    return phrase(f"policies.basis.{basis}") if basis in _BASES else basis


def _misfiled(kind: str, found: Misfiled) -> Phrase:
    said = phrase(f"policies.misfiled.{kind}", count=found.num, bytes=format_bytes(found.num_bytes))
    return joined((said, phrase(f"policies.cost.{kind}", bytes=format_bytes(found.cost_bytes)) if found.num else ""))
