"""memdiag reads settings like the allocators' own parsers, by their recorded outcomes and by the parser of torch."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.settings.lint import lint
from memdiag.settings.model import Version, version_text
from memdiag.settings.parsers import ParserOutcome, Value, in_bytes, parse, parse_common
from memdiag.settings.relations import Scene
from memdiag.settings.tables import known
from memdiag.settings.written import Assignment
from tests.settings import real_parsers, texts

HERE = Path(__file__).parent
VERSION = (2, 13)


RECORDED = [
    ("common", (2, 13)),
    ("cuda", (2, 2)),
    ("cuda", (2, 6)),
    ("cuda", (2, 8)),
    ("cuda", (2, 13)),
    ("npu", (2, 13)),
]
NAMED = [(backend, version) for backend, version in RECORDED if backend != "common"]


def golden(backend: str, version: Version = VERSION) -> dict[str, Any]:
    path = HERE / f"golden_{backend}_{version_text(version)}.json"
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def ours(backend: str, version: Version, text: str) -> ParserOutcome:
    return parse_common(text, version) if backend == "common" else parse(text, backend, version)


def plain(value: Value) -> Any:
    """Returns a value in the form that the real parser's program prints."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return f"{value:.17g}"
    return list(value) if isinstance(value, tuple) else value


def expected(values: dict[str, Value], defaults: dict[str, Any]) -> dict[str, Any]:
    """Returns all settings after ``values`` were read."""
    read = {key.replace("hip", "cuda"): plain(value) for key, value in in_bytes(values).items() if key != "backend"}
    state = {**defaults, **read}
    if "max_non_split_rounding_mb" not in values:  # its default is the segment size
        state["max_non_split_rounding_mb"] = state["large_segment_size_mb"]
    return state


@pytest.mark.parametrize(("backend", "version"), RECORDED)
def test_texts_are_accepted_or_refused_as_by_the_real_parser(backend, version):
    rows = golden(backend, version)["texts"]
    assert len(rows) > 400
    assert sum(row["accepted"] for row in rows) > 70
    wrong = [row["text"] for row in rows if (ours(backend, version, row["text"]).refused is None) != row["accepted"]]
    assert wrong == []


@pytest.mark.parametrize("backend", ["common", "cuda"])
def test_every_value_equals_that_of_the_real_parser(backend):
    recorded = golden(backend)
    defaults = recorded["defaults"]
    for row in recorded["texts"]:
        if row["accepted"]:
            assert expected(ours(backend, VERSION, row["text"]).values, defaults) == {
                **defaults,
                **row.get("values", {}),
            }, row["text"]


@pytest.mark.parametrize("version", [(2, 2), (2, 6), (2, 8)])
def test_divisions_of_older_versions_equal_those_of_the_real_parser(version):
    for row in golden("cuda", version)["texts"]:
        if row["accepted"]:
            divisions = parse(row["text"], "cuda", version).values.get("roundup_power2_divisions", (0,) * 16)
            assert plain(divisions) == row.get("values", {}).get("roundup_power2_divisions", [0] * 16), row["text"]


@pytest.mark.parametrize(("backend", "version"), NAMED)
def test_findings_are_critical_exactly_for_texts_that_the_real_parser_refuses(backend, version):
    for row in golden(backend, version)["texts"]:
        report = lint(Assignment("", row["text"]), Scene(backend, version))
        ends = [
            finding for finding in report.findings if finding.severity == "critical" and not _fails_later(finding.title)
        ]
        assert bool(ends) != row["accepted"], (row["text"], [finding.title for finding in ends])


def _fails_later(title: str) -> bool:
    return "cannot grow" in title  # the text is accepted, but every large allocation fails


@pytest.mark.parametrize(("backend", "version"), NAMED)
def test_corrected_texts_need_no_correction(backend, version):
    for row in golden(backend, version)["texts"]:
        corrected = lint(Assignment("", row["text"]), Scene(backend, version)).corrected
        if corrected is not None:
            again = lint(Assignment("", corrected), Scene(backend, version))
            assert again.corrected is None, row["text"]
            assert not [finding for finding in again.findings if finding.severity != "info"], row["text"]


def test_well_formed_texts_get_no_finding():
    """Well-formed texts with one key get no finding."""
    for text in (
        "expandable_segments:True",
        "max_split_size_mb:128",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "backend:native",
    ):
        assert lint(Assignment("", text), Scene("cuda", VERSION)).findings == ()


# ----------------------------------------------------------------------------------------------------------------- live


@pytest.fixture(scope="module")
def live(tmp_path_factory) -> Iterator[real_parsers.Program]:
    if find_spec("torch") is None:
        pytest.skip("needs torch (any build of 2.13) beside memdiag to ask its parser")
    if shutil.which("g++") is None:
        pytest.skip("needs g++ to build the program that asks torch's parser")
    program = real_parsers.Program(real_parsers.build(tmp_path_factory.mktemp("real")))
    yield program
    program.close()


@given(st.integers(0, 2**32 - 1))
def test_the_parser_of_the_installed_torch_agrees(live, seed):
    text = texts.mixed(random.Random(seed), list(known("cuda", VERSION).values()))  # noqa: S311 - no secrets
    theirs, mine = live(text), parse_common(text, VERSION)
    assert (mine.refused is None) == theirs["accepted"], text
    if theirs["accepted"]:
        assert expected(mine.values, golden("common")["defaults"]) == theirs["values"], text
