"""Where what is missing lies elsewhere: with other processes (MD703), behind a limit (MD704), with libraries and private pools (MD705)."""

from __future__ import annotations

from memdiag.findings import Evidence, Finding, Fix, Saving
from memdiag.oom.advice.case import Case
from memdiag.oom.advice.device import hccl_room
from memdiag.oom.advice.graphs import less_graphs
from memdiag.oom.advice.serving import serving
from memdiag.oom.advice.systems import has_settings, present, setting, snapshot, system
from memdiag.oom.advice.training import training
from memdiag.oom.arithmetic import ROUNDING
from memdiag.units import GIB, MIB, format_bytes

_MPS_RATIO = 1.7  # PyTorch's own default: 1.7 times what the system recommends
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
        at_least = True  # what this process may take beside its allocator is taken off
    shown = [Evidence(f"process {pid} holds", size, "bytes") for pid, size in listed[:_KILLED_AT_MOST] if size]
    title = "Others hold the memory of the device"
    if case.judgement.confidence == "low":
        title = "Perhaps others hold the memory of the device"
    if held:
        by = "by other processes" if printed and held == printed else "outside this process"
        title = f"{'At least ' * at_least}{format_bytes(held)} of the device is held {by}"
        if at_least and numbers.reserved is None:  # what this process has reserved and not allocated is in it
            title = f"{format_bytes(numbers.foreign)} of the device is held by others, or lies unused in the pool of this process"
    names = system(case)
    if not numbers.free and numbers.free is not None and not listed:
        title += ", and nothing is free"
    fixes = present(
        Fix("See who uses the device, then end what is left over from earlier runs", "code", names.processes, case.backend.upper(),
            "" if case.on_apple else "inside a container other processes stay invisible: look on the host") if names.processes else None,
        *_ends(case),
        _another_device(case),
        _own_device(case),
        _wait(case),
    )  # fmt: skip
    saving = Saving(0, held, max(numbers.foreign or 0, held), "estimated") if held else None
    return Finding(
        "MD703",
        title,
        "critical",
        case.device,
        case.evidence(
            *shown,
            Evidence(f"neither free nor {'reserved' if numbers.process is None else 'held'} by this process", numbers.foreign, "bytes"),
            Evidence("held by this process", numbers.process if numbers.process is not None else numbers.reserved, "bytes"),
        ),
        fixes,
        saving,
        held or 0,
    )


def limit(case: Case) -> Finding:
    """Returns MD704."""
    numbers = case.numbers
    requested, held = numbers.requested or 0, numbers.held or 0
    needed = max(held + requested - numbers.limit, 0) if numbers.limit is not None else None
    room = None if numbers.limit is None or numbers.total is None else max(numbers.total - numbers.limit, 0)
    high = min((size for size in (room, numbers.free) if size is not None), default=None)
    title = "A limit was reached, not the end of the device"
    if numbers.limit is not None and numbers.held is None and requested > numbers.limit:
        title = f"One piece of {format_bytes(requested)} is larger than the {format_bytes(numbers.limit)} that one may have"
    elif numbers.limit is not None:
        title = f"A limit of {format_bytes(numbers.limit)} was reached"
        if needed:
            title += f", {format_bytes(needed)} short"
        elif numbers.requested and held + requested + ROUNDING >= numbers.limit:
            title += ", within the rounding of what is printed"
    elif case.backend == "mps" or (case.backend == "xpu" and requested >= _XPU_LARGEST):
        title = f"One piece of {format_bytes(requested)} is more than the driver gives at once"
    saving = Saving(needed, needed, max(high, needed), "estimated") if needed and high and needed <= high else None
    return Finding(
        "MD704",
        title,
        "critical",
        case.device,
        case.evidence(
            Evidence("limit", numbers.limit, "bytes"),
            Evidence("held by this process", numbers.held, "bytes"),
            Evidence("to raise the limit by, at least", needed or None, "bytes"),
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
        title = f"{format_bytes(pool)} lies free in private pools, where only their owners may use it"
    elif won and outside:
        title = f"{format_bytes(outside)} is taken beside the allocator: communication, workspaces, the context"
    else:
        title = "A library found no memory beside what the framework holds"
    fixes = present(*(less_graphs(case) if pool else ()), *(serving(case) or [*_less_beside(case), _leave_room(case)]), snapshot(case))
    return Finding(
        "MD705",
        title,
        "critical",
        case.device,
        case.evidence(
            Evidence("free in private pools", numbers.pool or None, "bytes"),
            Evidence("outside the allocator in this process", numbers.own_outside, "bytes"),
            Evidence("neither free nor reserved by the allocator", numbers.outside, "bytes"),
            Evidence("reserved by the allocator", numbers.reserved, "bytes"),
        ),
        fixes,
        Saving(0, won, max(pool or outside or 0, won), "estimated") if won else None,
        won,
    )


def _ends(case: Case) -> list[Fix]:
    large = sorted((entry for entry in case.numbers.others if entry[1] >= 64 * MIB), key=lambda entry: -entry[1])[:_KILLED_AT_MOST]
    if not large:
        return []
    total = format_bytes(sum(size for _, size in large))
    return [
        Fix(
            f"End the largest of them, if they are yours: {total}", "code", f"kill {' '.join(str(pid) for pid, _ in large)}",
            "where these processes are left over", "look first whose they are; numbers of a container differ from those outside",
        )
    ]  # fmt: skip


def _another_device(case: Case) -> Fix | None:
    names = system(case)
    if not names.visible:
        return None
    if names.freest:
        if case.windows:
            return Fix("Use another device", "env", f"export {names.visible}={0 if case.device else 1}", "several devices", "")
        return Fix("Use the device with the most free memory", "env", f"export {names.visible}={names.freest}", "several devices",
                   "set it before the program starts; not with a launcher that assigns devices")  # fmt: skip
    other = 0 if case.device else 1
    return Fix("Use another device", "env", f"export {names.visible}={other}", f"several devices; `{names.processes}` shows a free one", "")


def _own_device(case: Case) -> Fix | None:
    if case.backend not in {"cuda", "hip", "npu", "xpu"} or not case.on_torch:
        return None
    return Fix(
        "Give each rank its own device", "code", f'{system(case).module}.set_device(int(os.environ["LOCAL_RANK"]))',
        "several ranks on a node: without it all of them take device 0", "before the first tensor is made",
    )  # fmt: skip


def _wait(case: Case) -> Fix | None:
    if case.backend != "npu":
        return None
    return Fix(
        "See that the container has the devices for itself", "flag", "--device=/dev/davinci0", "Ascend, instead of --privileged",
        "a privileged container sees, and shares, all devices of the host",
    )  # fmt: skip


def _raise_limit(case: Case, needed: int | None, high: int | None) -> tuple[Fix, ...]:
    numbers, names = case.numbers, system(case)
    if case.backend == "mps":
        less = Fix("Use a smaller batch, a smaller model or a narrower number format", "code", "", "MPS",
                   "the memory is that of the whole computer, which is probably full at this limit")  # fmt: skip
        return (
            *(serving(case) or (training(case) or less,)),
            Fix("Close other programs that use the GPU", "code", names.processes, "MPS", ""),
            Fix("Let PyTorch use more of the memory that all programs share", "env", "export PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0", "MPS",
                f"0.0 lifts the limit, which is {_MPS_RATIO} times what the system recommends unless it was changed: it may begin to "
                "swap, or stop"),
        )  # fmt: skip
    if case.backend == "xpu" and (numbers.requested or 0) >= _XPU_LARGEST:
        return (
            Fix("Split the tensor into pieces of less than 4 GiB", "code", "", "XPU", ""),
            Fix("Ask the driver to take larger ones", "env", "export UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1", "XPU, Level Zero",
                "kernels that were not built for large buffers may fail or compute wrongly"),
        )  # fmt: skip
    fixes: list[Fix | None] = []
    share = _new_share(case, needed, high)
    if case.on_torch and names.module and case.found.framework not in {"vllm", "sglang"} and numbers.limit is not None:
        enough = f"{format_bytes(numbers.total)} x {share} is enough for this request" if share else ""
        fixes.append(Fix(
            "Raise the limit, or take out the call that set it", "code",
            f"{names.module}.set_per_process_memory_fraction({share or '1.0'})", enough or "where the device has the memory",
            f"leave room for {names.comm} and for other processes on the device; it was set for a reason",
        ))  # fmt: skip
        if has_settings(case) and case.generation == "2.9":
            line = setting(case, "per_process_memory_fraction", share or "1.0")
            title = "Or raise it where it is set in the environment"
            fixes.append(Fix(title, "env", line, "torch >= 2.10: older ones refuse it", "put it into the line that is there"))
    elif case.on_torch and names.module and not case.engine and case.found.framework not in {"vllm", "sglang"}:
        fixes.append(Fix(
            "Look for a limit in the program and in the libraries that start it, and raise it", "code",
            f"{names.module}.set_per_process_memory_fraction(1.0)", "this message does not print limits",
            f"leave room for {names.comm} and for other processes on the device",
        ))  # fmt: skip
    if case.engine:
        fixes += serving(case)
    elif case.on_torch:
        fixes.append(Fix(
            "In a serving engine: change the share of memory that it takes", "flag", "--gpu-memory-utilization 0.95",
            "vLLM; SGLang: --mem-fraction-static", "too high, and graphs, workspaces and communication find no room",
        ))  # fmt: skip
    if not case.engine:
        fixes.append(Fix("Need less: a smaller batch, or shorter sequences", "code", "", "where the limit has to stay", ""))
    fixes.append(snapshot(case))
    return present(*fixes)


def _new_share(case: Case, needed: int | None, high: int | None) -> str:
    """Returns the smallest share of the device, in hundredths, that lets the request through; "" where the device has not enough."""
    numbers = case.numbers
    if not numbers.total or numbers.limit is None or needed is None or (high is not None and needed > high):
        return ""
    hundredths = -(-100 * (numbers.limit + needed) // numbers.total) + 1
    return f"0.{hundredths:02d}" if hundredths < 100 else "1.0"


def _less_beside(case: Case) -> list[Fix]:
    if case.backend == "npu" and "uses:mc2" in case.found.marks:
        return []  # their kernels work in HCCL's buffers
    if case.backend == "npu":
        return [
            Fix("Halve the buffers of HCCL", "env", "export HCCL_BUFFSIZE=100",
                "200 is the default: saves 200 MB for each communicator (2 x 100 MB)", "large collectives may get slower"),
            Fix("Let operators take their workspaces from PyTorch's own pool", "env", "export TASK_QUEUE_ENABLE=1",
                "torch_npu, where TASK_QUEUE_ENABLE=2 is set", "operators are launched a little slower"),
        ]  # fmt: skip
    if not case.on_torch or case.backend not in {"cuda", "hip"}:
        return []
    return [
        Fix("Make fewer communicators, or smaller buffers for each", "env", "export NCCL_BUFFSIZE=2097152",
            "several process groups (4 MiB per channel is the default)", "large collectives may get slower"),
        Fix("Do not search for the fastest convolution with the largest workspace", "code", "torch.backends.cudnn.benchmark = False",
            "convolutions", "they may get slower"),
    ]  # fmt: skip


def _leave_room(case: Case) -> Fix | None:
    if case.backend == "npu":
        return hccl_room(case.numbers)
    if not case.on_torch:
        return Fix("Leave memory beside the framework's pool, or use a smaller batch", "code", "", "every framework", "")
    module = system(case).module
    return Fix(
        "Leave room beside the allocator", "code", f"{module}.set_per_process_memory_fraction(0.9)" if module else "",
        "where libraries need memory that PyTorch has cached", "PyTorch then has less; the program does not need less",
    )  # fmt: skip
