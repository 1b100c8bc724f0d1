"""The table of a card's memory over time: rows that sum to the card, and what the driver does not tell apart."""

from __future__ import annotations

from memdiag.render.support.card_timeline import MOST_ROWS, card_rows
from memdiag.results.card_ledger import CardMoment
from memdiag.units import GIB


def moment(number, reserved, own=None, others=None, unknown=1, *, when="mark"):
    parts = reserved + unknown + (own or 0) + (others or 0)
    known = [None if size is None else size * GIB for size in (own, others)]
    return CardMoment(
        number, number * 1_000_000, when, number, 80 * GIB, reserved * GIB, *known, unknown * GIB, (80 - parts) * GIB
    )


def test_without_samples_there_is_no_table():
    assert card_rows(()) is None


def test_what_the_driver_does_not_tell_apart_is_named_unknown():
    rows = card_rows([moment(0, 10), moment(1, 20)])
    assert rows.head == ("█ reserved", "░ unknown", "· free", "time")
    assert "both are unknown" in rows.lead
    assert "80.00 GiB" in rows.lead
    assert rows.rows[1][:3] == ("20.00 GiB", "1.00 GiB", "59.00 GiB")
    assert rows.rows[1][3].endswith("1.0 s mark")


def test_known_parts_have_columns_and_empty_ones_have_none():
    rows = card_rows([moment(0, 10, 1, 30, 0)])
    assert rows.head == ("█ reserved", "▓ rest", "▒ others", "· free", "time")
    assert rows.rows[0][:4] == ("10.00 GiB", "1.00 GiB", "30.00 GiB", "39.00 GiB")
    assert rows.rows[0][4].startswith("█▓▒▒▒▒")
    assert "unknown" not in rows.lead


def test_a_long_recording_shows_failures_and_the_fullest_moment():
    moments = [moment(number, 70 if number == 321 else number % 50) for number in range(1000)]
    moments[500] = moment(500, 60, when="oom")
    rows = card_rows(moments)
    assert len(rows.rows) <= MOST_ROWS
    assert any(row[0] == "70.00 GiB" for row in rows.rows)
    assert any("out of memory" in row[-1] for row in rows.rows)
    assert rows.rows[-1][-1].endswith("999.0 s mark")
