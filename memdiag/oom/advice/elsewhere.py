"""Missing memory is elsewhere: other processes (MD703), a limit (MD704), libraries and private pools (MD705)."""

from __future__ import annotations

from dataclasses import replace

from memdiag.diagnosis.remedies import present
from memdiag.diagnosis.remedies.lazy_fix import LazyFix
from memdiag.diagnosis.thresholds import ROUNDING
from memdiag.oom.advice.case import Case
from memdiag.oom.advice.device import hccl_room
from memdiag.oom.advice.graphs import less_graphs
from memdiag.oom.advice.serving import serving
from memdiag.oom.advice.systems import has_settings, setting, snapshot, system
from memdiag.oom.advice.training import training
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.text import phrase
from memdiag.units import GIB, MIB, format_bytes

_MPS_RATIO = 1.7  # PyTorch's default: 1.7 times the size that the system recommends
_XPU_LARGEST = 4 * GIB
_KILLED_AT_MOST = 3


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
    fixes = present(
        _who(case),
        *_ends(case),
        _another_device(case),
        _own_device(case),
        _wait(case),
    )
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
    needed = max(held + requested - numbers.limit, 0) if numbers.limit is not None else None
    room = None if numbers.limit is None or numbers.total is None else max(numbers.total - numbers.limit, 0)
    high = min((size for size in (room, numbers.free) if size is not None), default=None)
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
    elif case.backend == "mps" or (case.backend == "xpu" and requested >= _XPU_LARGEST):
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
        _raise_limit(case, needed, high),
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
        *(serving(case) or [*_less_beside(case), _leave_room(case)]),
        snapshot(case),
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


def _who(case: Case) -> Fix | None:
    processes = system(case).processes
    if not processes:
        return None
    fix = LazyFix(
        "oom_elsewhere.who", "code", processes, {"backend": case.backend.upper()}, caveat="oom_shared.who.caveat"
    ).fix()
    return replace(fix, caveat="") if case.on_apple else fix


def _ends(case: Case) -> list[Fix]:
    large = sorted((entry for entry in case.numbers.others if entry[1] >= 64 * MIB), key=lambda entry: -entry[1])[
        :_KILLED_AT_MOST
    ]
    if not large:
        return []
    total = format_bytes(sum(size for _, size in large))
    return [
        LazyFix("oom_elsewhere.ends", "code", f"kill {' '.join(str(pid) for pid, _ in large)}", {"bytes": total}).fix()
    ]


def _another_device(case: Case) -> Fix | None:
    names = system(case)
    if not names.visible:
        return None
    if names.freest:
        if case.windows:
            return LazyFix("oom_elsewhere.device", "env", f"export {names.visible}={0 if case.device else 1}").fix()
        return LazyFix(
            "oom_elsewhere.device.freest",
            "env",
            f"export {names.visible}={names.freest}",
            when="oom_elsewhere.device.when",
        ).fix()
    other = 0 if case.device else 1
    command = {"command": names.processes}
    line = f"export {names.visible}={other}"
    return LazyFix("oom_elsewhere.device", "env", line, command, when="oom_elsewhere.device.free.when").fix()


def _own_device(case: Case) -> Fix | None:
    if case.backend not in {"cuda", "hip", "npu", "xpu"} or not case.on_torch:
        return None
    return LazyFix(
        "oom_elsewhere.rank", "code", f'{system(case).module}.set_device(int(os.environ["LOCAL_RANK"]))'
    ).fix()


def _wait(case: Case) -> Fix | None:
    if case.backend != "npu":
        return None
    return LazyFix("oom_elsewhere.container", "flag", "--device=/dev/davinci0").fix()


def _raise_limit(case: Case, needed: int | None, high: int | None) -> tuple[Fix, ...]:
    numbers, names = case.numbers, system(case)
    if case.backend == "mps":
        less = LazyFix("oom_elsewhere.mps.less", "code").fix()
        return (
            *(serving(case) or (training(case) or less,)),
            LazyFix("oom_elsewhere.mps.close", "code", names.processes).fix(),
            LazyFix(
                "oom_elsewhere.mps.watermark",
                "env",
                "export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0",
                {"ratio": str(_MPS_RATIO)},
            ).fix(),
        )
    if case.backend == "xpu" and (numbers.requested or 0) >= _XPU_LARGEST:
        return (
            LazyFix("oom_elsewhere.split", "code").fix(),
            LazyFix("oom_torch.relaxed", "env", "export UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1").fix(),
        )
    fixes: list[Fix | None] = []
    share = _new_share(case, needed, high)
    if case.on_torch and names.module and case.found.framework not in {"vllm", "sglang"} and numbers.limit is not None:
        values = {"comm": names.comm, "total": format_bytes(numbers.total), "share": share}
        line = f"{names.module}.set_per_process_memory_fraction({share or '1.0'})"
        fixes.append(
            LazyFix(
                "oom_elsewhere.limit", "code", line, values, when="oom_elsewhere.limit.enough.when" if share else ""
            ).fix()
        )
        if has_settings(case) and case.generation == "2.9":
            line = setting(case, "per_process_memory_fraction", share or "1.0")
            fixes.append(LazyFix("oom_elsewhere.limit.env", "env", line).fix())
    elif case.on_torch and names.module and not case.engine and case.found.framework not in {"vllm", "sglang"}:
        fixes.append(
            LazyFix(
                "oom_elsewhere.limit.look",
                "code",
                f"{names.module}.set_per_process_memory_fraction(1.0)",
                {"comm": names.comm},
            ).fix()
        )
    if case.engine:
        fixes += serving(case)
    elif case.on_torch:
        fixes.append(LazyFix("oom_elsewhere.engine", "flag", "--gpu-memory-utilization 0.95").fix())
    if not case.engine:
        fixes.append(LazyFix("oom_elsewhere.less", "code").fix())
    fixes.append(snapshot(case))
    return present(*fixes)


def _new_share(case: Case, needed: int | None, high: int | None) -> str:
    """Returns the smallest memory fraction, in hundredths, that admits the request, or "" if none does."""
    numbers = case.numbers
    if not numbers.total or numbers.limit is None or needed is None or (high is not None and needed > high):
        return ""
    hundredths = -(-100 * (numbers.limit + needed) // numbers.total) + 1
    return f"0.{hundredths:02d}" if hundredths < 100 else "1.0"


def _less_beside(case: Case) -> list[Fix]:
    if case.backend == "npu" and "uses:mc2" in case.found.marks:
        return []  # their kernels use HCCL's buffers
    slower = "oom_elsewhere.buffsize.caveat"
    if case.backend == "npu":
        return [
            LazyFix(
                "oom_ascend.buffers",
                "env",
                "export HCCL_BUFFSIZE=100",
                when="oom_elsewhere.buffsize.when",
                caveat=slower,
            ).fix(),
            LazyFix("oom_ascend.task-queue", "env", "export TASK_QUEUE_ENABLE=1").fix(),
        ]
    if not case.on_torch or case.backend not in {"cuda", "hip"}:
        return []
    return [
        LazyFix("oom_elsewhere.nccl", "env", "export NCCL_BUFFSIZE=2097152", caveat=slower).fix(),
        LazyFix("oom_libraries.benchmark", "code", "torch.backends.cudnn.benchmark = False").fix(),
    ]


def _leave_room(case: Case) -> Fix | None:
    if case.backend == "npu":
        return hccl_room(case.numbers)
    if not case.on_torch:
        return LazyFix("oom_elsewhere.room", "code").fix()
    module = system(case).module
    return LazyFix("oom_nccl.room", "code", f"{module}.set_per_process_memory_fraction(0.9)" if module else "").fix()
