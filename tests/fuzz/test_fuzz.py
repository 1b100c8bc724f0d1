"""A short run of the fuzzer: all seeds open, earlier finds stay fixed, and a few mutations per format find no error."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.fuzz.forms import CODECS, bytes_of, tree_of
from tests.fuzz.run import Session, fuzz_plain
from tests.fuzz.target import Find, available, outcome

HERE = Path(__file__).parent
SEEDS = sorted((HERE / "seeds").glob("*/*"))
FOUND = sorted((HERE / "found").glob("*"))  # named <source>.<what went wrong>


def test_every_source_has_seeds_and_a_codec():
    assert {seed.parent.name for seed in SEEDS} == set(available()) == set(CODECS)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.parent.name}/{seed.name}")
def test_seeds_open(seed):
    assert outcome(seed.parent.name, seed) == "opened"


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{seed.parent.name}/{seed.name}")
def test_seeds_are_trees(seed, tmp_path):
    source = seed.parent.name
    tree = tree_of(source, seed.read_bytes())
    assert tree is not None
    again = tmp_path / seed.name
    again.write_bytes(bytes_of(source, tree, random.Random(1)) or b"")  # noqa: S311 - the same every time
    assert outcome(source, again) == "opened"


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_what_was_found_is_mended(path, tmp_path):
    source = path.name.split(".")[0]
    session = Session(source, tmp_path, None, report=True)
    session.one(path.read_bytes())
    assert not session.failures


@pytest.mark.parametrize("source", sorted(CODECS))
def test_a_few_mutations(source, tmp_path):
    session = Session(source, tmp_path, None, report=True)
    fuzz_plain(session, random.Random(source), lambda executions: executions < 40)  # noqa: S311 - the same every time
    assert not session.failures, json.dumps(session.failures, indent=1)
    assert session.counts["opened"] > 5


def test_a_warning_is_a_find(monkeypatch):
    import warnings

    from memdiag.sources import lifespans_csv

    seed = HERE / "seeds" / "lifespans-csv" / "lifespans.csv"
    honest = lifespans_csv.read
    monkeypatch.setattr(lifespans_csv, "read", lambda path: warnings.warn("oh", stacklevel=1) or honest(path))
    with pytest.raises(Find, match="noise"):
        outcome("lifespans-csv", seed)
