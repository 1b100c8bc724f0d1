"""Every registered policy fulfils the contract of ``Policy``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from memdiag.allocator import workload as w
from memdiag.allocator.as_trace import as_trace
from memdiag.allocator.policies import POLICIES
from memdiag.allocator.policies.parameters import parameters
from memdiag.allocator.result import OK, OUT_OF_MEMORY
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.subject import Subject
from memdiag.allocator.versions.rules import RULES
from memdiag.results.prediction import Standing
from memdiag.sources.torch_snapshot import read
from memdiag.trace import schema
from memdiag.units import GIB, MIB

ROOT = Path(__file__).parents[3]
SIZES = np.array([1, 512, 513, MIB, MIB + 1, 5 * MIB, 10 * MIB - 1, 10 * MIB, 33 * MIB + 5, GIB], np.int64)
GAINS = (schema.SEGMENT_ALLOC, schema.SEGMENT_MAP)
LOSSES = (schema.SEGMENT_FREE, schema.SEGMENT_UNMAP)


@pytest.fixture(scope="module")
def subject() -> Subject:
    trace = read(ROOT / "tests" / "goldens" / "cuda-2.13.0-train" / "snapshot.pickle")
    return Subject.of(trace, trace.devices[0])


@pytest.mark.parametrize("name", POLICIES.targets)
def test_its_settings_are_those_of_a_known_backend(name: str) -> None:
    policy = POLICIES[name]
    assert policy.backend in RULES
    assert policy.standing in get_args(Standing)
    assert all(variable.isidentifier() for variable in policy.variables)
    conf, rules = parameters(policy, "", "2.13")
    assert policy.layout(conf, rules).pad == rules.pad
    assert policy.inherit_conf({}) == {}
    keys = {"max_split_size_mb": "64", "expandable_segments": "True", "garbage_collection_threshold": "0.8"}
    inherited = policy.inherit_conf(keys)
    assert inherited.items() <= keys.items()
    parameters(policy, ",".join(f"{key}:{value}" for key, value in inherited.items()), "2.13")


@pytest.mark.parametrize("name", POLICIES.targets)
def test_the_page_of_simulate_names_it(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs" / "simulate.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", POLICIES.targets)
def test_a_block_holds_its_request_and_a_segment_holds_its_block(name: str) -> None:
    policy = POLICIES[name]
    blocks, segments = policy.block_and_segment_sizes(SIZES, *parameters(policy, "", "2.13"))
    assert blocks.dtype == segments.dtype == np.int64
    assert (blocks >= SIZES).all()
    assert (blocks <= segments).all()
    assert (np.diff(blocks) >= 0).all()


@pytest.mark.parametrize("name", POLICIES.targets)
def test_a_replay_serves_every_request_and_its_log_gives_its_curves(name: str, subject: Subject) -> None:
    policy, work = POLICIES[name], subject.workload
    found = subject.replay(Scenario(name), log=True)
    assert (found.policy, found.conf, found.torch_version, found.capacity_bytes) == (name, "", "2.13", None)
    asks = work.op == w.ALLOC
    assert len(found.status) == len(asks)
    assert (found.status[asks] == OK).all()
    assert (found.allocated <= found.active).all()
    assert (found.active <= found.reserved).all()
    assert found.reserved.max() >= subject.replay(Scenario("bound"), log=False).reserved.max()
    log = found.log
    assert log is not None
    change = np.where(np.isin(log["action"], GAINS), log["size"], 0) - np.where(
        np.isin(log["action"], LOSSES), log["size"], 0
    )
    held = np.cumsum(np.bincount(log["call"] + 1, change, len(asks) + 1))[1:]
    is_kept = policy.standing == "native" and subject.is_recorded(Scenario(name))
    assert (held + (found.reserved[-1] - held[-1] if is_kept else 0) == found.reserved).all()
    simulated = as_trace(found, work, subject.trace, subject.device, kept_start=is_kept).device
    assert simulated.usage.reserved.max() == found.reserved.max()


@pytest.mark.parametrize("name", POLICIES.targets)
def test_a_replay_can_be_repeated_and_does_not_depend_on_its_log(name: str, subject: Subject) -> None:
    first, again = (subject.replay(Scenario(name), log=log) for log in (False, True))
    for column in ("status", "seg", "off", "block", "reserved", "allocated", "device_allocs"):
        assert (getattr(first, column) == getattr(again, column)).all(), column
    assert first.log is None


@pytest.mark.parametrize("name", POLICIES.targets)
def test_a_replay_stays_within_the_device(name: str, subject: Subject) -> None:
    most = int(subject.replay(Scenario(name), log=False).reserved.max())
    found = subject.replay(Scenario(name, capacity_bytes=most // 2), log=False)
    assert found.reserved.max() <= most // 2
    failed = np.flatnonzero(found.status == OUT_OF_MEMORY)
    assert found.ooms.max() == len(failed) > 0 or found.retries.max() > 0


@pytest.mark.parametrize("name", POLICIES.targets)
def test_its_details_can_be_shown_and_written(name: str, subject: Subject) -> None:
    details = POLICIES[name].details(subject.replay(Scenario(name), log=True))
    assert len({detail.key for detail in details}) == len(details)
    for detail in details:
        assert json.loads(json.dumps(asdict(detail)))
        rows = list(detail.rows("A"))
        assert rows
        for row in rows:
            assert row.form in {"text", "table", "title", "paste", "gap"}
            assert len(row.cells) == (len(row.columns) if row.form == "table" else row.form != "gap")
