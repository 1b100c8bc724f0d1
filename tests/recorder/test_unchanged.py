"""A recording changes nothing: the same results, the same events, the same life of every object, and no hook left."""

from __future__ import annotations

import re
from pathlib import Path


def test_the_same_results_and_the_same_lives(record):
    """Bit for bit the same; what the program lets go goes as soon as without a recording."""
    with_us = record("history.py", "{out}", record.device, "none")
    without = record("history.py", "{out}", record.device, "none", recorded=False)
    assert with_us.done.stdout == without.done.stdout
    digits = re.compile(r"\d+")  # torch_npu's warnings carry the time
    assert digits.sub("", with_us.done.stderr) == digits.sub("", without.done.stderr)
    for fact, value in without.truth.items():
        assert with_us.truth[fact] == value, fact


def test_the_same_events_as_with_pytorchs_history_alone(accelerator):
    """Action, size, stream and order of every entry, and which of them are at one address."""
    with_us = accelerator("history.py", "{out}", accelerator.device, "recorded")
    bare = accelerator("history.py", "{out}", accelerator.device, "bare", recorded=False)
    assert len(bare.truth["events"]) > 500
    assert with_us.truth["events"] == bare.truth["events"]
    assert with_us.truth["places"] == bare.truth["places"]


def test_no_hook_is_left(record):
    said = record("hooks.py", "{out}", record.device, str(Path(__file__).parents[2]), recorded=False).truth
    assert said["inside"]["global"] != said["before"]["global"]
    assert said["after"] == said["before"]
