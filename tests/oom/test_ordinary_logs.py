"""No false alarms: memdiag finds no message in logs that mention memory but contain no failure."""

from __future__ import annotations

import random

import pytest

from memdiag.oom.read import read_text
from tests.oom import ordinary_logs


@pytest.mark.parametrize("number", range(len(ordinary_logs.MAKERS)))
def test_nothing_is_found_in_ordinary_lines(number):
    chance = random.Random(number)  # noqa: S311 - logs, no secrets
    for _ in range(25):
        text = ordinary_logs.MAKERS[number](chance)
        assert [(message.dialect, message.text) for message in read_text(text).messages] == [], text


def test_nothing_is_found_in_a_megabyte_of_ordinary_log():
    found = read_text(ordinary_logs.text(1 << 20)).messages
    assert [(message.dialect, message.line, message.text[:200]) for message in found] == []
