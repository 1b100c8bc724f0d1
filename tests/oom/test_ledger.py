"""The memory breakdown of a device adds up to the byte for any printed numbers, and contradictions are reported."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memdiag.diagnosis.facts import Facts
from memdiag.oom.ledger import account
from memdiag.oom.model import Found
from memdiag.units import GIB, MIB
from tests.oom.made import FOUND, found


def parts(**sizes):
    return {entry.what.split(" (")[0].split(":")[0]: entry.bytes for entry in account(found(**sizes))}


def test_every_printed_number_is_in_the_breakdown():
    ledger = account(
        found(
            requested=1,
            total=24,
            free=0.5,
            allocated=9,
            unallocated=2,
            private_pool=1,
            process=14.25,
            other_processes=[[7, 4 * GIB], [8, 5 * GIB]],
        )
    )
    assert [(entry.what.split(" (")[0], (entry.bytes or 0) / GIB, entry.owner, entry.basis) for entry in ledger] == [
        ("allocated by PyTorch", 8, "this process", "computed"),
        ("free in private pools", 1, "this process", "printed"),
        ("reserved but unallocated", 2, "this process", "printed"),
        ("context and libraries of this process", 3.25, "this process", "computed"),
        ("process 7", 4, "other processes", "printed"),
        ("process 8", 5, "other processes", "printed"),
        ("free", 0.5, "free", "printed"),
        ("unknown: processes that a container does not see, or the driver", 0.25, "unknown", "computed"),
        ("total", 24, "total", "printed"),
    ]


def test_without_a_size_of_this_process_the_rest_is_unknown_with_possible_owners():
    *_, rest, total = account(found(requested=1, total=24, free=0.5, allocated=9, reserved=11))
    assert (rest.bytes, rest.owner) == (12.5 * GIB, "unknown")
    assert "context and libraries of this process" in rest.what
    assert "other processes" in rest.what
    assert total.bytes == 24 * GIB


def test_hccl_and_workspaces_are_named_on_ascend():
    *_, rest, _ = account(found("npu", requested=1, total=61, free=0.5, allocated=40, reserved=45))
    assert "HCCL" in rest.what


def test_of_two_unnamed_processes_the_one_of_matching_size_is_this_one():
    ledger = account(
        found(requested=90, total=80, free=40, allocated=10, unallocated=0.5, processes=[[7, 11 * GIB], [8, 28 * GIB]])
    )
    (outside,) = [entry for entry in ledger if "context and libraries" in entry.what]
    assert "(process 7, identified by its size)" in outside.what
    assert (outside.bytes, outside.basis) == (GIB // 2, "inferred")
    assert [entry.what for entry in ledger if entry.owner == "other processes"] == ["process 8"]


def test_counted_memory_beyond_the_device_size_is_reported():
    first, *_ = account(found(requested=1, total=8, free=0, allocated=12, reserved=13))
    assert first.what == "allocated by PyTorch (counted as 12.00 GiB, which is 5.00 GiB more than the device can hold)"
    assert (first.bytes, first.basis) == (7 * GIB, "inferred")


def test_sleeping_pools_do_not_reduce_the_memory_of_other_processes():
    ledger = account(found(total=80, free=5, allocated=90, unallocated=9, process=70, other_processes=[[7, 4 * GIB]]))
    assert sum(entry.bytes or 0 for entry in ledger if entry.owner == "this process") == 70 * GIB
    assert sum(entry.bytes or 0 for entry in ledger if entry.owner == "other processes") == 4 * GIB


def test_a_few_mebibytes_are_attributed_to_rounding():
    *_, rest, _ = account(found(total=24, free=0.5, allocated=9, unallocated=2, process=23.49))
    assert rest.what == "unknown (rounding of the printed numbers)"
    assert rest.bytes == 24 * GIB - round(0.5 * GIB) - round(23.49 * GIB)
    assert rest.bytes < 16 * MIB


def test_without_a_total_only_the_parts_are_listed():
    ledger = account(found(requested=1, allocated=9, unallocated=2))
    assert [(entry.what, entry.bytes) for entry in ledger] == [
        ("allocated by PyTorch", 9 * GIB),
        ("reserved but unallocated", 2 * GIB),
        ("total", None),
    ]
    assert account(found(requested=1)) == ()


def test_other_allocations_of_mps_belong_to_this_process():
    assert parts(backend="mps", requested=1, allocated=4, other_alloc=2) == {
        "allocated": 4 * GIB,
        "other allocations": 2 * GIB,
        "total": None,
    }


def test_used_host_memory_is_in_the_breakdown():
    assert parts(backend="cpu", total=60, allocated=55)["in use on the host"] == 55 * GIB


@given(FOUND)
def test_parts_add_up_to_the_total_and_none_is_negative(message):
    ledger = account(message)
    assume(ledger)
    *entries, total = ledger
    assert total.what == "total"
    assert total.bytes == message.fields.get("total_bytes")
    assert all(entry.bytes is None or entry.bytes >= 0 for entry in entries)
    if total.bytes is not None:
        assert sum(entry.bytes or 0 for entry in entries) == total.bytes


_MIB = st.integers(0, 80_000).map(lambda size: size * MIB)


@given(_MIB, _MIB, _MIB, _MIB, _MIB, st.booleans())
def test_numbers_that_agree_are_all_shown_as_printed(allocated, slack, context, other, free, listed):
    fields = {
        "total_bytes": allocated + slack + context + other + free,
        "free_bytes": free,
        "allocated_bytes": allocated,
        "unallocated_bytes": slack,
        "process_bytes": allocated + slack + context,
    }
    if listed:
        fields["other_processes"] = [[7, other]]
    ledger = account(Found(0, 1, "torch_cuda_21", "pytorch", "cuda", fields))
    owners = {
        owner: sum(entry.bytes or 0 for entry in ledger if entry.owner == owner) for owner in ("this process", "free")
    }
    assert owners == {"this process": allocated + slack + context, "free": free}
    assert not any("room for" in entry.what for entry in ledger)


@pytest.mark.parametrize("backend", ["cuda", "npu"])
def test_invalid_numbers_count_as_not_printed(backend):
    numbers = Facts.from_fields(
        {"total_bytes": "24", "free_bytes": -1, "allocated_bytes": 1.5, "other_processes": [1, [2], "x"]}, backend
    )
    assert (numbers.total, numbers.free, numbers.allocated, numbers.others) == (None, None, None, ())
