from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from memdiag.render.oom.json import render

TOP = [
    "schema_version",
    "memdiag_version",
    "sources",
    "trace",
    "num_lines",
    "num_bytes",
    "first_rank",
    "num_warnings_omitted",
    "num_messages_omitted",
    "messages",
    "tables",
]
MESSAGE = [
    "dialect",
    "framework",
    "backend",
    "rank",
    "count",
    "source",
    "line",
    "text",
    "fields",
    "verdict",
    "confidence",
    "alternatives",
    "reasons",
    "is_warning",
    "ledger",
    "findings",
]
FINDING = ["code", "title", "severity", "device", "evidence", "fixes", "saving"]
PAGE = Path(__file__).parents[3] / "docs" / "oom-json.md"


def test_the_keys_are_pinned(oom_samples):
    shown = json.loads(render(oom_samples.one()))
    assert list(shown) == TOP
    message = shown["messages"][0]
    assert list(message) == MESSAGE
    assert list(message["ledger"][0]) == ["what", "bytes", "owner", "basis"]
    assert list(message["findings"][0]) == FINDING
    assert list(message["findings"][0]["fixes"][0]) == ["title", "kind", "change", "applicability", "caveat"]


def test_values(oom_samples):
    shown = json.loads(render(oom_samples.one()))
    message = shown["messages"][0]
    assert shown["schema_version"] == 2
    assert (shown["sources"], shown["num_lines"], shown["first_rank"]) == (["train.log"], 12000, 3)
    assert (message["dialect"], message["rank"], message["count"], message["line"]) == ("torch_cuda_21", 3, 1, 10412)
    assert message["fields"]["requested_bytes"] == 2 << 30
    assert (message["verdict"], message["alternatives"], message["confidence"]) == (
        "fragmentation",
        ["capacity"],
        "high",
    )
    assert message["ledger"][-1] == {"what": "total", "bytes": 16 << 30, "owner": "total", "basis": "printed"}


def test_every_message_is_there_whatever_else_is_asked(oom_samples):
    assert render(oom_samples.many(), every=False, top=1) == render(oom_samples.many(), every=True)
    assert len(json.loads(render(oom_samples.many()))["messages"]) == 9


def test_nothing_found_is_an_empty_list(oom_samples):
    assert json.loads(render(oom_samples.nothing()))["messages"] == []


def test_it_is_ascii_and_text_stays_as_it_was(oom_samples):
    shown = render(oom_samples.hostile())
    assert shown.isascii()
    assert json.loads(shown)["messages"][0]["text"] == oom_samples.EVIL


def test_pairs_and_odd_values(oom_samples):
    fields = {"other_processes": [(1, 2), (3, 4)], "utilization": float("nan"), "shape": [1, 2]}
    assert json.loads(render(oom_samples.one(fields=fields)))["messages"][0]["fields"] == {
        "other_processes": [[1, 2], [3, 4]],
        "utilization": None,
        "shape": [1, 2],
    }


def test_every_key_is_documented():
    if not PAGE.exists():
        pytest.fail("docs/oom-json.md is missing")
    text = PAGE.read_text(encoding="utf-8")
    assert [key for key in TOP + MESSAGE if f"`{key}`" not in text] == []
    from memdiag.results.oom import CAUSES

    assert [cause for cause in CAUSES if f"`{cause}`" not in text] == []
    block = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert block
    assert list(json.loads(block[1])) == TOP
    assert list(json.loads(block[1])["messages"][0]) == MESSAGE
