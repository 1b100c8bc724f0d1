"""Remedies on the device itself: its free memory is fragmented (MD701), or it has too little (MD702)."""

from __future__ import annotations

from dataclasses import replace

from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.remedies import present
from memdiag.diagnosis.remedies.lazy_fix import LazyFix
from memdiag.oom.advice.case import Case
from memdiag.oom.advice.graphs import less_graphs
from memdiag.oom.advice.serving import serving
from memdiag.oom.advice.systems import expandable, max_split, newer, recording, snapshot, system
from memdiag.oom.advice.training import training
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.text import joined, phrase
from memdiag.units import GIB, MIB, format_bytes

_POOLS_FROM = GIB  # MindSpeed's rule of thumb: use its pools if more than this fraction is reserved but not allocated
_HCCL = 400 * MIB  # one communicator: 2 x HCCL_BUFFSIZE, 200 MB by default
_POOL_MATTERS = 0.03  # fraction of the device
_WAITING = 256 * MIB
_CONTEXT = (128 * MIB, GIB)  # memory of a process on a device that it does not compute on
_WHOLE_PROGRAMS = frozenset({"xla_tpu"})  # their "requested" is the total of a compiled program, not one request

_KEPT = frozenset({"load", "checkpoint", "optimizer", "shard"})  # stages in which memory for the whole run is allocated


def fragmentation(case: Case) -> Finding:
    """Returns MD701."""
    numbers = case.numbers
    slack, requested = numbers.slack or 0, numbers.requested or 0
    asleep = numbers.oversubscribed and numbers.pool > 0
    fixes = present(
        _cache_before_waking(case) if asleep else None,
        None if asleep else expandable(case) or _really_on(case),
        *_lifetime_pools(case)[:1],
        max_split(case),
        *_lifetime_pools(case)[1:],
        newer(case),
        _own_stream(case),
        *(serving(case) or (_steady_sizes(case),)),
        snapshot(case),
    )
    saving = Saving(0, min(slack, requested or slack), slack, "estimated") if slack else None
    return Finding(
        "MD701",
        _fragmented(numbers),
        "critical",
        case.device,
        case.evidence(
            Evidence(phrase("oom_device.evidence.unallocated"), numbers.slack, "bytes"),
            Evidence(phrase("oom_device.evidence.unused-share"), _ratio(slack, numbers.reserved), "ratio"),
            _pending(case),
        ),
        fixes,
        saving,
        slack,
    )


def _fragmented(numbers: Facts) -> str:
    unused, request, free = (format_bytes(size or 0) for size in (numbers.slack, numbers.requested, numbers.free))
    if numbers.slack is None and not numbers.requested:
        return phrase("oom_device.title.unfit.free", free=free) if numbers.free else phrase("oom_device.title.unfit")
    if numbers.slack is None:
        return (
            phrase("oom_device.title.free", free=free, request=request)
            if numbers.free
            else phrase("oom_device.title.free.unknown", request=request)
        )
    if not numbers.requested:
        return phrase("oom_device.title.size-unknown", unused=unused)
    if numbers.slack < numbers.requested and numbers.free:
        return phrase("oom_device.title.both", unused=unused, free=free, request=request)
    return phrase("oom_device.title.pieces", unused=unused, request=request)


def capacity(case: Case) -> Finding:
    """Returns MD702."""
    numbers = case.numbers
    requested = numbers.requested or 0
    alone = numbers.total is not None and requested > numbers.total
    used = numbers.live if numbers.live is not None else numbers.process
    missing = _missing(numbers)
    request, total = format_bytes(requested), format_bytes(numbers.total)
    title = phrase("oom_device.title.more", request=request) if requested else phrase("oom_device.title.needs")
    if alone:
        title = phrase("oom_device.title.alone", request=request)
        if case.found.dialect in _WHOLE_PROGRAMS:
            title = phrase("oom_device.title.program", request=request, total=total)
    elif numbers.total is not None and used is not None:
        title = phrase("oom_device.title.full", used=format_bytes(used), total=total, request=request)
    return Finding(
        "MD702",
        title,
        "critical",
        case.device,
        case.evidence(
            Evidence(phrase("oom_device.evidence.allocated"), numbers.live, "bytes"),
            Evidence(phrase("oom_device.evidence.missing"), missing, "bytes"),
            Evidence(phrase("oom_device.evidence.short"), case.short or None, "bytes"),
            Evidence(phrase("oom_device.evidence.upper-bound"), numbers.slack, "bytes"),
        ),
        _less(case, alone=alone),
        None,
        missing or requested,
    )


def _ratio(part: int, whole: int | None) -> float | None:
    return round(part / whole, 3) if whole else None


def _pending(case: Case) -> Evidence:
    active, allocated = case.found.fields.get("active_bytes"), case.numbers.allocated
    waiting = active - allocated if isinstance(active, int) and allocated is not None else 0
    return Evidence(phrase("oom_device.evidence.pending"), waiting if waiting > 0 else None, "bytes")


def _missing(numbers: Facts) -> int | None:
    """Returns the bytes that no packing could provide."""
    used = numbers.live if numbers.live is not None else numbers.process
    if numbers.total is None or numbers.requested is None or numbers.oversubscribed:
        return None
    beyond = (used or 0) + numbers.requested - numbers.total
    return beyond if beyond > 0 else None


def _lifetime_pools(case: Case) -> tuple[Fix, ...]:
    """Returns MindSpeed's lifetime-segregated pools, with the memory to leave for HCCL."""
    numbers = case.numbers
    if case.backend != "npu" or case.found.framework != "torch_npu" or (numbers.slack or 0) <= _POOLS_FROM:
        return ()
    pools = (
        LazyFix("oom_device.pools", "flag", "--memory-fragmentation").fix(),
        LazyFix("oom_device.pools", "env", "export MEMORY_FRAGMENTATION=1", when="oom_device.pools.env.when").fix(),
    )
    room = hccl_room(numbers)
    return (*pools, room) if room else pools


def hccl_room(numbers: Facts) -> Fix | None:
    """Returns the memory fraction that leaves room for HCCL's current memory and one more communicator.

    None if no sensible fraction exists.
    """
    if not numbers.total or numbers.outside is None or numbers.reserved is None:
        return None
    hundredths = (numbers.total - numbers.outside - _HCCL) * 100 // numbers.total
    if not 50 <= hundredths < 100:
        return None
    return LazyFix(
        "oom_device.hccl",
        "code",
        f"torch_npu.npu.set_per_process_memory_fraction(0.{hundredths:02d})",
        {
            "bytes": format_bytes(numbers.total - numbers.total * hundredths // 100),
            "left": format_bytes(numbers.total * hundredths // 100),
        },
    ).fix()


def _own_stream(case: Case) -> Fix | None:
    waiting = _pending(case).value
    if case.backend != "npu" or not isinstance(waiting, int) or waiting < _WAITING:
        return None
    return LazyFix("oom_device.own-stream", "env", "export MULTI_STREAM_MEMORY_REUSE=1").fix()


def _cache_before_waking(case: Case) -> Fix:
    return LazyFix("oom_device.waking", "code", f"{system(case).module}.empty_cache()").fix()


def _really_on(case: Case) -> Fix | None:
    if not case.is_set("expandable_segments") or case.windows:
        return None
    module = system(case).module
    return LazyFix(
        "oom_device.in-force",
        "code",
        f'print({{segment.get("is_expandable") for segment in {module}.memory_snapshot()}})' if module else "",
    ).fix()


def _steady_sizes(case: Case) -> Fix:
    return LazyFix("oom_device.steady", "code", when="" if case.on_torch else "remedies.every").fix()


def _little_to_win(case: Case) -> str:
    """Returns the possible gain from allocator settings that the numbers do not rule out (see ``rest.hint``), or ""."""
    slack, short, numbers = case.numbers.slack, case.short, case.numbers
    if slack is None or (short is not None and slack < short) or not slack:
        return ""
    unused: str = format_bytes(slack)
    if numbers.pool:
        unused = phrase("oom_device.win.private", unused=unused, pool=format_bytes(numbers.pool))
    if short is None:
        return phrase("oom_device.win.unknown", unused=unused)
    return phrase("oom_device.win.this-request", unused=unused)


def of_stage(case: Case) -> list[Fix]:
    """Returns remedies for a failure outside model steps, while long-lived memory was being allocated."""
    if not case.on_torch:
        return []
    if case.stage == "checkpoint":
        return [
            LazyFix(
                "oom_device.checkpoint",
                "code",
                'model.load_state_dict(torch.load(path, map_location="cpu", mmap=True))',
            ).fix()
        ]
    if case.stage == "load":
        return [
            LazyFix(
                "oom_shared.bits",
                "code",
                "model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16)",
                when="oom_device.load.when",
            ).fix(),
            LazyFix(
                "oom_device.all-devices",
                "code",
                'model = AutoModelForCausalLM.from_pretrained(name, device_map="auto")',
            ).fix(),
        ]
    if case.stage == "optimizer" and case.backend in {"cuda", "hip"}:
        return [
            LazyFix(
                "oom_device.optimizer", "code", "optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())"
            ).fix()
        ]
    if case.stage == "optimizer":
        return [
            LazyFix(
                "oom_device.optimizer.shard",
                "code",
                "optimizer = torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=lr)",
            ).fix()
        ]
    fix = _OF_STAGE.get(case.stage)
    return [fix.fix()] if fix else []


_OF_STAGE = {
    "evaluation": LazyFix("oom_device.evaluation", "code", "with torch.inference_mode():"),
    "gather": LazyFix("oom_device.gather", "code", "outputs.append(output.detach().cpu())"),
    "generation": LazyFix("oom_device.generation", "code", "model.generate(**inputs, max_new_tokens=128)"),
    "shard": LazyFix("oom_device.shard", "code", 'with torch.device("meta"):'),
    "update": LazyFix("oom_device.update", "code", "optimizer = torch.optim.AdamW(model.parameters(), fused=True)"),
}


def _one_tensor(case: Case, *, alone: bool) -> Fix:
    """Returns the remedy for one request of half the device or more, by the operation of the innermost frames."""
    caveat = "oom_device.alone.caveat" if alone else ""
    if case.on_torch and case.operation == "attention":
        line = "torch.nn.functional.scaled_dot_product_attention(q, k, v)"
        return LazyFix("oom_device.attention", "code", line, caveat=caveat).fix()
    if case.on_torch and case.operation == "logits":
        return LazyFix(
            "oom_device.logits", "code", "model = AutoLigerKernelForCausalLM.from_pretrained(name)", caveat=caveat
        ).fix()
    return LazyFix("oom_device.one-tensor", "code", caveat=caveat).fix()


def _contexts(case: Case) -> Fix | None:
    """Returns how to keep other ranks off this device.

    Such ranks appear as several processes with the same memory, at most a context each.
    """
    numbers = case.numbers
    small = [size for _pid, size in numbers.strangers if _CONTEXT[0] <= size <= _CONTEXT[1]]
    module = system(case).module
    if len(small) < 2 or max(small) > 1.05 * min(small) or not module or not case.on_torch:
        return None
    room = "oom_device.contexts.room" if case.short and sum(small) >= case.short else ""
    line = f'{module}.set_device(int(os.environ["LOCAL_RANK"]))'
    return LazyFix(
        "oom_device.contexts", "code", line, {"count": len(small), "bytes": format_bytes(min(small))}, caveat=room
    ).fix()


def _less(case: Case, *, alone: bool) -> tuple[Fix, ...]:
    """Returns ways to need less memory, ordered by cost."""
    numbers = case.numbers
    fixes: list[Fix | None] = []
    engine = serving(case)
    if engine:
        first = engine[0]
        return present(
            replace(first, caveat=joined((first.caveat, _little_to_win(case)), "; ")),
            *engine[1:],
            *(less_graphs(case) if numbers.pool else ()),
            snapshot(case),
        )
    large = alone or bool(numbers.total and (numbers.requested or 0) > numbers.total // 2)
    if large and case.stage not in _KEPT:
        fixes.append(_one_tensor(case, alone=alone))
    lead = training(case)
    if lead and not case.stage:
        lead = replace(lead, caveat=joined((_little_to_win(case), lead.caveat), "; "))
    fixes += [None if alone else _contexts(case), lead, *of_stage(case)]
    if not lead or case.stage:
        when = "oom_device.batch.later.when" if case.stage in _KEPT else ""
        fixes.append(replace(LazyFix("oom_device.batch", "code", when=when).fix(), caveat=_little_to_win(case)))
    if numbers.pool and numbers.share(numbers.pool) >= _POOL_MATTERS:
        fixes += less_graphs(case)[:2]
    if case.on_torch:
        if case.backend == "npu" and case.program != "megatron":
            fixes.append(
                LazyFix(
                    "oom_shared.recompute",
                    "flag",
                    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
                    when="oom_device.recompute.megatron",
                ).fix()
            )
        if not lead or case.stage:
            fixes.append(
                LazyFix(
                    "oom_shared.recompute",
                    "code",
                    "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
                ).fix()
            )
        if not case.program and case.stage not in {"evaluation", "gather"}:
            fixes.append(LazyFix("oom_device.no-grad", "code", "with torch.inference_mode():").fix())
        fixes.append(LazyFix("oom_device.fsdp", "code", "torch.distributed.fsdp.fully_shard(model)").fix())
        record = snapshot(case)
        if numbers.total and numbers.total >= GIB and record and record.change.startswith(recording(case)):
            fixes.append(
                LazyFix(
                    "oom_device.offload",
                    "record",
                    f"{recording(case)}\nmemdiag simulate --policy offload --max-device-memory {numbers.total // GIB}GiB",
                ).fix()
            )
        fixes.append(record)
    else:
        fixes.append(LazyFix("oom_device.smaller-model", "code").fix())
    return present(*fixes)
