"""Logs of NCCL and RCCL: bytes, processes, devices and communicators, in the wordings of several versions."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from memdiag.errors import RefusedFile
from memdiag.redaction import VARIABLE
from memdiag.sources import load
from memdiag.sources.nccl_log import read_memories, sniff
from tests.sources.library_logs import MIB, NcclProcess, all_to_all, several

A, B = 0x55AA0000, 0x55BB0000
OTHER = "0123456789abcdef"


def memories(tmp_path, text):
    path = tmp_path / "nccl.log"
    path.write_text(text)
    return read_memories(path)


def only(tmp_path, text):
    (memory,) = memories(tmp_path, text)
    return memory


def by_identity(memory):
    return {comm.identity: comm.live_bytes for comm in memory.communicators}


def test_an_all_to_all_on_eight_gpus_takes_3_28_gb(tmp_path):
    path = tmp_path / "nccl.log"
    path.write_text(all_to_all().text)
    trace = load(path)
    (memory,) = trace.libraries
    (comm,) = memory.communicators
    assert memory.live_bytes == comm.live_bytes == 7 * 32 * (10 + 2 + 2) * MIB == 3_288_334_336
    assert (comm.identity, comm.rank, comm.num_ranks) == ("0xf021d9037f9243d8", 0, 8)
    assert (comm.num_channels, comm.num_p2p_channels, comm.num_buffers) == (32, 32, 672)
    assert [(row.bytes, row.count) for row in memory.sizes] == [(10 * MIB, 224), (2 * MIB, 448)]
    (device,) = trace.devices
    assert (trace.format, trace.backend, device.end["allocated"]) == ("nccl-log", None, 3_288_334_336)
    assert (device.tensors.category > 0).all()
    assert {note.code for note in trace.notes} == {"MD910", "MD912", "MD913", "MD917"}


def test_each_process_and_device_is_a_device_of_the_trace(tmp_path):
    logs = [all_to_all(4000 + 100 * rank, rank, ranks=2, channels=2) for rank in range(2)]
    path = tmp_path / "nccl.log"
    path.write_text("".join(f"{line}\n" for line in several(logs)))
    trace = load(path)
    assert [(memory.pid, memory.device, memory.live_bytes) for memory in trace.libraries] == [
        (4000, 0, 28 * MIB),
        (4100, 1, 28 * MIB),
    ]
    assert [device.device for device in trace.devices] == [0, 1]


def test_processes_that_see_one_device_each_get_numbers(tmp_path):
    logs = [all_to_all(4000 + 100 * rank, 0, ranks=2, channels=1) for rank in range(3)]
    path = tmp_path / "nccl.log"
    path.write_text("".join(f"{line}\n" for line in several(logs)))
    trace = load(path)
    assert [memory.device for memory in trace.libraries] == [0, 1, 2]
    assert "process 4200" in next(note.text for note in trace.notes if note.code == "MD919")


def test_two_lines_about_one_buffer_count_once(tmp_path):
    log = NcclProcess()
    log.begin(A, 4010)
    at = log.alloc(33_554_432, "transport/p2p.cc:233", 4011)
    log.say(f"Allocated shareable buffer {at:#x} size 33554432 ipcDesc 0x7f00", 4011)
    log.complete(A, 4010)
    assert only(tmp_path, log.text).live_bytes == 33_554_432


def test_a_buffer_that_is_mapped_in_pages_has_the_size_of_its_pages(tmp_path):
    log = NcclProcess()
    log.begin(A, 4010)
    at = log.pointer(2 * MIB)
    log.trace(f"CuMem Alloc Size {2 * MIB} pointer {at:#x} handle 7f0012", 4010)
    log.say(f"init.cc:447 (devCommSetup) Cuda Calloc Size 23648 pointer {at:#x} memType 0", 4010)
    log.alloc(16, thread=4010)
    memory = only(tmp_path, log.text)
    assert (memory.live_bytes, memory.page_bytes) == (2 * MIB + 16, 4 * MIB)


def test_host_memory_is_counted_apart(tmp_path):
    log = NcclProcess()
    log.begin(A, 4010)
    log.say("init.cc:491 Cuda Host Alloc Size 1048576 pointer 0x7fef1be82000", 4010)
    log.say("CUMEM Host Alloc Size 2097152 pointer 0x7fef2be82000 handle 7f numa 0 dev 0 granularity 2097152", 4010)
    log.say("init.cc:310 Mem Alloc Size 32 pointer 0x7f081805a050", 4010)
    log.say("transport/net_ib.cc:657 Ib Alloc Size 21688 pointer 0x7f15f8268000", 4010)
    log.alloc(4096, thread=4010)
    memory = only(tmp_path, log.text)
    assert (memory.live_bytes, memory.host_bytes) == (4096, 3 * MIB)


def test_a_failed_allocation_is_none(tmp_path):
    log = NcclProcess()
    log.say("transport/net.cc:656 Cuda Alloc Size 536870912 pointer (nil)")
    with pytest.raises(RefusedFile, match="no allocations"):
        memories(tmp_path, log.text)


def test_frees_and_the_end_of_a_communicator(tmp_path):
    log = NcclProcess()
    log.begin(A, 4010)
    first = log.alloc(8 * MIB, thread=4010)
    log.complete(A, 4010)
    log.begin(B, 4020, identity=OTHER)
    log.alloc(3 * MIB, thread=4020)
    log.complete(B, 4020, identity=OTHER)
    log.trace(f"Cuda Free pointer {first:#x}", 4010)
    log.trace("Cuda Free pointer 0x7f1234560000", 4010)
    log.say(f"comm {B:#x} rank 0 nranks 8 cudaDev 0 busId 18000 - Destroy COMPLETE", 4020)
    memory = only(tmp_path, log.text)
    assert (memory.live_bytes, memory.peak_bytes) == (0, 11 * MIB)
    ends = [(comm.peak_bytes, comm.is_destroyed) for comm in memory.communicators]
    assert ends == [(8 * MIB, False), (3 * MIB, True)]
    path = tmp_path / "nccl.log"
    assert load(path).devices[0].usage.allocated.tolist()[-1] == 0
    assert "MD912" not in {note.code for note in load(path).notes}


def test_a_proxy_thread_serves_the_communicator_during_whose_creation_it_began(tmp_path):
    log = NcclProcess()
    log.begin(A, 4010)
    log.say("[Proxy Service] Device 0 CPU core 10", 4011)
    log.complete(A, 4010)
    log.begin(B, 4020, identity=OTHER)
    log.say("[Proxy Service] Device 0 CPU core 12", 4021)
    log.complete(B, 4020, identity=OTHER)
    for thread, count in ((4011, 1), (4021, 3), (4011, 1)):
        for _ in range(count):
            log.shareable(MIB, thread)
    assert by_identity(only(tmp_path, log.text)) == {"0xf021d9037f9243d8": 2 * MIB, f"0x{OTHER}": 3 * MIB}


def test_a_thread_that_names_a_communicator_allocates_for_it(tmp_path):
    log = NcclProcess()
    for comm, thread, identity in ((A, 4010, "f021d9037f9243d8"), (B, 4020, OTHER)):
        log.begin(comm, thread, identity=identity)
        log.complete(comm, thread, identity=identity)
    log.say(f"AllReduce: opCount 0 sendbuff 0x7f13 recvbuff 0x7f13 count 1 comm {B:#x} [nranks=8] stream 0x55d6", 4000)
    log.alloc(5 * MIB)
    log.alloc(7 * MIB, thread=4999)
    memory = only(tmp_path, log.text)
    assert by_identity(memory) == {f"0x{OTHER}": 5 * MIB, "0xf021d9037f9243d8": 0}
    assert memory.unassigned_bytes == 7 * MIB


def test_memory_from_just_before_the_logged_begin_belongs_to_the_communicator(tmp_path):
    log = NcclProcess()
    log.begin(A, 4000)
    log.complete(A, 4000)
    log.alloc(2 * MIB, "init.cc:447", 4000)  # commAlloc, before the line of the begin
    log.begin(B, 4000, identity=OTHER)
    log.complete(B, 4000, identity=OTHER)
    assert by_identity(only(tmp_path, log.text)) == {f"0x{OTHER}": 2 * MIB, "0xf021d9037f9243d8": 0}


def test_old_versions_log_only_the_end_of_the_creation(tmp_path):
    log = NcclProcess()
    for comm, rank in ((A, 0), (B, 1)):
        log.alloc(4 * MIB, "channel.cc:23", 4000)
        log.shareable(6 * MIB, 4010 + rank)
        log.say(f"8 coll channels, 8 p2p channels, {rank + 1} p2p channels per peer", 4000)
        log.say(f"comm {comm:#x} rank {rank} nranks 8 cudaDev 0 busId 18000 - Init COMPLETE", 4000)
    memory = only(tmp_path, log.text)
    assert by_identity(memory) == {f"{A:#x}": 10 * MIB, f"{B:#x}": 10 * MIB}
    assert [comm.num_channels for comm in memory.communicators] == [8, 8]


def test_a_split_communicator_is_identified_by_its_parent_and_color(tmp_path):
    log = NcclProcess()
    log.begin(A, 4010)
    log.complete(A, 4010)
    for state in ("Init START", "Init COMPLETE"):
        log.say(
            f"ncclCommSplit comm {B:#x} rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 18000 parent {A:#x} splitCount 1"
            f" color 7 key 0- {state}",
            4012,
        )
        if state == "Init START":
            log.alloc(MIB, thread=4012)
    assert by_identity(only(tmp_path, log.text))[f"{A:#x}/7"] == MIB


def test_an_address_that_is_used_again_was_freed(tmp_path):
    log = NcclProcess()
    log.begin(A, 4010)
    at = log.alloc(8 * MIB, thread=4010)
    log.say(f"channel.cc:40 Cuda Alloc Size 512 pointer {at:#x}", 4010)
    assert only(tmp_path, log.text).live_bytes == 512


def test_rccl_and_its_lines(tmp_path):
    log = NcclProcess()
    log.say("RCCL version : 2.22.3-HEAD:abc", 4010)
    log.begin(A, 4010)
    log.alloc(4 * MIB, "channel.cc:52", 4010, " flags 0")
    log.say(f"comm:{A:#x}, nRanks:2, coll channels:2 collnet channels:2, nvls channels:0, p2p channels:2", 4010)
    memory = only(tmp_path, log.text)
    assert (memory.library, memory.version, memory.live_bytes) == ("RCCL", "2.22.3-HEAD", 4 * MIB)
    assert (memory.communicators[0].num_channels, memory.communicators[0].num_p2p_channels) == (2, 2)


def test_settings_and_the_version_are_known(tmp_path):
    log = NcclProcess()
    log.say("NCCL version 2.27.5+cuda12.9")
    log.say("NCCL_BUFFSIZE set by environment to 8388608.")
    log.begin(A, 4010)
    log.alloc(MIB, thread=4010)
    memory = only(tmp_path, log.text)
    assert (memory.version, memory.settings) == ("2.27.5+cuda12.9", {"NCCL_BUFFSIZE": "8388608"})


def test_pytorchs_log_names_the_process_group(tmp_path):
    log = NcclProcess()
    log.begin(A, 4010)
    log.alloc(MIB, thread=4010)
    log.complete(A, 4010)
    log.lines.append(
        f"I1122 ProcessGroupNCCL.cpp:2899] [PG ID 1 PG GUID 3(tp) Rank 0] ProcessGroupNCCL created ncclComm_ {A:#x} on"
        " CUDA device: 0"
    )
    (comm,) = only(tmp_path, log.text).communicators
    assert comm.name == "tp"


@pytest.mark.parametrize("prefix", ["[2026-11-22 10:00:00.250000] ", "(Worker pid=7) ", "[rank0]: ", "0: "])
def test_prefixes_of_launchers_do_not_matter(tmp_path, prefix):
    log = NcclProcess(prefix=prefix)
    log.begin(A, 4010)
    log.alloc(MIB, thread=4010)
    path = tmp_path / "all.log"
    path.write_text(f"Epoch 1\n{log.text}loss 0.3\n")
    trace = load(path)
    assert trace.libraries[0].live_bytes == MIB
    expected = 1_795_341_600_250_000 if "2026" in prefix else -1
    assert trace.devices[0].events.time_us.tolist() == [expected]


def test_a_compressed_log(tmp_path):
    path = tmp_path / "nccl.log.gz"
    path.write_bytes(gzip.compress(all_to_all(channels=1).text.encode()))
    assert load(path).libraries[0].live_bytes == 98 * MIB


@pytest.mark.parametrize(
    ("head", "known"),
    [
        (b"node1:1:2 [0] NCCL INFO Bootstrap : Using eth0\n", True),
        (b"\xff\xfe node1:1:2 [0] NCCL INFO x", True),
        (b"set NCCL_DEBUG=INFO to see NCCL INFO lines\n", False),
        (b"loss 0.3\n", False),
        (b"", False),
    ],
)
def test_sniff(head, known):
    assert sniff(head) is known


def test_a_log_without_allocations_is_refused_with_the_variables_to_set(tmp_path):
    path = tmp_path / "nccl.log"
    path.write_text("node1:1:2 [0] NCCL INFO Bootstrap : Using eth0\n")
    with pytest.raises(RefusedFile) as refused:
        load(path)
    assert "NCCL_DEBUG_SUBSYS=INIT,ENV,ALLOC" in refused.value.hint


def test_absurd_numbers_are_ignored(tmp_path):
    log = NcclProcess()
    log.begin(A, 4010)
    log.say("channel.cc:52 Cuda Alloc Size 9999999999999999999 pointer 0x7f0000000000", 4010)
    log.say("channel.cc:52 Cuda Alloc Size 512 pointer 0xffffffffffffffff", 4010)
    log.alloc(MIB, thread=4010)
    assert only(tmp_path, log.text).live_bytes == MIB


def test_redaction_removes_the_host(tmp_path, monkeypatch):
    path = tmp_path / "nccl.log"
    path.write_text(all_to_all(channels=1).text)
    monkeypatch.setenv(VARIABLE, "1")
    (memory,) = load(path).libraries
    assert (memory.host, memory.communicators[0].identity) == ("", "0xf021d9037f9243d8")


def test_many_communicators_take_no_quadratic_time(tmp_path):
    log = NcclProcess()
    for number in range(1500):
        log.begin(A + 16 * number, 4010, identity=f"{number:x}")
        log.alloc(512, thread=4010)
        log.complete(A + 16 * number, 4010, identity=f"{number:x}")
    memory = only(tmp_path, log.text)
    assert len(memory.communicators) == 1500
    assert np.sum([comm.live_bytes for comm in memory.communicators]) == memory.live_bytes
