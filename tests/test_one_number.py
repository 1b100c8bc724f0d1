"""Every form of a report states the same value for a quantity: all its parts describe one moment."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from memdiag.analyzers.report import build_report
from memdiag.errors import MemdiagError
from memdiag.render.analyze import full as terminal
from memdiag.render.analyze import json as as_json
from memdiag.render.analyze import md as markdown
from memdiag.render.analyze.html import data_of
from memdiag.render.support.look import Look
from memdiag.results.report import Report
from memdiag.sources import load
from memdiag.units import format_bytes
from memdiag.views.picture import build_picture

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "snapshots"
BYTES = r"([\d.,]+ (?:[KMGT]iB|B))"
# Phrases in headlines and finding titles about the report's moment; a title that names an event is about another
# moment.
SAID = {
    "reserved": (rf"{BYTES} reserved",),
    "allocated": (rf"{BYTES} allocated",),
    "lost": (
        rf"{BYTES} \([\d.]+%\) lost",
        rf"{BYTES} \(\d+% of reserved\) is free in blocks that",
        rf"{BYTES} is free but cannot be used",
        rf"^{BYTES} \([\d.]+%\) of reserved memory is free but unusable",
    ),
    "live": (rf"of the {BYTES} live",),
    "cached": (rf"{BYTES} cached for reuse", rf"{BYTES} of reserved memory is cache"),
}
MOST_DRAWN = 6000  # events; the page of a larger trace takes a second
NAMES_A_MOMENT = re.compile(r"\bevent [\d,]+|[Aa]t the (end|allocated peak)|most that ever")


def files():
    found = sorted(FOLDER.iterdir()) if FOLDER.is_dir() else []
    return found or [
        pytest.param(None, marks=pytest.mark.skip(reason="needs the data folder ../shared beside the repository"))
    ]


class Said:
    """The values that each form of a report states, by quantity."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def add(self, quantity: str, form: str, value: object) -> None:
        """Adds a value, in bytes or as shown text; None: the form does not state it."""
        if value is not None:
            self.values[quantity][form].add(value if isinstance(value, str) else format_bytes(value))


def read_json(said: Said, device) -> None:
    """Adds the values in JSON: the moment, the split, and the sums of the lists."""
    moment, split = device["moment"], device["fragmentation"]
    here = device["end"] if moment["kind"] == "snapshot" else moment
    for name in ("reserved", "allocated", "active", "requested"):
        said.add("live" if name == "active" else name, "json", here[f"{name}_bytes"])
    said.add("lost", "json", moment["lost_bytes"])
    said.add("cached", "json", split["cache_bytes"])
    if split["stranded_bytes"] is not None:
        said.add("lost", "json split", split["stranded_bytes"] + split["foreign_bytes"])
    for key in ("by_category", "by_lifetime"):
        if device[key] is not None:
            said.add("live", key, sum(device[key].values()))
    assert moment["at_event"] == split["at_event"]


def read_sentences(said: Said, report: Report) -> None:
    """Adds the values in the headline, verdict card and finding titles, unless they name another moment."""
    card = [report.verdict.loss] if report.verdict else []
    for text in (report.headline, *card, *(finding.title for finding in report.findings)):
        if NAMES_A_MOMENT.search(text):
            continue
        for quantity, patterns in SAID.items():
            for value in (value for pattern in patterns for value in re.findall(pattern, text)):
                said.add(quantity, text, value)


def read_text(said: Said, form: str, text: str) -> None:
    """Adds the values in the tables of a text report."""
    rows = {
        name: (name, rf"^\W*{name} .*?  +{BYTES}|^\| {name} \([^|]*\) \| {BYTES}")
        for name in ("reserved", "allocated", "requested")
    }
    rows |= {
        f"{part} in the split": (name, rf"^\W*[█·]\W* {part} +\W*{BYTES}")
        for name, part in (("requested", "requested"), ("cached", "cache"))
    }
    for what, (quantity, pattern) in rows.items():
        found = re.search(pattern, text, re.MULTILINE)
        said.add(quantity, f"{form}: {what}", next(value for value in found.groups() if value) if found else None)


def check_page(report: Report, trace) -> None:
    """Checks that the page opens at the moment of the report, and holds the same headline and numbers."""
    page = data_of(build_picture(trace, report), "en")
    moment = page["report"]["devices"][0]["moment"]
    drawn = next(each for each in page["devices"] if each["device"] == report.devices[0].device)
    column = drawn["instants"]["event"]
    events = np.cumsum(column["v"]) if column["d"] else np.array(column["v"])
    assert int(events[drawn["chosen_instant"]] * column["s"]) == (
        -1 if moment["at_event"] is None else moment["at_event"]
    )
    assert page["spoken"]["en"]["headline"] == report.headline


def check(path: Path) -> None:
    try:
        trace = load(path)
    except MemdiagError:
        pytest.skip("this file is refused")
    for device in trace.devices:
        report, said = build_report(trace, device=device.device, replay=False), Said()
        read_json(said, json.loads(as_json.render(report))["devices"][0])
        read_sentences(said, report)
        for form, text in (
            ("terminal", terminal.render(report, Look(width=160))),
            ("markdown", markdown.render(report)),
        ):
            read_text(said, form, text)
        for quantity, forms in said.values.items():
            if quantity == "live" and device.anomalies:  # the file contradicts itself
                continue
            assert len(set().union(*forms.values())) <= 1, (quantity, dict(forms))
        if device.num_events < MOST_DRAWN:
            check_page(report, trace)


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name[:60] if path else "none")
def test_every_form_of_a_report_on_a_real_snapshot_states_one_value(path):
    check(path)


def test_every_form_of_a_report_on_a_golden_states_one_value(golden):
    check(golden / "snapshot.pickle")
