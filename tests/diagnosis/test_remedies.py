"""Every remedy of the table has its texts and a line to paste, and is not offered if it is already in effect."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from memdiag import text
from memdiag.allocator.tuning.space import GRID
from memdiag.analyzers.support.joined import PER_BATCH
from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.remedies import ALLOCATOR_SETTINGS, REMEDIES, offer
from memdiag.diagnosis.remedies.block_sizes import DEFAULT_PLACEMENT
from memdiag.diagnosis.remedies.model import Situation
from memdiag.diagnosis.remedies.systems import SYSTEMS
from memdiag.settings.conf import parse_conf
from memdiag.settings.tables import every
from memdiag.text import Phrase
from memdiag.units import GIB, MIB

FULL = Facts(
    requested=2 * GIB,
    request=2 * GIB - MIB,
    total=64 * GIB,
    free=GIB,
    allocated=58 * GIB,
    slack=2 * GIB,
    reserved=60 * GIB,
    limit=62 * GIB,
    others=((7, 300 * MIB), (8, 301 * MIB)),
)
FACTS = (
    Facts(is_printed=False),
    FULL,
    replace(FULL, limit=None, request=None),
    replace(FULL, allocated=70 * GIB, pool=8 * GIB),  # sleeping pools
)
EXPANDABLE = {"expandable_segments": "True"}
SETTINGS = (
    {},
    EXPANDABLE,
    {"max_split_size_mb": "64"},
    {**EXPANDABLE, "page_size": "1g"},
    {"roundup_power2_divisions": "4"},
)
BACKENDS = (*SYSTEMS, "")


def situations():
    """Yields situations of every backend, with and without numbers, settings, versions and Windows."""
    for backend, facts, settings, has_expandable, on_windows in product(
        BACKENDS, FACTS, SETTINGS, (True, False), (True, False)
    ):
        if "page_size" in settings and backend != "npu":
            continue
        variable = SYSTEMS[backend].variable if backend else ""
        yield Situation(
            backend=backend,
            facts=facts,
            variable=variable,
            settings=settings,
            is_expandable=settings.get("expandable_segments") == "True",
            has_expandable=has_expandable,
            on_windows=on_windows,
            framework="torch_npu" if backend == "npu" else "pytorch",
            reads_fraction=has_expandable,
        )


SITUATIONS = [
    *situations(),
    Situation("npu", FULL, SYSTEMS["npu"].variable, has_lifetime_pools=True, framework="torch_npu"),
]


@pytest.mark.parametrize("name", REMEDIES)
def test_a_remedy_is_offered_somewhere_with_its_own_texts(name):
    remedy = REMEDIES[name]
    fixes = [fix for situation in SITUATIONS if (fix := offer(name, situation)) is not None]
    assert fixes
    for fix in fixes:
        assert isinstance(fix.title, Phrase)
        assert fix.title.key.split(".")[0] == remedy.key.split(".")[0]
        assert fix.kind != "env" or fix.change
        assert fix.kind != "flag" or fix.change
        assert all(isinstance(each, Phrase) for each in (fix.applicability, fix.caveat) if each)
        assert fix.title.in_language("zh") != fix.title.in_language("en")


@pytest.mark.parametrize("name", REMEDIES)
def test_a_line_names_the_backend_that_it_is_for(name):
    for situation in SITUATIONS:
        fix = offer(name, situation)
        if fix is not None and situation.backend == "npu":
            assert "torch.cuda." not in fix.change
            assert "CUDA_" not in fix.change
            assert "nvidia" not in fix.change
        if fix is not None and situation.backend == "cuda":
            assert "npu" not in fix.change.replace("inputs", "")
            assert "NPU" not in fix.change
            assert "HCCL" not in fix.change


def test_no_remedy_stands_twice():
    keys = [remedy.key for remedy in REMEDIES.values() if remedy.key != "remedies.recompute"]
    assert len(set(keys)) == len(keys)
    titles: dict[str, list[str]] = {}
    for key, words in text.catalogue("remedies").items():
        if not key.endswith((".when", ".caveat")):
            titles.setdefault(words["en"], []).append(key)
    assert [keys for keys in titles.values() if len(keys) > 1] == [["lifetime-pools", "lifetime-pools.variable"]]


@pytest.mark.parametrize("name", ALLOCATOR_SETTINGS)
def test_a_setting_is_a_remedy_whose_lines_the_allocator_can_read(name):
    assert ALLOCATOR_SETTINGS.targets[name] == REMEDIES.targets[name]
    variants = [(each, fix) for each in SITUATIONS for fix in ALLOCATOR_SETTINGS[name].variants(each)]
    assert variants
    for situation, fix in variants:
        assert fix.kind == "env"
        variable, _, conf = fix.change.partition("=")
        assert variable in {f"export {situation.variable}", f"unset {situation.variable}"}
        assert set(parse_conf(conf)) <= set(every("npu" if situation.backend == "npu" else "cuda"))


@pytest.mark.parametrize("name", ALLOCATOR_SETTINGS)
def test_a_setting_that_is_in_effect_is_not_offered_again(name):
    for situation in SITUATIONS:
        for fix in ALLOCATOR_SETTINGS[name].variants(situation):
            settings = parse_conf(fix.change.partition("=")[2])
            then = replace(
                situation,
                settings=settings,
                is_expandable=settings.get("expandable_segments") == "True",
                large_segment=int(settings.get("large_segment_size_mb", situation.large_segment // MIB)) * MIB,
            )
            assert fix.change not in {again.change for again in ALLOCATOR_SETTINGS[name].variants(then)}


def test_placement_is_decided_by_the_settings_that_tuning_tries():
    fix = DEFAULT_PLACEMENT.offer(Situation(variable="X", settings=dict.fromkeys(GRID, "1")))
    assert fix is not None
    assert fix.change == "unset X"


def test_remedies_that_depend_on_the_batch_exist():
    known = {f"{path.stem}.{key}" for path in text.FOLDER.glob("*.json") for key in text.catalogue(path.stem)}
    assert known >= PER_BATCH
