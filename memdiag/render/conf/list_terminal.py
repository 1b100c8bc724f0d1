"""The table of all allocator settings for people, in a terminal (``memdiag conf --list``)."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import TerminalPage
from memdiag.results.conf import KnownSetting, Listing
from memdiag.text import joined, phrase


def render(table: Listing, look: Look = PLAIN) -> str:
    """Returns the table of all settings as text."""
    page = TerminalPage(look)
    for number, listed in enumerate(table.backends):
        backend, variable = listed.backend, listed.variable
        name = phrase(f"conf.backend.{backend}")
        if number:
            page.gap()
        unit = "torch_npu" if backend in {"npu", "mindspeed"} else "torch"
        title = phrase("conf.list.title", variable=variable, backend=name)
        if table.torch_version:
            title = phrase(
                "conf.list.title.version",
                variable=variable,
                backend=name,
                unit=unit,
                version=table.torch_version,
            )
        page.text(title, "bold")
        for key in listed.keys:
            page.gap()
            page.text(key.key, "cyan", indent=2)
            page.text(key.meaning, indent=4)
            facts = (phrase("conf.list.default", default=key.default), key.range, _versions(key, backend, unit))
            page.text(joined(facts, " · "), "dim", indent=4)
    page.title(phrase("conf.title.related"))
    page.gap()
    for beside in table.variables:
        page.grid("lw", [[(beside.name, "cyan"), (beside.range, "dim")]])
        page.text(beside.meaning, indent=4)
    return page.finish()


def _versions(key: KnownSetting, backend: str, unit: str) -> str:
    """Returns the versions that support a key, or "" if unknown."""
    if backend == "mindspeed":
        return phrase("conf.list.gone", until=key.until) if key.until else ""
    if key.until:
        return phrase("conf.list.until", unit=unit, since=key.since, until=key.until)
    return phrase("conf.list.since", unit=unit, since=key.since)
