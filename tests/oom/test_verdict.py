"""The cause inferred from an allocator's numbers: one example with round numbers per rule, and any numbers at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.oom.model import Found
from memdiag.oom.verdict import judge
from memdiag.results.oom import CAUSES, Judgement
from memdiag.units import GIB
from tests.oom.made import FOUND, found

CASES = {
    "larger than the card": (found(requested=30, total=24, free=20, allocated=1, unallocated=0), "capacity", "high"),
    "twice the model": (found(requested=50, total=80, free=29, allocated=50, unallocated=0.1), "capacity", "high"),
    "full of tensors": (
        found(requested=0.5, total=24, free=0.1, allocated=22.8, unallocated=0.2, process=23.8),
        "capacity",
        "high",
    ),
    "the context of a small card": (
        found(requested=0.002, total=6, free=0, allocated=4.9, reserved=5),
        "capacity",
        "medium",
    ),
    "pieces": (found(requested=1, total=24, free=0.2, allocated=14, unallocated=9), "fragmentation", "high"),
    "pieces beside some others": (
        found(requested=1, total=64, free=0, allocated=52, reserved=57),
        "fragmentation",
        "medium",
    ),
    "just over, with what is free": (
        found(requested=10, total=80, free=6, allocated=67, unallocated=5),
        "fragmentation",
        "low",
    ),
    "dust": (found(requested=0.03, total=24, free=0.02, allocated=22.9, unallocated=0.3), "capacity", "medium"),
    "others, in old messages": (
        found(requested=1, total=24, free=0.5, allocated=2, reserved=2.2),
        "other_process",
        "high",
    ),
    "others, listed": (
        found(
            requested=1, total=24, free=0.1, allocated=2, unallocated=0.1, process=2.6, other_processes=[[7, 21 * GIB]]
        ),
        "other_process",
        "high",
    ),
    "others, too few to matter": (
        found(
            requested=0.2,
            total=24,
            free=0.1,
            allocated=20.5,
            unallocated=0.1,
            process=21.5,
            other_processes=[[7, 2 * GIB]],
        ),
        "capacity",
        "medium",
    ),
    "others, though some pieces are free": (
        found(requested=0.6, total=40, free=0.5, allocated=1, reserved=1.8),
        "other_process",
        "medium",
    ),
    "libraries of this process": (
        found(requested=1, total=80, free=0.1, allocated=60, unallocated=0.2, process=79.8),
        "workspace_or_comm",
        "medium",
    ),
    "pools of graphs": (
        found(requested=1, total=48, free=0.1, allocated=46, unallocated=0.2, private_pool=40),
        "workspace_or_comm",
        "medium",
    ),
    "one job on Ascend": (
        found("npu", requested=1, total=61, free=0.2, allocated=46, active=46, reserved=47),
        "workspace_or_comm",
        "low",
    ),
    "somebody else on Ascend": (
        found("npu", requested=1, total=61, free=0.2, allocated=8, active=8, reserved=8.5),
        "other_process",
        "high",
    ),
    "a limit": (found(requested=1, total=80, free=30, allocated=39, unallocated=0.5, limit=40), "limit", "high"),
    "a limit that is not reached": (
        found(requested=1, total=80, free=0.2, allocated=39, unallocated=0.5, limit=60),
        "other_process",
        "medium",
    ),
    "a limit, and what is reserved was cut off": (
        found(requested=0.1, total=80, free=30, allocated=38, limit=40),
        "limit",
        "medium",
    ),
    "a limit, and the card is full": (
        found(requested=1, total=80, free=0.2, allocated=78, unallocated=0.3, limit=78.5),
        "capacity",
        "medium",
    ),
    "a limit below the request": (
        found(requested=8, total=80, free=75, allocated=1, unallocated=0, limit=5),
        "limit",
        "high",
    ),
    "the watermark of MPS": (found("mps", requested=1, allocated=17, other_alloc=0.5, limit=18), "limit", "medium"),
    "pages in the host's memory": (
        found(requested=1, total=8, free=0, allocated=12, reserved=13.5),
        "capacity",
        "medium",
    ),
    "sleeping pools": (
        found(requested=4, total=80, free=5, allocated=90, unallocated=9, private_pool=0.5, process=70),
        "fragmentation",
        "low",
    ),
    "more free than asked for": (found(requested=8, total=24, free=14, allocated=9, unallocated=0.2), "unknown", "low"),
    "a limit that is not printed": (
        found(requested=0.06, total=80, free=38, allocated=39, unallocated=0.97),
        "limit",
        "low",
    ),
    "much more free than asked for": (
        found("hip", requested=0.002, total=288, free=203, allocated=69, unallocated=15),
        "unknown",
        "low",
    ),
    "the last drops": (
        found(requested=0.02, total=24, free=0.1, allocated=10, reserved=10.3),
        "other_process",
        "medium",
    ),
    "nearly the whole card": (
        found(requested=15, total=16, free=15.8, allocated=0, unallocated=0),
        "capacity",
        "medium",
    ),
    "4 GiB at once on XPU": (found("xpu", requested=6, total=16, allocated=1, unallocated=0), "limit", "medium"),
    "little on XPU": (found("xpu", requested=1, total=16, allocated=1, reserved=1.2), "unknown", "low"),
    "no reserved": (found(requested=1, total=44, free=0.8, allocated=42.5), "capacity", "high"),
    "no reserved, and much is open": (found(requested=1, total=44, free=0.8, allocated=11), "unknown", "low"),
    "cut behind this process": (found(requested=0.3, total=24, free=0.1, process=23), "capacity", "low"),
    "cut behind this process, a small one": (
        found(requested=0.3, total=24, free=0.1, process=2),
        "other_process",
        "medium",
    ),
    "cut behind what is free": (found(requested=0.3, total=24, free=0.1), "unknown", "low"),
    "no request": (found(allocated=70, unallocated=1, process=72), "unknown", "low"),
    "garbage": (found(requested=200_000, total=24, free=20, allocated=1, unallocated=0), "capacity", "medium"),
    "garbage, and no card": (found(requested=200_000), "unknown", "high"),
    "host": (found("cpu", requested=10), "host", "high"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_decide_cause_and_confidence(name):
    message, verdict, confidence = CASES[name]
    judgement = judge(message)
    assert (judgement.verdict, judgement.confidence) == (verdict, confidence), judgement


def test_the_judgement_of_a_dialect_is_kept():
    own = Judgement("limit", "high", (), ("It says so.",))
    assert judge(Found(0, 1, "x", "x", "cuda", {"requested_bytes": 1}, own)) is own


def test_the_first_reason_is_the_decisive_arithmetic():
    reason = judge(found(requested=50, total=80, free=29, allocated=50, unallocated=0.1)).reasons[0]
    assert "50.00 GiB allocated + 50.00 GiB requested = 100.00 GiB. That is more than the 80.00 GiB" in reason
    reason = judge(found(requested=1, total=24, free=0.5, allocated=2, reserved=2.2)).reasons[0]
    assert (
        "21.30 GiB is used outside this allocator: 24.00 GiB total - 512.00 MiB free - 2.20 GiB reserved here."
        in reason
    )


def test_missing_numbers_are_named_in_the_reason():
    assert "the size of the request" in judge(found(allocated=70, unallocated=1)).reasons[0]
    assert "does not show the reserved memory" in judge(found(requested=1, total=44, free=0.8, allocated=11)).reasons[0]


@pytest.mark.parametrize(
    ("context", "verdict"),
    [
        ("engine.wake_up(tags=['weights'])", "limit"),
        ("self.graph.capture_end()", "limit"),
        ("torch.distributed.init_process_group('nccl')", "workspace_or_comm"),
        ("x = layer(x)", "unknown"),
    ],
)
def test_without_numbers_the_lines_around_decide(context, verdict):
    assert judge(Found(0, 1, "cuda_bare", "pytorch", "cuda"), context).verdict == verdict


def test_cached_memory_of_old_messages_is_unallocated():
    assert (
        judge(found(dialect="torch_cuda_cached", requested=1, total=24, free=0.1, allocated=15, cached=7.5)).verdict
        == "fragmentation"
    )


@given(FOUND, st.text(max_size=50))
def test_any_numbers_give_a_valid_judgement(message, context):
    judgement = judge(message, context)
    assert judgement.verdict in CAUSES
    assert judgement.verdict not in judgement.alternatives
    assert set(judgement.alternatives) <= set(CAUSES)
    assert len(set(judgement.alternatives)) == len(judgement.alternatives)
    assert judgement.reasons
    assert all(
        reason.endswith(".") and "unknown" not in reason and "None" not in reason for reason in judgement.reasons
    ), judgement


@given(st.integers(1, 200), st.integers(1, 99), st.integers(1, 100))
def test_a_request_larger_than_the_device_is_always_capacity(total, part, beyond):
    used = total * part / 100
    message = found(
        requested=total + beyond,
        total=total,
        free=total - used,
        allocated=used / 2,
        unallocated=used / 2,
        limit=total * 0.9,
    )
    assert judge(message).verdict == "capacity"
