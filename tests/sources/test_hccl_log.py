"""Logs of HCCL: the buffers of communicators on Ascend."""

from __future__ import annotations

import pytest

from memdiag.errors import RefusedFile
from memdiag.redaction import VARIABLE
from memdiag.sources import load
from memdiag.sources.hccl_log import sniff

PAIR = 2 * 200 * 1024 * 1024 + 1024 * 1024
NAMES = ("127.0.0.1%eth0_60000_0_17", "group_name_1")


def line(text, second=0, pid=4711):
    at = f"2026-11-22-10:00:{second:02}.716.583"
    return f"[INFO] HCCL({pid},python):{at} [op_base.cc:1293] [{pid}]{text}\n"


def opened(name, ranks=8, rank=3, device=5):
    info = f"rootinfo: host ip[127.0.0.1] port[60000] nicDeploy[1] identifier[{name}], deviceLogicId[{device}]"
    return line(f"Entry-HcclCommInitRootInfoInner:ranks[{ranks}], rank[{rank}], {info}") + line(
        f"[HCCL_TRACE]HcclCommInitRootInfoInner success, take time [237063]us, rankNum[{ranks}], rank[{rank}]"
    )


def buffer(pointer, size=PAIR, second=1):
    return line(f"[CreateCCLbuffer] buffer ptr[{pointer:#x}], size[{size}]", second) + line(
        f"[HCCL_TRACE][CreateCCLbuffer]Create ccl buffer success. buffer ptr[{pointer:#x}], size[{size}]", second
    )


def entry(name):
    return line(f"Entry-HcclAllReduce: tag[AllReduce_{name}], sendBuf[0x12], recvBuf[0x13], count[5], localRank[3]")


def read(tmp_path, text):
    path = tmp_path / "plog-4711_20261122.log"
    path.write_text(text)
    return load(path)


def test_a_communicator_and_its_buffers(tmp_path):
    trace = read(tmp_path, opened(NAMES[0]) + buffer(0x12C0_0000_0000))
    (memory,) = trace.libraries
    (comm,) = memory.communicators
    assert (trace.format, memory.library, memory.pid, memory.device) == ("hccl-log", "HCCL", 4711, 5)
    assert (memory.live_bytes, comm.live_bytes, comm.rank, comm.num_ranks) == (PAIR, PAIR, 3, 8)
    assert trace.devices[0].events.time_us[0] == 1_795_341_601_716_583


def test_the_tag_of_a_collective_names_the_communicator(tmp_path):
    text = (
        opened(NAMES[0])
        + opened(NAMES[1], 2, 1)
        + entry(NAMES[1])
        + buffer(0x1000)
        + entry(NAMES[0])
        + buffer(0x9000, 7)
    )
    (memory,) = read(tmp_path, text).libraries
    assert {comm.identity: comm.live_bytes for comm in memory.communicators} == {NAMES[1]: PAIR, NAMES[0]: 7}


def test_without_a_tag_a_buffer_of_two_communicators_is_unassigned(tmp_path):
    (memory,) = read(tmp_path, opened(NAMES[0]) + opened(NAMES[1]) + buffer(0x1000)).libraries
    assert memory.unassigned_bytes == PAIR


def test_a_release_frees(tmp_path):
    release = line(f"[HCCL_TRACE][ReleaseCCLbuffer]Release cclBuffer. buffer ptr[0x1000], size[{PAIR}]", 9)
    (memory,) = read(tmp_path, opened(NAMES[0]) + buffer(0x1000) + release).libraries
    assert (memory.live_bytes, memory.peak_bytes) == (0, PAIR)


def test_a_log_without_buffers_is_refused(tmp_path):
    with pytest.raises(RefusedFile, match="no memory events"):
        read(tmp_path, opened(NAMES[0]))


@pytest.mark.parametrize(
    ("head", "known"),
    [
        (opened("x").encode(), True),
        (b"[INFO] GE(1,python):2026 [a.cc:1] [2]x\n", False),
        (b"HCCL(", False),
        (b"", False),
    ],
)
def test_sniff(head, known):
    assert sniff(head) is known


def test_redaction_removes_the_address_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    trace = read(tmp_path, opened(NAMES[0]) + buffer(0x1000))
    assert trace.libraries[0].communicators[0].identity == "…"
    assert not [frame for frame in trace.stacks.frames if "127.0.0.1" in frame.name]
