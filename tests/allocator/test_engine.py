"""The engine agrees with the reference allocator for random programs, settings, versions and initial states."""

import random
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memdiag.allocator.replay import replay
from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import Beginning
from memdiag.allocator.workload import Start
from memdiag.trace.schema import ACTIONS
from tests.allocator.programs import MIB, Calls, Program, cuda_conf, cuda_program, npu_program
from tests.allocator.reference import Reference
from tests.allocator.reference_npu import NpuReference
from tests.allocator.rows import COUNTERS, UNDEFINED, Call, run

SEEDS = st.integers(0, 2**32)
VERSIONS = [(2, 11), (2, 12), (2, 13)]


def chance_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a program, not a secret


def policy(program: Program, backend: str) -> str:
    plain, expandable = ("caching", "expandable") if backend == "cuda" else ("npu", "npu-expandable")
    return expandable if "expandable_segments:True" in program.conf else plain


def assert_same(
    found: Replay,
    allocator: Reference,
    rows: list[tuple[int, ...]],
    before: dict[str, int] | None = None,
    logged: int = 0,
) -> None:
    """Compares rows up to undefined behaviour: addresses, block sizes, counters (since ``before``) and the log.

    The log is compared from entry ``logged`` on.
    """
    wanted = np.array(rows, np.int64)
    end = len(wanted)
    if wanted[-1, 0] == UNDEFINED:
        end -= 1
        assert (found.status[end:] == UNDEFINED).all()
    wanted = wanted[:end]
    bases = np.append(found.bases, 0)
    base_of = allocator.bases
    given_at = np.array([base_of.get(row[1], 0) + row[2] if row[1] >= 0 else -1 for row in wanted.tolist()], np.int64)
    found_at = np.where(found.seg >= 0, bases[found.seg] + found.off, -1)[:end]
    columns = {"status": (found.status, wanted[:, 0]), "block": (found.block, wanted[:, 3])}
    for k, name in enumerate(COUNTERS):
        columns[name] = getattr(found, name), wanted[:, 4 + k] - (before or {}).get(name, 0)
    for name, (ours, theirs) in columns.items():
        different = np.flatnonzero(ours[:end] != theirs)
        assert not len(different), (
            f"{name}: call {different[0]} gave {ours[different[0]]}, should be {theirs[different[0]]}"
        )
    assert (found_at == given_at).all(), f"addresses differ from call {np.flatnonzero(found_at != given_at)[0]} on"
    log, theirs = found.log, allocator.log[logged:]
    assert log is not None
    ours = [
        (ACTIONS[action], int(bases[seg]) + off if seg >= 0 else 0, size, stream, pool)
        for action, call, seg, off, size, stream, pool in zip(
            *(log[name].tolist() for name in ("action", "call", "seg", "off", "size", "stream", "pool")), strict=True
        )
        if call < end
    ]
    theirs = [
        (action, base_of[seg] + off if seg >= 0 else 0, size, stream, pool)
        for action, seg, off, size, stream, pool, _ in theirs
    ]
    assert end < len(rows) or len(ours) == len(theirs)
    assert in_one_order(ours) == in_one_order(theirs[: len(ours)])


def in_one_order(log: list[tuple]) -> list[tuple]:
    """Sorts frees that complete together: a recording does not contain the order of their requests."""
    run_of = list(accumulate(log, lambda number, entry: number + (entry[0] != "free_completed"), initial=0))[1:]
    order = sorted(
        range(len(log)),
        key=lambda at: (run_of[at], log[at][0] == "free_completed", log[at] if log[at][0] == "free_completed" else ()),
    )
    return [log[at] for at in order]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=60)
@given(seed=SEEDS)
def test_cuda(version, seed):
    program = cuda_program(chance_of(seed), 160, rejects=version > (2, 11))
    allocator = Reference(program.total, program.conf, version, program.done)
    rows = list(run(allocator, program.calls))
    found = replay(
        program.workload(),
        policy(program, "cuda"),
        conf=program.conf,
        torch_version=f"{version[0]}.{version[1]}",
        capacity=program.total,
        log=True,
        beginning=Beginning(bases=allocator.all_bases),
    )
    assert_same(found, allocator, rows)


@settings(max_examples=60)
@given(seed=SEEDS)
def test_private_pools_that_are_not_cut_and_that_lend(seed):
    program = cuda_program(chance_of(seed), 200, kinds=(0, 1, 2, 3))
    allocator = Reference(program.total, program.conf, (2, 13), program.done)
    rows = list(run(allocator, program.calls))
    found = replay(
        program.workload(),
        policy(program, "cuda"),
        conf=program.conf,
        capacity=program.total,
        log=True,
        beginning=Beginning(bases=allocator.all_bases),
    )
    assert_same(found, allocator, rows)


@settings(max_examples=120)
@given(seed=SEEDS)
def test_npu(seed):
    program = npu_program(chance_of(seed), 160)
    allocator = NpuReference(program.total, program.conf, program.done)
    rows = list(run(allocator, program.calls))
    found = replay(
        program.workload(),
        policy(program, "npu"),
        conf=program.conf,
        capacity=program.total,
        log=True,
        beginning=Beginning(bases=allocator.all_bases),
    )
    assert_same(found, allocator, rows)


def in_halves(chance: random.Random, calls: list[Call]) -> list[Call]:
    """Splits some frees of the calls into two halves, as in recordings of frees that wait for streams."""
    todo: list[Call] = []
    open_: list[int] = []
    for call in calls:
        if call.op == "free" and chance.random() < 0.4:
            todo.append(call._replace(op="free_requested"))
            open_.append(call.tensor)
        elif call.op not in {"record_stream", "complete", "sync"}:
            todo.append(call)
        while open_ and chance.random() < 0.25:
            todo.append(Call("free_completed", open_.pop(chance.randrange(len(open_))), 0, 0))
    return todo


def recorded_program(chance: random.Random, num_calls: int, *, gc: bool = True) -> Program:
    total = chance.choice([100, 256, 1024]) * MIB
    conf = cuda_conf(chance)
    if not gc:  # recordings do not contain how long blocks have been free
        conf = ",".join(
            part for part in conf.replace("garbage_collection_threshold", "\0").split(",") if not part.startswith("\0")
        )
    return Program(
        conf, total, "recorded", in_halves(chance, list(Calls(chance, total, chance.choice([0, 0, 1])).draw(num_calls)))
    )


@settings(max_examples=80)
@given(seed=SEEDS)
def test_frees_in_two_halves(seed):
    program = recorded_program(chance_of(seed), 160)
    allocator = Reference(program.total, program.conf, (2, 13), "manual")
    rows = list(run(allocator, program.calls))
    found = replay(
        program.workload(),
        policy(program, "cuda"),
        conf=program.conf,
        capacity=program.total,
        log=True,
        beginning=Beginning(bases=allocator.all_bases),
    )
    assert_same(found, allocator, rows)


def start_of(allocator: Reference) -> Start:
    """Returns an allocator's current state in the form of a recording: reserved ranges, and blocks in use."""
    pieces: list[tuple[int, ...]] = []
    blocks: list[tuple[int, ...]] = []
    pending = {id(block): tensor for tensor, block in allocator.halves.items()}
    for pool in allocator.default:
        for segment in pool.segments:
            about = (0, segment.stream, pool.small, segment.page > 0, segment.number)
            if segment.page:
                pieces.append((segment.base, 0, *about))  # the start of the range
            for block in segment.blocks:
                at = segment.base + block.off
                if block.mapped and pieces and pieces[-1][0] + pieces[-1][1] == at and pieces[-1][6] == segment.number:
                    pieces[-1] = (pieces[-1][0], pieces[-1][1] + block.size, *about)
                elif block.mapped:
                    pieces.append((at, block.size, *about))
                if block.mapped and not block.idle:
                    blocks.append(
                        (len(pieces) - 1, at, block.size, block.tensor, block.requested, id(block) in pending)
                    )
    held, used = np.array(pieces, np.int64).reshape(-1, 7), np.array(blocks, np.int64).reshape(-1, 6)
    return Start(
        base=held[:, 0],
        size=held[:, 1],
        pool=held[:, 2].astype(np.int32),
        stream=held[:, 3].astype(np.int32),
        small=held[:, 4] > 0,
        expandable=held[:, 5] > 0,
        order=held[:, 6],
        block_range=used[:, 0].astype(np.int32),
        block_off=used[:, 1] - held[used[:, 0], 0],
        block_size=used[:, 2],
        block_tensor=used[:, 3].astype(np.int32),
        block_requested=used[:, 4],
        block_pending=used[:, 5] > 0,
    )


@pytest.mark.parametrize("version", [(2, 11), (2, 13)])
@settings(max_examples=60)
@given(seed=SEEDS)
def test_a_start_in_the_middle(version, seed):
    chance = chance_of(seed)
    program = recorded_program(chance, 200, gc=False)
    if version == (2, 11):
        program.conf = ",".join(part for part in program.conf.split(",") if "throw_on" not in part)
    first = chance.randrange(len(program.calls))
    allocator = Reference(program.total, program.conf, version, "manual")
    list(run(allocator, program.calls[:first]))
    # Recordings do not contain a range without mapped pages, which exists if the driver had no memory left for it.
    assume(
        all(any(block.mapped for block in segment.blocks) for pool in allocator.default for segment in pool.segments)
    )
    start, logged, held = start_of(allocator), len(allocator.log), len(allocator.bases)
    before = {name: getattr(allocator, name) for name in ("retries", "ooms", "device_allocs", "device_frees")}
    rows = list(run(allocator, program.calls[first:]))
    whole = program.workload()
    work = Program(program.conf, program.total, "recorded", program.calls[first:]).workload(
        num_streams=len(whole.streams), start=start
    )
    found = replay(
        work,
        policy(program, "cuda"),
        conf=program.conf,
        torch_version=f"{version[0]}.{version[1]}",
        capacity=program.total,
        log=True,
        beginning=Beginning(bases=allocator.all_bases[held:]),
    )
    assert_same(found, allocator, rows, before, logged)
