"""The list of the card's memory: every row and its bar sum to the card, and lines fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.trace import schema
from memdiag.trace.table import Table
from memdiag.tui.ledger_lines import LedgerLines
from memdiag.tui.lists import CARD, Lists
from memdiag.tui.walk import Walk
from memdiag.units import format_bytes
from tests.analyzers.test_residue import TOTAL, turns


@pytest.fixture(scope="module")
def trace():
    return turns([411, 1160, 2500])


def shown(trace, **options):
    return LedgerLines(Walk(trace).here, **options)


def test_every_row_sums_to_the_card(trace):
    lines = shown(trace)
    assert len(lines) == 6
    for row in range(len(lines)):
        assert sum(lines._sizes(row)) == TOTAL
        text = lines.detail(row).plain
        assert f"{format_bytes(TOTAL)}  the card" in text


@pytest.mark.parametrize("width", range(40, 160, 8))
def test_rows_fit_and_the_bar_is_as_wide_as_the_rest(trace, width):
    lines = shown(trace, color=False)
    for row in range(len(lines)):
        assert lines.line(row, width).cell_len <= width
    if width >= 88:
        bar = lines.line(1, width).plain
        assert bar.count("▒") / (bar.count("▒") + bar.count("·") + bar.count("█") + bar.count("▓")) == pytest.approx(
            3000 / 10_000, abs=0.08
        )
        assert lines.line(1, width).cell_len == width


def test_the_sample_of_the_moment_is_bold(trace):
    walk = Walk(trace)
    walk.go(-1)
    assert LedgerLines(walk.here).now == -1
    device = walk.here.device
    walk.go(int(device.samples.at_event[2]))
    assert LedgerLines(walk.here).now == 2
    walk.go(device.num_events - 1)
    assert LedgerLines(walk.here).now == 5


def test_memory_whose_owner_is_unknown_is_named_so(trace):
    samples = trace.devices[0].samples
    unknown = np.full(len(samples), -1, np.int64)
    device = replace(trace.devices[0], samples=samples.replace(own=unknown, others=unknown))
    lines = shown(replace(trace, devices=(device,)))
    assert sum(lines._sizes(1)) == TOTAL
    assert "unknown" in lines.head(120).plain
    assert "unknown" in lines.detail(1).plain


def test_a_trace_without_samples_does_not_have_the_list(trace):
    device = replace(trace.devices[0], samples=Table.empty(schema.SAMPLES))
    without = replace(trace, devices=(device,))
    assert Lists(Walk(trace)).count == CARD + 1
    assert Lists(Walk(without)).count == CARD
    lines = shown(without)
    assert (len(lines), lines.head(80), lines.summary()) == (0, None, "")


def test_summary_names_the_card(trace):
    assert shown(trace).summary() == f"6 samples · each row sums to the {format_bytes(TOTAL)} of the card"
