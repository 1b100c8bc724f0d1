"""Seeds of the fuzzer for logs: those of communication libraries."""

from __future__ import annotations

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
