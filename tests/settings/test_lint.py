"""The lint handles any text, and every renderer can show its report."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.render.conf.json import render as render_json
from memdiag.render.conf.terminal import render
from memdiag.results.finding import SEVERITIES
from memdiag.settings.conf import parse_conf
from memdiag.settings.divisions import as_list, as_meant
from memdiag.settings.environment import check_environment, guess_backend, read_order
from memdiag.settings.features import FEATURES, RULES
from memdiag.settings.lint import CODES, lint
from memdiag.settings.model import BACKENDS, parse_version
from memdiag.settings.parsers import parse
from memdiag.settings.relations import Scene
from memdiag.settings.tables import KEYS, every, known
from memdiag.settings.variables import VARIABLES
from memdiag.settings.written import Assignment, assignments, entries
from tests.settings import texts

VERSIONS = [(1, 13), (2, 0), (2, 1), (2, 5), (2, 6), (2, 8), (2, 9), (2, 10), (2, 11), (2, 13), (3, 0)]


@given(st.text(max_size=60), st.sampled_from(BACKENDS), st.sampled_from(VERSIONS))
def test_any_text_is_linted_and_rendered(text, backend, version):
    for assignment in assignments(text):
        report = lint(assignment, Scene(backend, version), tuple(FEATURES), None)
        assert {finding.code for finding in report.findings} <= set(CODES)
        assert all(line.isprintable() for line in render(report).splitlines())
        json.loads(render_json(report))


@given(st.integers(0, 2**32 - 1), st.sampled_from(BACKENDS), st.sampled_from(VERSIONS))
def test_corrected_texts_are_accepted_and_need_no_correction(seed, backend, version):
    text = texts.mixed(random.Random(seed), list(KEYS[backend]))  # noqa: S311 - no secrets
    scene = Scene(backend, version)
    report = lint(Assignment("", text), scene)
    order = [SEVERITIES.index(finding.severity) for finding in report.findings]
    assert order == sorted(order)
    if report.corrected is not None:
        assert parse(report.corrected, backend, version).refused is None, text
        assert lint(Assignment("", report.corrected), scene).corrected is None, text


LONG = {
    "spaces": " " * 200_000,
    "pairs": "a:1," * 50_000,
    "words": "a " * 100_000,
    "brackets": "[" * 200_000,
    "capitals": "A" * 200_000,
    "names": "A=" * 100_000,
    "quotes": "'" * 200_001,
    "number": "max_split_size_mb:" + "9" * 200_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_texts_are_linted_to_the_end(text):
    """Long texts are linted in linear time; with quadratic time, this test would not finish."""
    for assignment in assignments(text)[:3]:
        assert lint(assignment, Scene("cuda", (2, 13))).backend == "cuda"


@given(st.lists(st.sampled_from([0, 1, 2, 4, 8]), min_size=16, max_size=16), st.booleans())
def test_parser_and_reader_agree_on_a_list_of_divisions(entries_, shared):
    value = as_list(tuple(entries_), shared=shared)
    version = (2, 13) if shared else (2, 6)
    if len(set(entries_)) > 1:
        assert parse(f"roundup_power2_divisions:{value}", "cuda", version).values["roundup_power2_divisions"] == tuple(
            entries_
        )
        assert as_meant(value) == tuple(entries_)


def test_every_rule_names_an_existing_key_and_feature():
    for rule in RULES:
        assert rule.feature in FEATURES
        assert all(not rule.key or rule.key in every(backend) for backend in rule.backends)


def test_every_key_of_the_table_is_unique_and_complete():
    for backend in BACKENDS:
        names = [key.name for key in KEYS[backend]]
        assert len(names) == len(set(names))
        for key in KEYS[backend]:
            assert key.meaning.endswith((".", ")"))
            assert key.default
            assert key.range
            assert key.until is None or key.since < key.until
    assert len({variable.name for variable in VARIABLES}) == len(VARIABLES)


def test_versions_are_read_and_decide_which_keys_exist():
    assert parse_version("2.6.0+cu124") == (2, 6)
    assert parse_version("v2.7.1.post2") == (2, 7)
    assert parse_version("two") is None
    assert "expandable_segments" not in known("cuda", (2, 0))
    assert "expandable_segments" in known("cuda", (2, 1))
    assert read_order(Scene("cuda", (2, 9)))[0] == "PYTORCH_ALLOC_CONF"
    assert guess_backend({"PYTORCH_NPU_ALLOC_CONF": ""}) == "npu"


def test_the_lenient_reader_and_the_lint_read_the_same_pairs():
    text = "expandable_segments: True, roundup_power2_divisions:[256:1,>:8] ,max_split_size_mb:64"
    assert {entry.key: entry.value for entry in entries(text)} == parse_conf(text)


def test_an_environment_is_checked_without_touching_it():
    environ = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}
    check_environment(environ, Scene("cuda", (2, 13)))
    assert environ == {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}
