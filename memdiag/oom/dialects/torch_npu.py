"""torch_npu on Ascend: the caching allocator of every release, operator workspaces, refusals in advance, pinned memory.

Its numbers are those of the requested segment, rounded up to 2 MiB, not of the tensor. Documents quote the message
loosely ("Tried to allocated", "current activate").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memdiag.oom.ascend import blocks, tail
from memdiag.oom.caching import bare, bare_heads, messages, rejection
from memdiag.oom.dialects.parts import gather, stretches
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase
from memdiag.units import format_bytes

FORMATS = ("torch_npu", "torch_npu_workspace")
ANCHORS = (
    "npuoutofmemory",
    "workspaceallocatortriedtoallocate",
    "currentactiv",
    "(npu",
    "reservedintotalbypytorch",
    "mallocpinmemoryfailed",
)
_HEAD = "NPU out of memory. Tried to allocate 96.00 MiB (NPU 1; 60.97 GiB total capacity; 55.80 GiB already allocated; "
_HINT = "If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
_FRACTION = "Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit."
_SCRATCH = "NPUWorkspaceAllocator tried to allocate 240.00 MiB(NPU 2; 60.97 GiB total capacity; 101.25 MiB free)."
_TRY = "If you want to reduce memory usage, take a try to set the environment variable TASK_QUEUE_ENABLE=1."
EXAMPLES = (
    ("torch_npu", f"RuntimeError: {_HEAD}61.50 MiB free; 301.25 MiB cached)"),
    (
        "torch_npu",
        (
            f"RuntimeError: {_HEAD}55.80 GiB current active; 61.50 MiB free; 58.10 GiB reserved in total by "
            f"PyTorch) {_HINT}"
        ),
    ),
    ("torch_npu", "NPU out of memory. device id: 3"),
    ("torch_npu", f"NPU out of memory. {_FRACTION} Requested size: 1.50 GiB"),
    (
        "torch_npu",
        (
            "Malloc pin memory failed, host out of memory, Rried to allocate size: 8589934592, "
            "total_allocated_memory: 17179869184"
        ),
    ),
    (
        "torch_npu_workspace",
        f"NPU out of memory. {_SCRATCH} {_TRY}",
    ),
)

_DEVICE_ID = pattern(r"NPU out of memory [.,:;]{0,3} device [_]? id [:=]? {device_index:int}")
_PINNED = pattern(r"Malloc pin(?:ned)? memory failed [.,:;]{0,2} (?:host out of memory)?")
_PINNED_CLAUSES = (
    pattern(r"[RT]ried to allocate size [:=]? {requested:bytes}"),
    pattern(r"total_allocated_memory [:=]? {allocated:bytes}"),
    pattern(r"total_reserved_memory [:=]? {reserved:bytes}"),
)
_REACH = 300

_TASK_QUEUE = LazyFix("oom_ascend.task-queue", "env", "export TASK_QUEUE_ENABLE=1")
_LESS_POOL = LazyFix("oom_ascend.room", "code", "torch_npu.npu.set_per_process_memory_fraction(0.92)")
_LESS_UTILIZATION = LazyFix(
    "oom_ascend.room.vllm", "flag", "--gpu-memory-utilization 0.85", caveat="oom_shared.fewer-tokens"
)
_PINNED_LESS = LazyFix(
    "oom_cuda.unpinned",
    "code",
    "DataLoader(..., pin_memory=False, num_workers=2)",
    when="oom_ascend.unpinned.when",
    caveat="oom_ascend.unpinned.caveat",
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    lines = blocks(text)
    for gathered, found in messages(text, "npu"):
        found = replace(found, end=tail(text, found.end, lines))
        if gathered.has("workspace"):
            yield _workspace(found)
        else:
            yield replace(found, dialect="torch_npu", judgement=rejection(found) if gathered.has("rejected") else None)
    for start, end in bare_heads(text, "npu"):
        yield Found(start, tail(text, end, lines), "torch_npu", "torch_npu", "npu", judgement=bare())
    for match in _DEVICE_ID.finditer(text.text):
        end = tail(text, match.end(), lines)
        judgement = Judgement(
            "workspace_or_comm",
            "low",
            ("capacity", "other_process"),
            (phrase("oom_ascend.why.load"),),
        )
        yield Found(
            match.start(), end, "torch_npu", "torch_npu", "npu", take(match), judgement, (_LESS_POOL, _LESS_UTILIZATION)
        )
    for head, stop in stretches(text, _PINNED, _REACH):
        fields, end = gather(text, head.end(), stop, _PINNED_CLAUSES)
        judgement = Judgement("host", "high", (), (phrase("oom_ascend.why.pinned"),))
        yield Found(head.start(), end, "torch_npu", "torch_npu", "npu", fields, judgement, (_PINNED_LESS,))


def _workspace(found: Found) -> Found:
    """Judges a message of the workspace allocator, which requests memory from the driver, outside PyTorch's pool."""
    requested, free = found.fields.get("requested_bytes"), found.fields.get("free_bytes")
    why = phrase("oom_ascend.why.workspace")
    if isinstance(requested, int) and isinstance(free, int):
        why = phrase("oom_ascend.why.workspace.size", requested=format_bytes(requested), free=format_bytes(free))
    reasons = (
        why,
        phrase("oom_ascend.why.workspace.driver"),
    )
    judgement = Judgement("workspace_or_comm", "high", ("capacity", "other_process"), reasons)
    return replace(
        found,
        dialect="torch_npu_workspace",
        judgement=judgement,
        fixes=(_TASK_QUEUE, _LESS_POOL, _LESS_UTILIZATION),
        marks=found.marks | {"hint:task_queue_enable"},
    )
