"""Remedies on the device itself: its free memory is fragmented (MD701), or it has too little (MD702)."""

from __future__ import annotations

from dataclasses import replace

from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.remedies import present
from memdiag.diagnosis.thresholds import POOL_MATTERS, WAITING
from memdiag.oom.advice.case import Case
from memdiag.oom.advice.graphs import less_graphs
from memdiag.oom.advice.serving import serving
from memdiag.oom.advice.training import training
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.text import joined, phrase
from memdiag.units import format_bytes

_WHOLE_PROGRAMS = frozenset({"xla_tpu"})  # their "requested" is the total of a compiled program, not one request

_KEPT = frozenset({"load", "checkpoint", "optimizer", "shard"})  # stages in which memory for the whole run is allocated


def fragmentation(case: Case) -> Finding:
    """Returns MD701."""
    numbers = case.numbers
    slack, requested = numbers.slack or 0, numbers.requested or 0
    asleep = case.offer("before-waking")
    pools = case.offer("lifetime-pools")
    fixes = present(
        asleep,
        *(() if asleep else case.offers("no-lifetime-pools", "expandable-segments", "expandable-check")),
        pools,
        *case.offers("split-limit", "lifetime-pools-variable"),
        case.offer("hccl-room") if pools else None,
        case.offer("upgrade"),
        _own_stream(case),
        *(serving(case) or (_steady_sizes(case),)),
        case.offer("record"),
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


def _own_stream(case: Case) -> Fix | None:
    waiting = _pending(case).value
    if case.backend != "npu" or not isinstance(waiting, int) or waiting < WAITING:
        return None
    return case.offer("stream-reuse")


def _steady_sizes(case: Case) -> Fix | None:
    return case.offer("steady-sizes", when="" if case.on_torch else phrase("remedies.every"))


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
        return [*present(case.offer("load-to-host", when=phrase("oom_device.checkpoint.when")))]
    if case.stage == "load":
        return [*case.offers("fewer-bits", "all-devices")]
    if case.stage == "optimizer" and case.backend in {"cuda", "hip"}:
        return [*present(case.offer("smaller-optimizer", when=phrase("oom_device.optimizer.when")))]
    if case.stage == "update":
        return [*present(case.offer("fused-optimizer", when=phrase("oom_device.update.when")))]
    name = _OF_STAGE.get(case.stage)
    return [*case.offers(name)] if name else []


_OF_STAGE = {
    "optimizer": "shard-optimizer",
    "evaluation": "evaluation",
    "gather": "outputs-to-host",
    "generation": "generation",
    "shard": "shard-early",
}


def _one_tensor(case: Case, *, alone: bool) -> Fix | None:
    """Returns the remedy for one request of half the device or more, by the operation of the innermost frames."""
    caveat = phrase("oom_device.alone.caveat") if alone else ""
    name = {"attention": "attention", "logits": "loss-in-chunks"}.get(case.operation if case.on_torch else "", "")
    return case.offer(name or "one-tensor", caveat=caveat)


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
            case.offer("record"),
        )
    if (alone or numbers.asks_for_half) and case.stage not in _KEPT:
        fixes.append(_one_tensor(case, alone=alone))
    lead = training(case)
    if lead and not case.stage:
        lead = replace(lead, caveat=joined((_little_to_win(case), lead.caveat), "; "))
    fixes += [None if alone else case.offer("contexts"), lead, *of_stage(case)]
    if not lead or case.stage:
        when = phrase("oom_device.batch.later.when") if case.stage in _KEPT else ""
        fixes.append(case.offer("smaller-batch", when=when, caveat=_little_to_win(case)))
    if numbers.pool and numbers.share(numbers.pool) >= POOL_MATTERS:
        fixes += less_graphs(case)[:2]
    if case.on_torch:
        if not case.program:  # Megatron's option means nothing to other programs
            fixes.append(case.offer("recompute-megatron"))
        if not lead or case.stage:
            fixes.append(case.offer("recompute"))
        if not case.program and case.stage not in {"evaluation", "gather"}:
            fixes.append(case.offer("no-graph"))
        fixes.append(case.offer("shard"))
        fixes += case.offers("offload", "record")
    else:
        fixes.append(case.offer("smaller-model"))
    return present(*fixes)
