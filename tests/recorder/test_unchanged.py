"""A recording changes neither results, allocator events nor object lifetimes, and leaves no hook."""

from __future__ import annotations

import re
from pathlib import Path


def test_results_and_object_lifetimes_are_unchanged(record):
    """Results are bitwise equal, and objects are freed as early as without a recording."""
    with_us = record("history.py", "{out}", record.device, "none")
    without = record("history.py", "{out}", record.device, "none", recorded=False)
    assert with_us.done.stdout == without.done.stdout
    # torch_npu's warnings carry the time; that of its import is printed only by a process that imports it itself
    varying = re.compile(r"\[W[^\n]* FunctionLoader[^\n]*\n|\d+")
    assert varying.sub("", with_us.done.stderr) == varying.sub("", without.done.stderr)
    for fact, value in without.truth.items():
        assert with_us.truth[fact] == value, fact


def test_events_equal_those_of_pytorchs_history_alone(accelerator):
    """Action, size, stream and order of all entries are equal, and the same entries share an address."""
    with_us = accelerator("history.py", "{out}", accelerator.device, "recorded")
    bare = accelerator("history.py", "{out}", accelerator.device, "bare", recorded=False)
    assert len(bare.truth["events"]) > 500
    assert with_us.truth["events"] == bare.truth["events"]
    assert with_us.truth["places"] == bare.truth["places"]


def test_no_hook_is_left(record):
    said = record("hooks.py", "{out}", record.device, str(Path(__file__).parents[2]), recorded=False).truth
    assert said["inside"]["global"] != said["before"]["global"]
    assert said["after"] == said["before"]
    warned = [said[when]["is_warned_of"] for when in ("before", "inside", "with_own")]
    assert warned == [False, False, True]
