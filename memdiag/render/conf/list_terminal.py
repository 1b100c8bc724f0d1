"""The table of all allocator settings for people, in a terminal (``memdiag conf --list``)."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import TerminalPage
from memdiag.settings.listing import Listing
from memdiag.settings.model import Key, version_text
from memdiag.text import joined, phrase


def render(table: Listing, look: Look = PLAIN) -> str:
    """Returns the table of all settings as text."""
    page = TerminalPage(look)
    for number, listed in enumerate(table.backends):
        backend, variable = listed.backend, listed.variable
        if number:
            page.gap()
        unit = "torch_npu" if backend in {"npu", "mindspeed"} else "torch"
        title = phrase("conf.list.title", variable=variable, backend=listed.name)
        if table.torch_version:
            title = phrase(
                "conf.list.title.version",
                variable=variable,
                backend=listed.name,
                unit=unit,
                version=table.torch_version,
            )
        page.text(title, "bold")
        for key in listed.keys:
            page.gap()
            page.text(key.name, "cyan", indent=2)
            page.text(key.meaning, indent=4)
            facts = (phrase("conf.list.default", default=key.default), key.range, _versions(key, backend, unit))
            page.text(joined(facts, " · "), "dim", indent=4)
    page.title(phrase("conf.title.related"))
    page.gap()
    for beside in table.variables:
        page.grid("lw", [[(beside.name, "cyan"), (beside.range, "dim")]])
        page.text(beside.meaning, indent=4)
    return page.finish()


def _versions(key: Key, backend: str, unit: str) -> str:
    """Returns in which versions a key is known; "" where that is not known."""
    since = version_text(key.since)
    if backend == "mindspeed":
        return phrase("conf.list.gone", until=version_text(key.until)) if key.until else ""
    if key.until:
        return phrase("conf.list.until", unit=unit, since=since, until=version_text(key.until))
    return phrase("conf.list.since", unit=unit, since=since)
