"""Blocks that wait for another stream after they are freed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memdiag.findings import Fix, Severity
from memdiag.lint.module import Hit, Module

CODE = "MD811"
TITLE = "record_stream(): the block is not reused until the host has seen the other stream pass, long after its last use"
SEVERITY: Severity = "info"
WORDS = ("record_stream",)
FIX = Fix(
    "keep a reference and drop it after stream.wait_event() or wait_stream(); for collectives set TORCH_NCCL_AVOID_RECORD_STREAMS=1",
    "code",
    applicability="buffers of communication and of offloading",
    caveat="without either, a block may be reused while the other stream still reads it",
)

FIX_NPU = replace(
    FIX,
    title="keep a reference and drop it after stream.wait_event() or wait_stream(); for collectives set MULTI_STREAM_MEMORY_REUSE=1 or 3",
)


def check(module: Module) -> Iterator[Hit]:
    """Points at calls of record_stream on tensors."""
    for call in module.methods("record_stream"):
        if len(call.args) == 1 and not call.keywords:
            yield Hit(call)
