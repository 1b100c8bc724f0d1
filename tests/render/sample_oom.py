"""Handwritten out-of-memory reports: one message, many ranks, no sizes, no message, and hostile text."""

from __future__ import annotations

from dataclasses import replace

from memdiag.results.finding import Finding, Fix
from memdiag.results.oom import Judgement, LedgerEntry, Message, OomReport

GIB, MIB = 1 << 30, 1 << 20

FIXES = (
    Fix(
        "Use expandable segments",
        "env",
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "torch >= 2.1",
        "not with CUDA IPC",
    ),
    Fix("Pad inputs to a few sizes", "code", "", "every backend", ""),
    Fix(
        "Record the run",
        "record",
        "memdiag record -- vllm serve model\nmemdiag analyze --at oom",
        "",
        "steps get slower",
    ),
    *(Fix(f"Remedy {number}", "flag", f"--flag-{number}") for number in range(4, 7)),
)
FINDINGS = (
    Finding("MD701", "4.00 GiB is free in pieces", "critical", None, (), FIXES),
    Finding("MD708", "The hint of the message does not help", "warning", None, (), (Fix("Leave it", "env"),)),
)
LEDGER = (
    LedgerEntry("allocated by PyTorch", 10 * GIB, "this process", "printed"),
    LedgerEntry("reserved but unallocated", 4 * GIB, "this process", "computed"),
    LedgerEntry("process 4711", GIB, "other processes", "printed"),
    LedgerEntry("free", 512 * MIB, "free", "printed"),
    LedgerEntry("unknown: the driver's own", 512 * MIB, "unknown", "inferred"),
    LedgerEntry("total", 16 * GIB, "total", "printed"),
)
REASONS = ("4.00 GiB is reserved but unallocated, and 2.00 GiB was asked for.", "another reason")
MESSAGE = Message(
    "torch_cuda_21",
    "pytorch",
    "cuda",
    3,
    1,
    10412,
    "CUDA out of memory. Tried to allocate 2.00 GiB.",
    {"requested_bytes": 2 * GIB, "total_bytes": 16 * GIB, "free_bytes": 512 * MIB, "device_index": 3, "log_pid": 77},
    Judgement("fragmentation", "high", ("capacity",), REASONS),
    LEDGER,
    FINDINGS,
    "train.log",
    program="PyTorch",
)
BARE = replace(
    MESSAGE,
    framework="cuda",
    program="CUDA",
    rank=None,
    fields={},
    judgement=Judgement("unknown", "low"),
    ledger=(),
    findings=(),
    source="text",
    line=1,
)
HOST = replace(
    MESSAGE,
    dialect="oom_killer",
    framework="linux",
    program="Linux",
    backend="cpu",
    rank=None,
    line=20000,
    fields={"pid": 9, "anon_rss_bytes": 12 * GIB},
    ledger=(),
    findings=(),
    judgement=Judgement("host", "high", (), ("the kernel ended it",)),
)
EVIL = "\x1b[31m|`<b>\u202e\n"


def one(**changes: object) -> OomReport:
    return OomReport((replace(MESSAGE, **changes),), ("train.log",), 12000, 3 * MIB, 0, 3)


def many(num_ranks: int = 8) -> OomReport:
    order = [3, *(rank for rank in range(num_ranks) if rank != 3)]
    ranks = [
        replace(
            MESSAGE,
            rank=rank,
            line=10412 + row,
            count=2 if rank == 5 else 1,
            fields={**MESSAGE.fields, "requested_bytes": (2 + rank) * GIB},
        )
        for row, rank in enumerate(order)
    ]
    return OomReport((*ranks, HOST), ("train.log",), 30000, 3 * MIB, 2, 3)


def bare() -> OomReport:
    return OomReport((BARE,), ("text",), 1, 40)


def nothing() -> OomReport:
    return OomReport((), ("train.log", "-"), 12000, 3 * MIB)


def hostile() -> OomReport:
    finding = Finding("MD701", EVIL, "critical", None, (), (Fix(EVIL, "env", EVIL, EVIL, EVIL),))
    entries = (LedgerEntry(EVIL, GIB, "this process", "printed"), LedgerEntry("total", GIB, "total", "printed"))
    message = replace(
        MESSAGE,
        text=EVIL,
        source=EVIL,
        framework=EVIL,
        program="",
        backend=EVIL,
        dialect=EVIL,
        findings=(finding,),
        ledger=entries,
        judgement=Judgement("unknown", "low", (), (EVIL,)),
        fields={"shape": EVIL, "requested_bytes": GIB},
    )
    return OomReport((message, replace(message, rank=4)), (EVIL,), 1, 1)
