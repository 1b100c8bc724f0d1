"""MD141 adds up the memory of communicators, and suggests fewer channels, buffers or communicators."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from memdiag.analyzers import communicators
from memdiag.analyzers.support.context import Context
from memdiag.sources import load
from memdiag.trace.card import Card, MemorySample
from memdiag.units import GIB
from tests.sources.library_logs import MIB, NcclProcess, all_to_all

A, B = 0x55AA0000, 0x55BB0000


def read(text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "nccl.log")
        path.write_text(text)
        return load(path)


def found(text=None):
    """Returns the findings on a log."""
    return list(communicators.analyze(read(text or all_to_all().text), Context()))


def lines(finding):
    return [fix.change for fix in finding.fixes]


def values(finding):
    return {evidence.what: evidence.value for evidence in finding.evidence}


def test_an_all_to_all_is_a_warning_with_its_numbers():
    (finding,) = found()
    assert finding.severity == "warning"
    assert finding.title == "NCCL holds 3.06 GiB outside the allocator, in 1 communicator"
    assert values(finding)["communicator 0xf021d9037f9243d8"] == 3_288_334_336
    assert values(finding)["buffers of 10.00 MiB"] == 224 * 10 * MIB
    assert lines(finding)[0] == "export NCCL_MAX_P2P_NCHANNELS=8"


def test_a_little_memory_is_no_finding():
    log = NcclProcess()
    log.begin(A, 4010)
    log.alloc(60 * MIB, thread=4010)
    assert not found(log.text)


@pytest.mark.parametrize(("capacity", "severity"), [(24 * GIB, "warning"), (80 * GIB, "info")])
def test_the_severity_depends_on_the_size_of_the_device(capacity, severity):
    trace = read(all_to_all(channels=18).text)
    (device,) = trace.devices
    (finding,) = communicators.analyze(replace(trace, devices=(replace(device, capacity_bytes=capacity),)), Context())
    assert finding.severity == severity


def test_the_part_that_no_log_explains_is_named():
    trace = read(all_to_all(channels=8).text)
    (device,) = trace.devices
    card = Card((MemorySample("end", 3, 80 * GIB, 70 * GIB, 8 * GIB),))
    (finding,) = communicators.analyze(replace(trace, devices=(replace(device, card=card),)), Context())
    held = 7 * 8 * 14 * MIB
    assert values(finding)["memory outside the allocator, according to the driver"] == 2 * GIB
    rest = values(finding)[
        "memory outside the allocator that the log does not contain: context, kernels, other libraries, other processes"
    ]
    assert rest == 2 * GIB - held


def test_a_group_with_one_rank_needs_no_communicator():
    log = NcclProcess()
    log.begin(A, 4010, ranks=1)
    log.alloc(512 * MIB, "transport/net.cc:656", 4010)
    log.complete(A, 4010, ranks=1)
    (finding,) = found(log.text)
    assert lines(finding)[0].startswith("if dist.get_world_size(group) > 1")
    assert not any("NCHANNELS" in line for line in lines(finding))


def test_several_communicators_could_share_resources():
    log = NcclProcess()
    for number in range(8):
        log.begin(A + 16 * number, 4010, identity=f"{number + 1:x}")
        log.alloc((100 + number) * MIB, thread=4010)
        log.complete(A + 16 * number, 4010, identity=f"{number + 1:x}")
    log.say("NCCL_BUFFSIZE set by environment to 1048576.")
    (finding,) = found(log.text)
    assert values(finding)["2 other communicators"] == 201 * MIB
    assert any("split_share" in line for line in lines(finding))
    assert not any("NCCL_BUFFSIZE" in line for line in lines(finding))


def test_a_destroyed_communicator_shows_its_peak():
    log = NcclProcess()
    log.begin(A, 4010)
    log.alloc(100 * MIB, thread=4010)
    log.complete(A, 4010)
    log.say(f"comm {A:#x} rank 0 nranks 8 cudaDev 0 busId 18000 - Destroy COMPLETE", 4010)
    (finding,) = found(log.text)
    assert values(finding)["communicator 0xf021d9037f9243d8, freed: its peak"] == 100 * MIB
    assert "100.00 MiB" in finding.title


def test_hccl_has_its_own_remedy(tmp_path):
    path = tmp_path / "plog.log"
    head = "[INFO] HCCL(4711,python):2026-11-22-10:00:00.716.583 [ccl.cc:60] [4711]"
    path.write_text(f"{head}[CreateCCLbuffer] buffer ptr[0x10], size[420478976]\n")
    (finding,) = communicators.analyze(load(path), Context())
    assert finding.title.startswith("HCCL holds 401.00 MiB")
    assert lines(finding) == ["export HCCL_BUFFSIZE=100"]


PAGE_EXAMPLES = {
    "MD141": found,
}
