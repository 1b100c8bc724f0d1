"""memdiag reads the exact state from snapshots of random programs on a small allocator (small_allocator.py).

Snapshots begin with the program or at any later entry, as when recording starts late or a ring buffer has overwritten
its oldest entries.
"""

from __future__ import annotations

import pickle
import random
import tempfile
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.sources import load
from memdiag.trace.model import DeviceTrace
from tests.checker import OPENS, Checker, Sizes
from tests.intervals import Block, Moment, Range, Reference
from tests.intervals import Group as CheckedGroup
from tests.trace.against import compare, lifecycles, sizes_of
from tests.trace.small_allocator import Allocator, OutOfMemory
from tests.trace.small_allocator_state import MIB, Group, Rules

SIZES = (
    1,
    512,
    513,
    4096,
    100_000,
    MIB - 1,
    MIB,
    MIB + 1,
    2 * MIB,
    3 * MIB + 5,
    9 * MIB,
    10 * MIB,
    10 * MIB + 1,
    19 * MIB + 300,
    23 * MIB,
    45 * MIB,
)
Op = tuple[Any, ...]
ops = st.one_of(
    st.tuples(st.just("alloc"), st.sampled_from(SIZES) | st.integers(1, 30 * MIB), st.sampled_from((0, 0, 0, 7))),
    st.tuples(st.just("alloc"), st.sampled_from(SIZES), st.just(0)),
    st.tuples(st.just("free"), st.integers(0, 40)),
    st.tuples(st.just("free"), st.just(0)),
    st.tuples(st.just("use"), st.integers(0, 40), st.sampled_from((7, 9))),
    st.tuples(st.just("finish"), st.sampled_from((0, 7, 9))),
    st.tuples(st.just("empty")),
)
pool_ops = st.one_of(st.tuples(st.just("begin"), st.integers(1, 2)), st.tuples(st.just("end"), st.booleans()))
rules = st.builds(
    Rules,
    expandable=st.booleans(),
    max_split=st.sampled_from((None, None, 20 * MIB, 40 * MIB)),
    divisions=st.sampled_from((0, 0, 4)),
    capacity=st.sampled_from((80 * MIB, 160 * MIB, 1 << 40)),
    reuse_addresses=st.booleans(),
) | st.builds(Rules, expandable=st.booleans(), pad=st.just(32), capacity=st.sampled_from((80 * MIB, 1 << 36)))


def run(rules: Rules, program: Iterable[Op]) -> Allocator:
    """Runs a program on a new allocator; returns the allocator."""
    allocator = Allocator(rules)
    live = []
    for what, *arguments in program:
        if what == "alloc":
            try:
                live.append(allocator.malloc(*arguments))
            except OutOfMemory:
                continue
        elif what == "free" and live:
            allocator.free(live.pop(arguments[0] % len(live)))
        elif what == "use" and live:
            allocator.record_stream(live[arguments[0] % len(live)], arguments[1])
        elif what == "finish":
            allocator.finish(arguments[0])
        elif what == "empty":
            allocator.empty_cache()
        elif what == "begin":
            allocator.begin_pool(arguments[0])
        elif what == "end":
            allocator.end_pool(release=arguments[0])
    return allocator


def _group(group: Group) -> CheckedGroup:
    return CheckedGroup(group.pool, group.small, group.stream)


@dataclass
class Truth:
    """The allocator's states in the checker's form, from entry ``since`` on."""

    allocator: Allocator
    since: int
    sizes: Sizes
    # Blocks older than the trace whose end is not known: the bytes that are certain, by address.
    shorter: dict[int, int]

    def __post_init__(self) -> None:
        entries, n = self.allocator.entries, len(self.allocator.entries) - self.since
        self.blocks = []
        for b in self.allocator.blocks:
            born, asked, gone = (
                b.entries.get(a, 1 << 40) - self.since for a in ("alloc", "free_requested", "free_completed")
            )
            if gone >= 0:
                size = self.shorter.get(b.address, b.size) if born < 0 else b.size
                assert b.group is not None
                self.blocks.append(
                    Block(
                        b.address,
                        size,
                        b.requested,
                        max(born, -1),
                        max(min(asked, n), -1),
                        min(gone, n),
                        _group(b.group),
                    )
                )
        self.references = []
        for first, last, size, group in self.allocator.requests:
            seen = range(max(first, self.since), last + 1)
            if any(entries[number]["action"] in OPENS | {"oom"} for number in seen):
                self.references.append(Reference(last - self.since, size, _group(group)))
        requests = [number for number in range(self.since, len(entries)) if entries[number]["action"] == "alloc"]
        if not self.references and requests:
            largest = max(requests, key=lambda number: (entries[number]["size"], -number))
            block = next(b for b in self.allocator.blocks if b.entries["alloc"] == largest)
            assert block.group is not None
            self.references = [
                Reference(largest - self.since, self.allocator.rules.round(block.requested), _group(block.group))
            ]

    def moments(self, events: Iterable[int]) -> dict[int, Moment]:
        return {at: self._moment(at) for at in events}

    def _moment(self, at: int) -> Moment:
        held = self.allocator.moments[self.since + at + 1]
        segments = tuple(
            Range(start, end, _group(group), None if expandable else start)
            for start, end, group, expandable in held.segments
        )
        early = {
            b.address
            for b in self.allocator.blocks
            if b.entries["alloc"] < self.since <= self.since + at < b.entries.get("free_completed", 1 << 40)
        }
        early |= {b.address for b in self.allocator.blocks if at < 0 and b.entries["alloc"] < self.since}
        blocks = tuple(
            (address, self.shorter.get(address, size) if address in early else size, requested, pending)
            for address, size, requested, pending, _ in held.blocks
        )
        return Moment(segments, blocks)

    def reference_at(self, number: int) -> Reference | None:
        return next((r for r in self.references if r.at >= number), self.references[-1] if self.references else None)


def read(snapshot: dict[str, Any], protocol: int) -> tuple[DeviceTrace, Sizes, Any]:
    """Writes a snapshot, and reads it with memdiag."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.pickle"
        path.write_bytes(pickle.dumps(snapshot, protocol))
        trace = load(path)
    (device,) = trace.devices
    return device, sizes_of(trace.layout), trace


def uncertain(device: DeviceTrace, allocator: Allocator, since: int) -> dict[int, int]:
    """Returns the blocks older than the trace that memdiag assumes to be shorter than they were: bytes by address.

    The function asserts that the file does not show their end. Their request needs no more bytes, and more than 1 MiB
    behind these bytes is free. No tensor was allocated directly behind them while they were live.
    """
    found = {}
    starts = {row[0]: row[1] for row in lifecycles(device) if row[3] < 0}
    for block in allocator.blocks:
        gone = block.entries.get("free_completed", 1 << 40)
        if block.entries["alloc"] >= since or gone < since or starts.get(block.address) == block.size:
            continue
        size = starts[block.address]
        assert size == allocator.rules.round(block.requested)
        assert 0 < block.size - size <= MIB
        assert gone < 1 << 40, "the last state tells"
        later = allocator.moments[since : gone + 1]
        assert not any(other[0] == block.end for moment in later for other in moment.blocks), (
            "a block right behind it tells"
        )
        edges = [address for address, *_ in allocator.moments[since].blocks if address > block.address]
        edges += [end for start, end, *_ in allocator.moments[since].segments if start <= block.address < end]
        assert min(edges) - block.address - size > MIB
        found[block.address] = size
    return found


def hold(allocator: Allocator, since: int, protocol: int, *, pool_ids: bool = True, segments: bool = True) -> None:
    """Asserts that memdiag reads the true states from a snapshot of the allocator."""
    snapshot = allocator.snapshot(since=since, pool_ids=pool_ids, segments=segments)
    device, sizes, trace = read(snapshot, protocol)
    assert not device.anomalies
    if not device.num_events:
        return
    assert sizes.pad == allocator.rules.pad
    shorter = uncertain(device, allocator, since) if since else {}
    truth = Truth(allocator, since, sizes, shorter)
    compare(device, truth)  # type: ignore[arg-type]
    assert trace.complete_from_start == (not allocator.moments[since].blocks and not allocator.moments[since].segments)
    if segments:
        end = allocator.moment()
        assert device.end == {name: end.total(name) for name in ("reserved", "allocated", "active", "requested")}


programs = st.lists(ops, max_size=60)
programs_with_pools = st.lists(ops | pool_ops, max_size=60)
protocols = st.integers(0, 5)


@settings(max_examples=150)
@given(rules, programs, protocols)
def test_a_recording_from_the_start_is_read_exactly(rules, program, protocol):
    hold(run(rules, program), 0, protocol)


@settings(max_examples=100)
@given(rules, programs_with_pools, protocols)
def test_private_pools_are_read_exactly(rules, program, protocol):
    hold(run(rules, program), 0, protocol)


@settings(max_examples=150)
@given(rules, programs_with_pools, st.integers(0, 200), protocols)
def test_a_recording_from_any_entry_is_read_exactly(rules, program, since, protocol):
    allocator = run(replace(rules, reuse_addresses=rules.reuse_addresses and not rules.expandable), program)
    hold(allocator, min(since, len(allocator.entries)), protocol)


@settings(max_examples=60)
@given(rules, programs, protocols)
def test_a_snapshot_without_a_final_state_is_read_exactly(rules, program, protocol):
    hold(run(rules, program), 0, protocol, segments=False)


@settings(max_examples=60)
@given(rules, programs_with_pools, st.integers(0, 100), protocols)
def test_sums_are_exact_if_entries_name_no_pool(rules, program, since, protocol):
    # Before 2.13, entries have no pool id. The pool of a segment freed before the end is unknown, but sums are exact.
    allocator = run(replace(rules, reuse_addresses=False), program)
    since = min(since, len(allocator.entries))
    device, sizes, _ = read(allocator.snapshot(since=since, pool_ids=False), protocol)
    assert not device.anomalies
    truth = Truth(allocator, since, sizes, uncertain(device, allocator, since) if since else {})
    for at, moment in truth.moments(range(-1, device.num_events)).items():
        assert device.usage_at(at) == {
            name: getattr(moment, name) for name in ("reserved", "allocated", "active", "requested")
        }
        if at >= 0 and device.usage.reference[at] >= 0:
            u = device.usage
            assert u.cache[at] + u.stranded[at] + u.foreign[at] == moment.reserved - moment.active


@settings(max_examples=60)
@given(rules, programs_with_pools, st.integers(0, 100))
def test_the_checker_agrees_with_the_allocator(rules, program, since):
    # Traces of real files are compared with the checker (checker.py), so the checker is compared with the allocator.
    allocator = run(replace(rules, reuse_addresses=rules.reuse_addresses and not rules.expandable), program)
    since = min(since, len(allocator.entries))
    snapshot = allocator.snapshot(since=since)
    device, sizes, _ = read(snapshot, 4)
    checker = Checker(snapshot["device_traces"][0], snapshot["segments"], sizes)
    truth = Truth(allocator, since, sizes, uncertain(device, allocator, since) if since else {})
    key = astuple
    assert sorted(map(key, checker.blocks), key=str) == sorted(map(key, truth.blocks), key=str)
    assert checker.references == truth.references
    events = range(-1, len(checker.entries))
    mine, true = checker.moments(events), truth.moments(events)
    for at in events:
        assert mine[at].blocks == true[at].blocks
        assert [(s.start, s.end, s.group) for s in mine[at].segments] == [
            (s.start, s.end, s.group) for s in true[at].segments
        ]


def long_program(chance: random.Random, length: int) -> list[Op]:
    """Returns a program of many calls, few of which empty the cache."""
    program: list[Op] = []
    for _ in range(length):
        kind = chance.random()
        if kind < 0.5:
            size = (
                chance.choice(SIZES)
                if chance.random() < 0.5
                else chance.randrange(1, chance.choice((MIB, 2 * MIB, 30 * MIB)))
            )
            program.append(("alloc", size, chance.choice((0, 0, 0, 7))))
        elif kind < 0.87:
            program.append(("free", chance.randrange(60)))
        elif kind < 0.92:
            program.append(("use", chance.randrange(60), chance.choice((7, 9))))
        elif kind < 0.97:
            program.append(("finish", chance.choice((0, 7, 9))))
        else:
            program.append(chance.choice((("empty",), ("begin", 1), ("begin", 2), ("end", False), ("end", True))))
    return program


@pytest.mark.parametrize("seed", range(16))
def test_long_programs_are_read_exactly(seed):
    chance = random.Random(seed)  # noqa: S311 - seeded
    capacity = chance.choice((160 * MIB, 500 * MIB, 1 << 40))
    rules = Rules(
        expandable=seed % 2 == 0,
        max_split=chance.choice((None, 30 * MIB)),
        capacity=capacity,
        pad=chance.choice((0, 0, 32)),
    )
    allocator = run(rules, long_program(chance, 500))
    hold(allocator, 0, 4)
    hold(allocator, chance.randrange(len(allocator.entries)), 2)
