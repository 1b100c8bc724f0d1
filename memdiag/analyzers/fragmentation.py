"""Unusable free memory: its amount, reference request and cause, and the live tensors that block it.

Reserved - allocated is not fragmentation. Free memory is split, relative to a request, into memory that could serve it
(cache), and memory that is too small or in the wrong pool (stranded, foreign); docs/fragmentation.md defines every
byte. A finding requires a twentieth of reserved memory (a warning: a tenth) and 32 MiB, or a failed request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.support import rounding
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.batch import offer_less
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.demand import exceeds_memory
from memdiag.analyzers.support.failure_cause import classified
from memdiag.analyzers.support.free_memory_evidence import (
    above_active,
    fit_evidence,
    history_evidence,
    outside_evidence,
    split_evidence,
)
from memdiag.analyzers.support.model_state import available_bytes, model_state, state_out_of_reach
from memdiag.analyzers.support.moments import DeviceMoment, at_end, look, most_stranded
from memdiag.analyzers.support.pinning import Pin, Pinned, idle_by_group, pinned
from memdiag.analyzers.support.places import age, group_name, lifetime_name, moment_name
from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.remedies import offer, present
from memdiag.diagnosis.remedies.placement import LONG_LIVED_FIRST
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.results.oom import Judgement
from memdiag.text import joined, phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.schema import CATEGORIES, LIFETIMES
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {
    "MD201": "free memory in blocks too small for the request",
    "MD202": "few live bytes keep whole segments or pages reserved",
    "MD204": "free memory that only other pools or streams can use",
    "MD205": "reserved memory is mostly reusable cache, not fragmentation",
    "MD206": "out of memory with too little free memory, not fragmentation",
    **rounding.CODES,
}

SHARE = 0.05  # fraction of reserved memory: worth knowing
WARN_SHARE = 0.1  # worth acting on
FLOOR = 32 * MIB
FOREIGN_SHARE = 0.1  # small pools and side streams always have some
CACHE_SHARE = 0.2
TRIFLE = 0.05  # fraction of a list's bytes: not worth a line
_WORKSPACE = CATEGORIES.index("workspace")
_PASSING = [CATEGORIES.index(name) for name in ("activation", "gradient", "temporary")]
_NUM_PLACES = 3  # number of items that one finding names


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields findings MD201 to MD207 of every device."""
    settings = AllocatorSettings.of(trace)
    for view in context.views(trace):
        here = look(view, settings)
        stranded = _stranded(here)
        if not stranded and view.kind == "peak" and (elsewhere := most_stranded(view, settings)):
            stranded = _stranded(elsewhere, elsewhere.name)
        lost = [
            *_out_of_memory(here),
            *stranded,
            *(_pinned(here) or _pinned(at_end(view, settings), over=True)),
            *_foreign(here),
        ]
        yield from lost
        yield from rounding.findings(here)
        if not lost:
            yield from _cache(view.device, view.at, settings)


def _worth(value: int, reserved: int, share: float = SHARE) -> bool:
    return value >= max(share * reserved, FLOOR)


def _out_of_memory(here: DeviceMoment) -> Iterator[Finding]:
    """Yields MD201 if the free bytes would have been enough, MD206 if they would not, or only just."""
    if not here.failed or here.usage["reserved"] < 0 or here.usage["active"] < 0:
        return
    wanted, free, left = here.request_bytes, here.usage["reserved"] - here.usage["active"], here.device_free_bytes
    failures = int(here.device.references.failed.sum())
    evidence = [Evidence(phrase("fragmentation.asked"), wanted, "bytes", _where(here.name, here.site))]
    evidence += [Evidence(phrase("fragmentation.several"), failures, "errors")] if failures > 1 else []
    in_all = Evidence(phrase("fragmentation.in-all"), free, "bytes", here.name)
    # In one block, the free bytes and the driver's remaining memory would have served it.
    facts, judgement = classified(here)
    is_capacity = facts.missing > facts.pool or (judgement.verdict == "capacity" and facts.fits is False)
    if is_capacity or exceeds_memory(here):
        yield _too_little(here, facts, judgement, [*evidence, in_all])
    elif here.device.has_addresses and not here.fit.fits:
        sizes = {"asked": format_bytes(wanted), "lost": format_bytes(here.lost_bytes if here.is_split_known else free)}
        title = phrase("fragmentation.oom", **sizes)
        if free < wanted:
            title = phrase("fragmentation.oom.beside", left=format_bytes(left), **sizes)
        yield Finding(
            "MD201",
            title,
            "critical",
            here.device.device,
            (
                *evidence,
                in_all,
                *split_evidence(here),
                *outside_evidence(here, facts),
                *fit_evidence(here),
                *history_evidence(here),
                *_state_evidence(here),
            ),
            present(
                *here.settings.offers(*_before_settings(here, judgement)),
                *_fixes(here),
                offer_less(here, facts, when=phrase("fragmentation.less.when")),
            ),
            weight_bytes=free,
        )


def _before_settings(here: DeviceMoment, judgement: Judgement) -> Iterator[str]:
    """Yields the remedies that come before settings, if the cause is memory that this request could never use."""
    if judgement.verdict == "other_process":
        yield "list-processes"
    if _set_aside(here):
        yield "shared-graph-pool"


def _too_little(here: DeviceMoment, facts: Facts, judgement: Judgement, evidence: list[Evidence]) -> Finding:
    """Returns MD206."""
    left = here.device_free_bytes
    limited = left is not None and judgement.rule in {"limit", "refused"}
    asked = format_bytes(here.request_bytes)
    situation = here.settings.situation(facts)
    raised, others, state = None, None, state_out_of_reach(here)
    if limited:
        raised = offer("raise-limit", situation)
        recorded = here.view.trace.recorded
        line = recorded.line_of("set_per_process_memory_fraction") if recorded is not None else ""
        title = phrase("fragmentation.limit", left=format_bytes(left), asked=asked)
        if line:
            title = phrase("fragmentation.limit.line", line=line, left=format_bytes(left), asked=asked)
            evidence = [*evidence, Evidence(phrase("fragmentation.limit.set"), line)]
    else:
        title = phrase("fragmentation.capacity", asked=asked)
        if state is not None:
            have = format_bytes(available_bytes(here) or 0)
            needs = {"needed": format_bytes(state.total), "available": have}
            title = phrase("fragmentation.state", **needs)
            title = phrase("fragmentation.state.least", **needs) if state.is_least else title
        elif facts.missing <= 0:
            title = phrase("fragmentation.full", asked=asked, left=format_bytes(facts.usable))
            evidence = [*evidence, *split_evidence(here)]
        if facts.foreign is None or facts.foreign >= here.usage["reserved"] * WARN_SHARE:
            others = offer("list-processes", situation, when=phrase("fragmentation.others.when"))
    caveat = phrase("remedies.see-live.caveat")
    if facts.asks_for_half:
        need_less = offer("one-tensor", situation, caveat=caveat)
    else:
        need_less = offer_less(here, facts, caveat=caveat)
    return Finding(
        "MD206",
        title,
        "critical",
        here.device.device,
        (
            *evidence,
            *outside_evidence(here, facts),
            Evidence(phrase("fragmentation.live"), here.usage["allocated"], "bytes"),
            Evidence(phrase("fragmentation.reserved"), here.usage["reserved"], "bytes"),
            *_state_evidence(here),
        ),
        present(*((others, need_less) if judgement.verdict == "other_process" else (raised, need_less, others))),
        weight_bytes=state.total if state is not None else here.request_bytes,
    )


def _state_evidence(here: DeviceMoment) -> Iterator[Evidence]:
    """Yields what the training needs in each optimizer step, if memory ran out in the first one."""
    state = model_state(here.view)
    if state is not None:
        names = ", ".join(state.optimizers)
        which = phrase("fragmentation.state.of", names=names)
        which = phrase("fragmentation.state.without", names=names) if state.is_least else which
        yield Evidence(phrase("fragmentation.state.needed"), state.total, "bytes", which)


def _stranded(here: DeviceMoment, moment: str = "") -> list[Finding]:
    """Returns MD201 at a moment without a failure; ``moment`` names it unless it is the moment of the report."""
    if here.failed or not here.is_split_known or not _worth(here.split["stranded"], here.usage["reserved"]):
        return []
    share = here.lost_bytes / here.usage["reserved"]
    sizes = {"lost": format_bytes(here.lost_bytes), "share": f"{share:.0%}"}
    return [
        Finding(
            "MD201",
            phrase("fragmentation.stranded.then", moment=moment, **sizes)
            if moment
            else phrase("fragmentation.stranded", **sizes),
            "warning" if share >= WARN_SHARE else "info",
            here.device.device,
            (
                Evidence(phrase("fragmentation.reference"), here.request_bytes, "bytes", _where(here.name, here.site)),
                *split_evidence(here),
                *fit_evidence(here),
                *history_evidence(here),
                Evidence(phrase("fragmentation.above"), above_active(here.device), "bytes"),
            ),
            _fixes(here),
            weight_bytes=here.split["stranded"],
        )
    ]


def _pinned(here: DeviceMoment, *, over: bool = False) -> list[Finding]:
    """Returns MD202; with ``over`` at the end of the trace, when nothing more is requested."""
    if not here.device.has_addresses or here.usage["reserved"] <= 0:
        return []
    request = here.request_bytes if here.reference >= 0 else 0
    found = pinned(here.view, here.topology, here.settings, here.group, request)
    if found is None or not _worth(found.held_bytes, here.usage["reserved"]):
        return []
    what = "pages" if found.pages else "segments"
    live, held = format_bytes(found.live_bytes), format_bytes(found.held_bytes)
    title = f"{what}.end" if over else what
    return [
        Finding(
            "MD202",
            phrase(f"fragmentation.pinned.{title}", live=live, held=held, count=found.num_pieces),
            "info" if over or found.held_bytes < WARN_SHARE * here.usage["reserved"] else "warning",
            here.device.device,
            (
                Evidence(phrase(f"fragmentation.pinned.free.{what}"), found.held_bytes, "bytes", here.name),
                Evidence(phrase("fragmentation.pinned.bytes"), found.live_bytes, "bytes"),
                *(
                    _pin_evidence(here, pin, what)
                    for pin in found.pins[:_NUM_PLACES]
                    if pin.held_bytes >= TRIFLE * found.held_bytes
                ),
            ),
            present(
                *here.settings.offers("expandable-segments", "smaller-pages"),
                _keep_together(here, found),
            ),
            weight_bytes=found.held_bytes,
        )
    ]


def _pin_evidence(here: DeviceMoment, pin: Pin, what: str) -> Evidence:
    kind = lifetime_name(pin.lifetime)
    lived = age(here.device, pin.oldest_alloc_at, here.at)
    alive = (
        phrase("fragmentation.pin.oldest" if pin.num_tensors > 1 else "fragmentation.pin.alive", age=lived)
        if lived
        else ""
    )
    who = joined(
        (phrase("fragmentation.pin.who", count=pin.num_tensors, bytes=format_bytes(pin.tensor_bytes)), kind, alive),
        ", ",
    )
    text = phrase(f"fragmentation.pin.{what}", count=pin.num_pieces, who=who)
    return Evidence(text, pin.held_bytes, "bytes", pin.place)


def _keep_together(here: DeviceMoment, found: Pinned) -> Fix | None:
    """Returns the program change that moves the worst pins elsewhere, or None if they are short-lived anyway."""
    worst = found.pins[0]
    if LIFETIMES[worst.lifetime] in ("forward_to_backward", "within_step", "within_phase", "temporary"):
        return None
    category = here.device.tensors.category[list(worst.rows)]
    if np.isin(category, _PASSING).all():
        return None
    if (category == _WORKSPACE).all():
        return here.settings.offer("workspaces-first")
    if not worst.place:
        return here.settings.offer("long-lived-first")
    return LONG_LIVED_FIRST.of(phrase("fragmentation.what.place", place=worst.place))


def _foreign(here: DeviceMoment) -> Iterator[Finding]:
    """Yields MD204."""
    if not here.is_split_known or not _worth(here.split["foreign"], here.usage["reserved"], FOREIGN_SHARE):
        return
    device, groups = here.device, here.device.groups
    idle = idle_by_group(here.view, here.topology, here.settings)
    others = sorted(
        (group for group in idle if _is_apart(device, group, here.group) and idle[group]),
        key=lambda group: -idle[group],
    )
    apart = sum(idle[group] for group in others)
    if not _worth(apart, here.usage["reserved"], FOREIGN_SHARE):
        return
    names = []
    if any(_is_private(device, group) for group in others):
        names.append("shared-graph-pool")
    if any(group >= 0 and groups.stream[group] != groups.stream[here.group] for group in others):
        names.append("one-stream")
    fixes = [*here.settings.offers(*names)]
    if any(group >= 0 and groups.small[group] for group in others):
        fixes.append(LONG_LIVED_FIRST.of(phrase("fragmentation.what.small")))
    yield Finding(
        "MD204",
        phrase("fragmentation.foreign", bytes=format_bytes(apart)),
        "warning",
        device.device,
        (
            Evidence(phrase("fragmentation.foreign.bytes"), here.split["foreign"], "bytes", here.name),
            Evidence(phrase("fragmentation.reference"), here.request_bytes, "bytes", group_name(device, here.group)),
            *(
                Evidence(phrase("fragmentation.foreign.of"), idle[group], "bytes", group_name(device, group))
                for group in others[:_NUM_PLACES]
            ),
        ),
        tuple(fixes),
        weight_bytes=apart,
    )


def _is_private(device: DeviceTrace, group: int) -> bool:
    return group >= 0 and bool(device.groups.pool_major[group] or device.groups.pool_minor[group])


def _set_aside(here: DeviceMoment) -> bool:
    """Returns whether private pools other than the request's have at least its size free."""
    if not here.device.has_addresses or _is_private(here.device, here.group):
        return False
    topology = here.topology
    group = topology.segments["group"][topology.blocks["segment"]]
    free = topology.blocks["tensor"] < 0
    private = np.array([_is_private(here.device, number) for number in range(len(here.device.groups))] or [False])
    return bool(topology.blocks["size"][free & (group >= 0) & private[group]].sum() >= here.request_bytes)


def _is_apart(device: DeviceTrace, group: int, mine: int) -> bool:
    """Returns whether free memory of ``group`` is out of reach in a relevant way.

    Large blocks for a small request do not count.
    """
    groups = device.groups
    if group < 0 or group == mine:
        return False
    same_place = all(groups[name][group] == groups[name][mine] for name in ("pool_major", "pool_minor", "stream"))
    return not (same_place and groups.small[mine])


def _cache(device: DeviceTrace, at: int, settings: AllocatorSettings) -> Iterator[Finding]:
    """Yields MD205 at the moment of the report or the end of the trace, whichever has more; the title names the end."""
    chosen = at
    if at >= 0 and device.usage.reference[at] >= 0 and device.references.opened_at[device.usage.reference[at]] <= at:
        # New memory is cache until its request uses it.
        at = max(at, int(device.references.at_event[device.usage.reference[at]]))
    moments = [moment for moment in (at, device.num_events - 1) if moment >= 0 and device.usage.cache[moment] >= 0]
    if not moments:
        return
    best = max(moments, key=lambda moment: int(device.usage.cache[moment]))
    cache, reserved = int(device.usage.cache[best]), int(device.usage.reserved[best])
    lost = int(device.usage.stranded[best] + device.usage.foreign[best])
    gap = reserved - int(device.usage.allocated[best])
    title = phrase("fragmentation.cache", bytes=format_bytes(cache))
    if best != chosen:
        title = phrase("fragmentation.cache.then", bytes=format_bytes(cache), moment=moment_name(device, best))
        if best == device.num_events - 1:
            title = phrase("fragmentation.cache.end", bytes=format_bytes(cache))
    if not _worth(cache, reserved, CACHE_SHARE) or lost > gap / 4:
        return
    yield Finding(
        "MD205",
        title,
        "info",
        device.device,
        (
            Evidence(phrase("fragmentation.cache.gap"), gap, "bytes", moment_name(device, best)),
            Evidence(phrase("fragmentation.cache.free"), cache, "bytes"),
            Evidence(phrase("fragmentation.cache.lost"), lost, "bytes"),
        ),
        settings.offers("leave-cache"),
        weight_bytes=cache,
    )


def _fixes(here: DeviceMoment) -> tuple[Fix, ...]:
    found = pinned(here.view, here.topology, here.settings, here.group, here.request_bytes)
    situation = here.settings.situation(Facts(request=here.request_bytes, is_printed=False, is_counted=True))
    return present(
        offer("expandable-segments", situation),
        offer("smaller-pages", situation) if found and found.pages else None,
        _keep_together(here, found) if found else None,
        offer("split-limit", situation),
    )


def _where(*parts: str) -> str:
    return joined(parts, ", ")
