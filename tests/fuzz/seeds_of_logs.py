"""Seeds of the fuzzer for files of other programs: communication libraries, RMM, JAX and TensorFlow."""

from __future__ import annotations

from typing import Any

from tests.fuzz.forms import message
from tests.sources.library_logs import MIB, NcclProcess


def nccl() -> list[str]:
    """Returns a log with the creation, the buffers and the end of communicators."""
    log = NcclProcess(prefix="[2026-11-22 10:00:00] ")
    log.say("NCCL version 2.27.5+cuda12.9")
    log.say("NCCL_BUFFSIZE set by environment to 8388608.")
    log.begin(0x55AA, 4010, ranks=2)
    log.say("[Proxy Service] Device 0 CPU core 10", 4011)
    log.say("init.cc:491 Cuda Host Alloc Size 1048576 pointer 0x7fef1be82000", 4010)
    freed = log.alloc(23648, "init.cc:447", 4010)
    log.shareable(10 * MIB, 4011)
    log.complete(0x55AA, 4010, ranks=2)
    log.say("Channel 00/1 : 0[0] -> 1[1] via P2P/CUMEM comm 0x55aa nRanks 02", 4000)
    place = "rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 1 parent 0x55aa splitCount 1 color 0 key 0"
    log.say(f"ncclCommSplit comm 0x55bb {place}- Init START", 4010)
    log.say("NVLS Mapped UC at 0x7f1100000000 size 4194304", 4010)
    log.trace(f"Cuda Free pointer {freed:#x}", 4010)
    log.say("comm 0x55aa rank 0 nranks 2 cudaDev 0 busId 18000 - Destroy COMPLETE", 4010)
    return ["loss 0.5", *log.lines]


def hccl() -> list[str]:
    """Returns a log with a communicator, its buffer and its release."""
    head = "[INFO] HCCL(4711,python):2026-11-22-10:00:00.716.583 [op_base.cc:60] [4711]"
    info = "rootinfo: host ip[127.0.0.1] port[6] identifier[a_b], deviceLogicId[3]"
    buffer = "buffer ptr[0x1000], size[420478976]"
    return [
        f"{head}Entry-HcclCommInitRootInfoInner:ranks[4], rank[3], {info}",
        f"{head}[HCCL_TRACE]HcclCommInitRootInfoInner success, take time [23]us, rankNum[4], rank[3]",
        f"{head}Entry-HcclAllReduce: tag[AllReduce_a_b], sendBuf[0x12], count[5]",
        f"{head}[HCCL_TRACE][CreateCCLbuffer]Create ccl buffer success. {buffer}",
        f"{head}[HCCL_TRACE][ReleaseCCLbuffer]Release cclBuffer. {buffer}",
    ]


def rmm() -> list[list[Any]]:
    """Returns the rows of a log that passes midnight, with a failure."""
    return [
        ["Thread", "Time", "Action", "Pointer", "Size", "Stream"],
        [7, "23:59:59.999961", "allocate", "0x10012400000", 1048576, 0],
        [7, "00:00:00.000977", "allocate", "0x10012500000", 2048, "0x7f8a38001020"],
        [8, "00:00:01:841977", "free", "0x10012400000", 1048576, 0],
        [8, "1634567890.5", "allocate failure", "(nil)", 4000000000, 0],
    ]


def jax_profile() -> list[Any]:
    """Returns a profile with buffers of two sizes and an executable."""
    words = ("allocations", "count", "space", "bytes", "kind", "buffer", "executable", "device", "cpu:0", "f", "a.py")
    strings = ["", *words]
    at = strings.index

    def label(key: str, word: str) -> list[Any]:
        return [3, message([[1, at(key)], [2, at(word)]])]

    def sample(count: int, size: int, kind: str) -> list[Any]:
        values = [[2, bytes([count])], [2, size]]
        return [2, [[1, b"\x01\x02"], *values, label("kind", kind), label("device", "cpu:0")]]

    return [
        [1, [[1, at("allocations")], [2, at("count")]]],
        [1, [[1, at("space")], [2, at("bytes")]]],
        sample(5, 5 * 262144, "buffer"),
        sample(1, 4 * MIB, "buffer"),
        sample(1, 8192, "executable"),
        [4, [[1, 1], [4, message([[1, 1], [2, 35]])]]],
        [4, [[1, 2], [4, message([[1, 1], [2, 7]])]]],
        [5, [[1, 1], [2, at("f")], [4, at("a.py")]]],
        *[[6, text.encode()] for text in strings],
    ]


def bfc_dump() -> list[str]:
    """Returns a log with a failure, two regions, and chunks with and without an operator."""
    head = "2026-11-22 10:00:00.754214: I tensorflow/tsl/framework/bfc_allocator.cc:1083] "
    return [
        f"{head}Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.00MiB (rounded to 3145728)requested by op",
        f"{head}BFCAllocator dump for GPU_0_bfc",
        f"{head}Next region of size 4194304",
        f"{head}InUse at 7f0000000000 of size 1280 by op ScratchBuffer action_count 1 step 0 next 1",
        f"{head}Free  at 7f0000000500 of size 2096896 next 2",
        f"{head}InUse at 7f0000200400 of size 2096128 next 18446744073709551615",
        f"{head}Next region of size 2097152",
        f"{head}InUse at 0x7f0001000000 of size 2097152 by op Conv2D next 18446744073709551615",
        f"{head}Stats: ",
        "Limit:                     18995773440",
    ]
