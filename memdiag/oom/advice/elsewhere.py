"""Missing memory is elsewhere: other processes (MD703), a limit (MD704), libraries and private pools (MD705)."""

from __future__ import annotations

from memdiag.diagnosis.remedies import present
from memdiag.diagnosis.thresholds import LIBRARY_HOLDS, ROUNDING, XPU_LARGEST
from memdiag.oom.advice.case import Case
from memdiag.oom.advice.graphs import less_graphs
from memdiag.oom.advice.serving import serving
from memdiag.oom.advice.training import training
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.results.lazy_fix import LazyFix
from memdiag.text import phrase
from memdiag.units import format_bytes

_MPS_RATIO = 1.7  # PyTorch's default: 1.7 times the size that the system recommends
_KILLED_AT_MOST = 3
_RESERVE_LESS = "export XLA_PYTHON_CLIENT_PREALLOCATE=false TF_FORCE_GPU_ALLOW_GROWTH=true"


def other_process(case: Case) -> Finding:
    """Returns MD703."""
    numbers = case.numbers
    listed = sorted(numbers.strangers, key=lambda entry: -entry[1])
    printed = sum(size for _, size in listed)
    held, at_least = numbers.foreign_excess if numbers.foreign is not None else None, False
    if numbers.process is None and printed and (numbers.likely_this or printed >= (held or 0)):
        held = printed
    elif numbers.process is None:
        at_least = True  # this process's own memory outside its allocator is subtracted
    shown = [
        Evidence(phrase("oom_elsewhere.evidence.process", pid=pid), size, "bytes")
        for pid, size in listed[:_KILLED_AT_MOST]
        if size
    ]
    title = _held(case, held, printed, at_least=at_least)
    if not numbers.free and numbers.free is not None and not listed:
        title = phrase("oom_elsewhere.title.others.empty", title=title)
    fixes = case.offers("list-processes", "end-processes", "another-device", "own-device", "container")
    saving = Saving(0, held, max(numbers.foreign or 0, held), "estimated") if held else None
    return Finding(
        "MD703",
        title,
        "critical",
        case.device,
        case.evidence(
            *shown,
            Evidence(_neither(case), numbers.foreign, "bytes"),
            Evidence(
                phrase("oom_elsewhere.evidence.this"),
                numbers.process if numbers.process is not None else numbers.reserved,
                "bytes",
            ),
        ),
        fixes,
        saving,
        held or 0,
    )


def _held(case: Case, held: int | None, printed: int, *, at_least: bool) -> str:
    """Returns the title of MD703."""
    if not held:
        low = case.judgement.confidence == "low"
        return phrase("oom_elsewhere.title.others.perhaps") if low else phrase("oom_elsewhere.title.others")
    if at_least and case.numbers.reserved is None:  # unallocated memory of this process is part of it
        return phrase("oom_elsewhere.title.held.or-unused", held=format_bytes(case.numbers.foreign))
    if at_least:
        return phrase("oom_elsewhere.title.held.least", held=format_bytes(held))
    if printed and held == printed:
        return phrase("oom_elsewhere.title.held.processes", held=format_bytes(held))
    return phrase("oom_elsewhere.title.held.outside", held=format_bytes(held))


def limit(case: Case) -> Finding:
    """Returns MD704."""
    numbers = case.numbers
    requested, held = numbers.requested or 0, numbers.held or 0
    needed, high = numbers.missing_below_limit, numbers.room_above_limit
    title = phrase("oom_elsewhere.title.limit")
    if numbers.limit is not None and numbers.held is None and requested > numbers.limit:
        title = phrase(
            "oom_elsewhere.title.limit.block", request=format_bytes(requested), limit=format_bytes(numbers.limit)
        )
    elif numbers.limit is not None:
        size = format_bytes(numbers.limit)
        title = phrase("oom_elsewhere.title.limit.size", limit=size)
        if needed:
            title = phrase("oom_elsewhere.title.limit.short", limit=size, short=format_bytes(needed))
        elif numbers.requested and held + requested + ROUNDING >= numbers.limit:
            title = phrase("oom_elsewhere.title.limit.rounding", limit=size)
    elif case.backend == "mps" or (case.backend == "xpu" and requested >= XPU_LARGEST):
        title = phrase("oom_elsewhere.title.limit.driver", request=format_bytes(requested))
    saving = Saving(needed, needed, max(high, needed), "estimated") if needed and high and needed <= high else None
    return Finding(
        "MD704",
        title,
        "critical",
        case.device,
        case.evidence(
            Evidence(phrase("oom_elsewhere.evidence.limit"), numbers.limit, "bytes"),
            Evidence(phrase("oom_elsewhere.evidence.this"), numbers.held, "bytes"),
            Evidence(phrase("oom_elsewhere.evidence.raise"), needed or None, "bytes"),
        ),
        _raise_limit(case),
        saving,
        needed or requested,
    )


def workspace_or_comm(case: Case) -> Finding:
    """Returns MD705."""
    numbers = case.numbers
    pool = numbers.pool if numbers.pool >= max(case.short or 0, numbers.slack or 0) else 0
    outside = numbers.own_outside if numbers.own_outside is not None else numbers.outside
    won = pool or max((outside or 0) - numbers.allowance, 0)
    if pool:
        title = phrase("oom_elsewhere.title.private", bytes=format_bytes(pool))
    elif won and outside:
        title = phrase("oom_elsewhere.title.outside", bytes=format_bytes(outside))
    else:
        title = phrase("oom_elsewhere.title.library")
    fixes = present(
        *(less_graphs(case) if pool else ()),
        *(serving(case) or _beside(case)),
        case.offer("record"),
    )
    return Finding(
        "MD705",
        title,
        "critical",
        case.device,
        case.evidence(
            Evidence(phrase("oom_elsewhere.evidence.private"), numbers.pool or None, "bytes"),
            Evidence(phrase("oom_elsewhere.evidence.own-outside"), numbers.own_outside, "bytes"),
            Evidence(phrase("oom_elsewhere.evidence.outside"), numbers.outside, "bytes"),
            Evidence(phrase("oom_elsewhere.evidence.reserved"), numbers.reserved, "bytes"),
        ),
        fixes,
        Saving(0, won, max(pool or outside or 0, won), "estimated") if won else None,
        won,
    )


def _neither(case: Case) -> str:
    reserved = case.numbers.process is None
    return (
        phrase("oom_elsewhere.evidence.foreign.reserved") if reserved else phrase("oom_elsewhere.evidence.foreign.held")
    )


def _raise_limit(case: Case) -> tuple[Fix, ...]:
    numbers = case.numbers
    if case.backend == "mps":
        less = LazyFix("oom_elsewhere.mps.less", "code").fix()
        return (
            *(serving(case) or (training(case) or less,)),
            LazyFix("oom_elsewhere.mps.close", "code", case.situation.system.processes).fix(),
            LazyFix(
                "oom_elsewhere.mps.watermark",
                "env",
                "export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0",
                {"ratio": str(_MPS_RATIO)},
            ).fix(),
        )
    if case.backend == "xpu" and (numbers.requested or 0) >= XPU_LARGEST:
        return (
            LazyFix("oom_elsewhere.split", "code").fix(),
            LazyFix("oom_torch.relaxed", "env", "export UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1").fix(),
        )
    fixes: list[Fix | None] = []
    in_engine = case.found.framework in {"vllm", "sglang"} or (bool(case.engine) and numbers.limit is None)
    if not in_engine:
        fixes += case.offers("raise-limit", "raise-limit-variable")
    if case.engine:
        fixes += serving(case)
    elif case.on_torch:
        fixes.append(LazyFix("oom_elsewhere.engine", "flag", "--gpu-memory-utilization 0.95").fix())
    if not case.engine:
        fixes.append(case.offer("shorter-sequences"))
    fixes.append(case.offer("record"))
    return present(*fixes)


def _is_library(case: Case) -> bool:
    """Returns whether another library of this process holds much more than PyTorch: communication needs less."""
    numbers = case.numbers
    outside = numbers.own_outside or 0
    return outside > LIBRARY_HOLDS * (numbers.total or outside) and outside > (numbers.reserved or 0)


def _beside(case: Case) -> tuple[Fix, ...]:
    """Returns how libraries need less, and how they get room."""
    if case.backend != "npu" and not case.on_torch:
        return (LazyFix("oom_elsewhere.room", "code").fix(),)
    if case.backend in {"cuda", "hip"} and _is_library(case):
        # A limit on PyTorch's allocator, which holds little, leaves no more memory.
        return (LazyFix("oom_elsewhere.library", "env", _RESERVE_LESS).fix(), *case.offers("nccl-buffers"))
    needs_buffers = "uses:mc2" in case.found.marks  # the kernels of MC2 work in HCCL's buffers
    less = () if needs_buffers else case.offers("hccl-buffers", "task-queue", "nccl-buffers", "no-benchmark")
    return (*less, *case.offers("hccl-room" if case.backend == "npu" else "room"))
