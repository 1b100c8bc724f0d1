"""The report of ``memdiag oom``: out-of-memory messages, their causes and memory accounts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from memdiag.results.finding import Finding

Cause = Literal["fragmentation", "capacity", "other_process", "limit", "workspace_or_comm", "host", "unknown"]


CAUSES: tuple[Cause, ...] = (
    "fragmentation",
    "capacity",
    "other_process",
    "limit",
    "workspace_or_comm",
    "host",
    "unknown",
)


Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The cause of a failure.

    Attributes:
        verdict: The most probable cause.
        confidence: "high" if the numbers leave no other cause, "low" if the message alone cannot decide.
        alternatives: Other possible causes, the more probable first; never ``verdict`` itself.
        reasons: The arithmetic, one sentence with numbers each, the decisive one first.
        rule: Rule of ``diagnosis.classifier`` that decided, or "" if the message itself or its context did.
    """

    verdict: Cause
    confidence: Confidence
    alternatives: tuple[Cause, ...] = ()
    reasons: tuple[str, ...] = ()
    rule: str = ""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One line of the memory account of a device.

    Attributes:
        what: "total", or the name of a part ("allocated by PyTorch", "reserved but unallocated", "context and libraries
            of this process", "process 4711", "free", "unknown").
        bytes: Size of the part, or None if unknown.
        owner: "this process", "other processes", "free", "unknown", or "total" for the sum.
        basis: "printed", "computed" (from printed numbers) or "inferred" (with an assumption, which ``what`` names).
    """

    what: str
    bytes: int | None
    owner: Literal["this process", "other processes", "free", "unknown", "total"]
    basis: Literal["printed", "computed", "inferred"]


@dataclass(frozen=True, slots=True)
class Message:
    """One out-of-memory message, or several identical ones of a rank.

    Attributes:
        dialect: Form of the message: "torch_cuda_21", "torch_npu", "jax_xla", "oom_killer", …; "trace" for a failure
            found only in a trace.
        framework: Program or library that printed it: "pytorch", "torch_npu", "jax", "vllm", "linux", …
        backend: "cuda", "hip", "npu", "xpu", "musa", "mlu", "mps", "hpu", "tpu", "neuron", "metal", "vulkan", "opencl",
            "directml" or "cpu".
        rank: The rank that failed, or None if unknown.
        count: How often the rank printed the message.
        line: Line on which the message begins, from 1.
        text: The message, at most 8,000 characters. It may contain control characters.
        fields: The numbers printed in the message; a number that is not printed has no key.
        judgement: The cause.
        ledger: Parts of the memory of the device; the last entry is the total. Empty if no sizes are printed.
        findings: Findings, the most useful first.
        source: The file that contains the message; "-" is standard input, "text" an argument.
        is_warning: Whether the program continued after the message.
        moment: Options with which ``memdiag analyze`` shows this failure in the trace, or "" if no trace contains it.
        program: Name of ``framework`` for people: "PyTorch", "vLLM"; "" if it has no other.
    """

    dialect: str
    framework: str
    backend: str
    rank: int | None
    count: int
    line: int
    text: str
    fields: Mapping[str, object]
    judgement: Judgement
    ledger: tuple[LedgerEntry, ...]
    findings: tuple[Finding, ...]
    source: str = ""
    is_warning: bool = False
    moment: str = ""
    program: str = ""


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """A device in a table of memory in use, such as the output of nvidia-smi. Such a table contains no failure.

    Attributes:
        source: The text that contains the table.
        program: The program that printed it: "memory_summary" (PyTorch), "nvidia-smi", "npu-smi", …
        device: The device as the program names it, or "" if the table has no figures.
        used_bytes: Memory in use; in PyTorch's summary, allocated memory. None if unknown.
        total_bytes: Memory of the device, or None if unknown.
        reserved_bytes: Memory reserved by PyTorch, or None if unknown.
        num_ooms: Number of allocations that failed earlier in the program, or None if unknown.
    """

    source: str
    program: str
    device: str = ""
    used_bytes: int | None = None
    total_bytes: int | None = None
    reserved_bytes: int | None = None
    num_ooms: int | None = None


@dataclass(frozen=True, slots=True)
class OomReport:
    """All out-of-memory messages of an input, in the order in which they were printed.

    Attributes:
        messages: All failures; warnings only if there is no failure.
        sources: Names of the files read; "text" for a message given as an argument, "-" for standard input.
        num_lines: Lines read.
        num_bytes: Number of bytes read, after decompression.
        num_warnings_omitted: Warnings ("not a failure") that are omitted because there are real failures.
        first_rank: The rank with the first message; None if unknown.
        trace: The trace that explains the messages, or "" if there is none.
        num_messages_omitted: Distinct messages beyond the first 20,000, which are only counted.
        tables: Tables of memory in use, if no message has sizes.
    """

    messages: tuple[Message, ...]
    sources: tuple[str, ...] = ()
    num_lines: int = 0
    num_bytes: int = 0
    num_warnings_omitted: int = 0
    first_rank: int | None = None
    num_messages_omitted: int = 0
    trace: str = ""
    tables: tuple[MemoryTable, ...] = ()
