"""Impossible process sizes, such as "this process has 0 bytes memory in use" in containers and virtual machines."""

from __future__ import annotations

import pytest

from memdiag.diagnosis.facts import Facts
from memdiag.oom.ledger import account
from memdiag.oom.verdict import judge
from memdiag.units import GIB, MIB
from tests.oom.made import found
from tests.oom.single import single

FULL = {"requested": 2.5, "total": 24, "free": 1.5, "allocated": 21.2, "unallocated": 0.3}


def test_zero_bytes_of_this_process_count_as_unknown():
    message = found(process=0, **FULL)
    judgement = judge(message)
    assert judgement.verdict == "capacity"
    assert judgement.reasons == judge(found(**FULL)).reasons
    assert not any("process" in entry.owner and entry.owner != "this process" for entry in account(message))


@pytest.mark.parametrize(("process", "believed"), [(0, False), (3, False), (21, False), (21.3, True), (22.4, True)])
def test_a_process_size_below_its_allocated_memory_is_ignored(process, believed):
    fields = found(process=process, **FULL).fields
    assert (Facts.from_fields(fields).process is not None) == believed


def test_a_process_size_below_its_allocated_memory_is_kept_for_sleeping_pools():
    fields = found(process=6, requested=4, total=80, free=3, allocated=76, unallocated=0.1).fields
    assert Facts.from_fields(fields).process is None
    asleep = found(process=6, requested=4, total=80, free=70, allocated=60, unallocated=0.1).fields
    assert Facts.from_fields(asleep).process == 6 * GIB


def test_fragmentation_is_found_without_the_process_size():
    assert (
        judge(found(process=0, requested=1, total=24, free=0.2, allocated=16, unallocated=7)).verdict == "fragmentation"
    )


@pytest.mark.parametrize("listed", [True, False])
def test_memory_of_other_processes_is_found_without_the_reserved_memory(listed):
    processes = {"processes": [[41, 9 * GIB], [52, 6 * GIB]]} if listed else {}
    message = found(requested=20 / 1024, total=15.9, free=5 / 1024, allocated=60 / 1024, **processes)
    judgement = judge(message)
    assert judgement.verdict == "other_process"
    assert ("41 (9.00 GiB), 52 (6.00 GiB)" in " ".join(judgement.reasons)) == listed


def test_a_message_with_zero_bytes_for_this_process_names_the_other_process():
    message = single(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 26.00 MiB. GPU 1 has a total capacity of 15.60 "
        "GiB of which 6.12 MiB is free. Process 88 has 15.20 GiB memory in use. Including non-PyTorch memory, this "
        "process has 0 bytes memory in use. Of the allocated memory 91.00 MiB is allocated by PyTorch, and 3.00 MiB is "
        "reserved by PyTorch but unallocated."
    )
    assert (message.judgement.verdict, message.fields["process_bytes"]) == ("other_process", 0)
    assert message.fields["requested_bytes"] == 26 * MIB
    assert "88" in message.findings[0].evidence[0].what
