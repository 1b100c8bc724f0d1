"""Host memory (MD706), undetermined causes (MD707), and hints in messages that do not help (MD708)."""

from __future__ import annotations

from dataclasses import replace

from memdiag.diagnosis.remedies import present
from memdiag.diagnosis.remedies.systems import UNSHARED
from memdiag.diagnosis.thresholds import ANY_RUN
from memdiag.oom.advice.case import Case
from memdiag.oom.advice.device import of_stage
from memdiag.oom.advice.serving import serving
from memdiag.oom.advice.training import training
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.results.lazy_fix import LazyFix
from memdiag.text import phrase
from memdiag.units import format_bytes

_HINTS = ("max_split_size_mb", "expandable_segments")


def host(case: Case) -> Finding:
    """Returns MD706."""
    requested, fields = case.numbers.requested, case.found.fields
    rss = fields.get("anon_rss_bytes")
    title = (
        phrase("oom_rest.title.host.size", request=format_bytes(requested))
        if requested
        else phrase("oom_rest.title.host")
    )
    if "limit" in case.judgement.alternatives and not requested:
        title = phrase("oom_rest.title.host.limit")
    if case.judgement.confidence == "low":
        title = phrase("oom_rest.title.host.perhaps")
    return Finding(
        "MD706",
        title,
        "critical",
        None,
        case.evidence(
            Evidence(phrase("oom_rest.evidence.killed"), rss if isinstance(rss, int) else None, "bytes"),
            Evidence(phrase("oom_rest.evidence.in-use"), case.numbers.allocated, "bytes"),
            Evidence(phrase("oom_elsewhere.evidence.limit"), case.numbers.limit, "bytes"),
        ),
        (
            LazyFix(
                "oom_host.workers",
                "code",
                "DataLoader(dataset, num_workers=2, pin_memory=False)",
                when="oom_rest.workers.when",
            ).fix(),
            LazyFix("oom_host.mapped", "code", 'torch.load(path, map_location="cpu", mmap=True)').fix(),
            LazyFix("oom_host.shm", "flag", "--shm-size=16g").fix(),
            LazyFix("oom_rest.ranks", "flag", "--mem=0").fix(),
            LazyFix("oom_host.largest", "code", "ps aux --sort=-rss | head").fix(),
        ),
        None,
        requested or 0,
    )


def unknown(case: Case) -> Finding:
    """Returns MD707."""
    numbers = case.numbers
    if case.backend == "mps" and case.numbers.limit is not None and not case.numbers.held:
        return _unusable(case)
    if case.judgement.confidence == "high":
        return _no_shortage(case)
    module = case.situation.module
    in_hand = None
    if case.on_torch and case.backend in {"cuda", "hip"}:
        in_hand = LazyFix("oom_rest.print", "code", f"print({module}.mem_get_info())").fix()
    title = phrase("oom_rest.title.unknown")
    if numbers.free is not None and numbers.requested is not None and numbers.free >= numbers.requested:
        title = phrase(
            "oom_rest.title.refused", request=format_bytes(numbers.requested), free=format_bytes(numbers.free)
        )
    return Finding(
        "MD707",
        title,
        "critical",
        case.device,
        case.evidence(
            Evidence(phrase("oom_device.evidence.allocated"), numbers.allocated, "bytes"),
            Evidence(phrase("oom_device.evidence.unallocated"), numbers.slack, "bytes"),
        ),
        present(
            *serving(case),
            training(case),
            *of_stage(case),
            case.offer("record"),
            _look(case),
            in_hand,
            LazyFix("oom_rest.log", "code", "memdiag oom train.log").fix(),
        ),
        None,
        numbers.requested or 0,
    )


def _look(case: Case) -> Fix | None:
    processes = case.situation.system.processes
    if not processes:
        return None
    fix = LazyFix("oom_rest.look", "code", processes).fix()
    return replace(fix, caveat="") if case.backend in UNSHARED else fix


def _no_shortage(case: Case) -> Finding:
    """Returns MD707 if a dialect knows that memory is not the cause."""
    look = LazyFix("oom_torch.exabyte", "code").fix()
    asked = Evidence(phrase("oom_device.evidence.requested"), case.numbers.requested, "bytes")
    title = phrase("oom_rest.title.wrong")
    return Finding(
        "MD707",
        title,
        "critical",
        case.device,
        (asked,) if asked.value is not None else (),
        () if case.found.fixes else (look,),
        None,
        0,
    )


def _unusable(case: Case) -> Finding:
    """Returns MD707 if the GPU of a Mac refuses every request."""
    numbers = case.numbers
    fixes = (
        LazyFix("oom_rest.cpu", "code", 'device = torch.device("cpu")').fix(),
        LazyFix("oom_rest.skip", "code").fix(),
    )
    title = phrase("oom_rest.title.unusable", request=format_bytes(numbers.requested))
    return Finding(
        "MD707",
        title,
        "critical",
        case.device,
        case.evidence(Evidence(phrase("oom_elsewhere.evidence.limit"), numbers.limit, "bytes")),
        fixes,
        None,
        0,
    )


def hint(case: Case) -> Finding | None:
    """Returns MD708 if the message suggests a setting that the numbers rule out, else None."""
    hinted = [key for key in _HINTS if f"hint:{key}" in case.found.marks]
    slack, verdict = case.numbers.slack, case.judgement.verdict
    if slack is None or case.short is None or not case.numbers.total or verdict == "fragmentation":
        return None  # missing numbers cannot rule it out
    if not hinted and (verdict != "capacity" or not case.caching):
        return None
    needed = max(case.short, 1)
    part = case.numbers.share(slack)
    if slack >= needed and (part >= ANY_RUN or not hinted):
        return None
    named = hinted or (
        ["expandable_segments"] if case.situation.can_be_set and not case.is_set("expandable_segments") else []
    )
    settings = ", ".join([*named, "empty_cache()"])
    title = phrase("oom_rest.title.hint", settings=settings, slack=format_bytes(slack), short=format_bytes(needed))
    if slack >= needed:
        title = phrase("oom_rest.title.hint.little", settings=settings, slack=format_bytes(slack), share=f"{part:.1%}")
    elif not slack:
        title = phrase("oom_rest.title.hint.nothing", settings=settings)
    if case.numbers.pool:
        title = phrase("oom_rest.title.hint.pools", title=title, pool=format_bytes(case.numbers.pool))
    evidence = (
        Evidence(phrase("oom_rest.evidence.upper-bound"), slack, "bytes"),
        Evidence(phrase("oom_device.evidence.short"), needed, "bytes"),
    )
    return Finding("MD708", title, "info", case.device, evidence, (), None, slack)
