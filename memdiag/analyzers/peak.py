"""Live memory at the peak: by category, call site, layer and phase, and memory from before the recording.

One finding describes the composition of the peak, with remedies for its largest part (MD101 to MD103). Another one
reports temporaries of the optimizer step (MD104).

Thresholds: a part is "most" from a third of the live bytes on; MD104 requires a tenth of them, and 64 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.first_forward import is_without_use
from memdiag.analyzers.support.model_state import model_state, state_out_of_reach
from memdiag.analyzers.support.moments import DeviceMoment, look
from memdiag.analyzers.support.names import kind_words, largest_names, place_of, short
from memdiag.analyzers.support.optimizers import for_optimizer, is_other_optimizer, optimizer_of
from memdiag.analyzers.support.places import moment_name, when, when_at
from memdiag.analyzers.support.sites import SiteMemory, by_category, by_module, by_place, label_of, stackless, sums
from memdiag.analyzers.support.without import peak_without, saving_without
from memdiag.results.finding import Evidence, Finding, Fix, Severity
from memdiag.text import joined, phrase
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import has_history, is_nearly_full
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {
    "MD101": "activations dominate live memory at the peak",
    "MD102": "parameters, gradients and optimizer state dominate live memory",
    "MD103": "tensors other than activations and the model dominate live memory",
    "MD104": "temporary tensors of the optimizer step set the peak",
}

MOST = 1 / 3  # of live bytes
LARGE = 0.1
FLOOR = 64 * MIB
TRIFLE = 0.02  # fraction of live bytes: too little to mention
NUM_LISTED = 3

MOST_OUTPUTS = 2  # of one forward
SEVERAL = 4  # forwards: a training may run several models before its first backward
SETS = 4  # of gradients: a training keeps two at most, in another precision each
_VMAP, _OPACUS = "torch/_functorch/vmap.py", "/opacus/grad_sample/"  # what computes gradients of samples
_STATE = ("parameter", "gradient", "optimizer_state")


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields findings MD101 to MD104 of every device."""
    for view in context.views(trace):
        rows = view.live
        if not len(rows):
            continue
        yield from _composition(view, rows)
        if has_history(view.device):
            yield from _optimizer_temporaries(view)


def _composition(view: DeviceView, rows: Array) -> Iterator[Finding]:
    """Yields MD101, MD102 or MD103."""
    device, tensors = view.device, view.device.tensors
    total, held = int(tensors.block_bytes[rows].sum()), by_category(view, rows)
    state = sum(held.get(name, 0) for name in _STATE)
    settings = AllocatorSettings.of(view.trace)
    fixes: tuple[Fix, ...] = ()
    is_server = (
        held.get("kv_cache", 0) >= TRIFLE * total and not held.get("gradient") and not held.get("optimizer_state")
    )
    if held.get("activation", 0) >= max(MOST * total, state):
        code, names = "MD101", ["activation"]
        kept = ["compiler-budget", "recompute"] if _is_compiled(view, rows) else ["recompute"]
        if _are_outputs(view, rows[tensors.category[rows] == schema.CATEGORIES.index("activation")]):
            fixes = settings.offers("outputs-to-host")
        elif (here := _failure(view, settings)) is not None and is_without_use(here):
            fixes = settings.offers("no-graph", "smaller-batch")
        elif here is not None and state_out_of_reach(here) is not None:
            fixes = settings.offers("shard")
        else:
            fixes = settings.offers(*([] if _is_inference(device) else kept), "smaller-batch")
    elif state >= MOST * total:
        code, names = "MD102", [name for name in _STATE if held.get(name, 0) >= TRIFLE * total]
        if is_server:
            fixes = settings.offers("tensor-parallel")
        elif _is_inference(device) and state == held.get("parameter"):
            fixes = settings.offers("smaller-model")
        elif _has_gradients_of_samples(view, held):
            is_opacus = any(_OPACUS in frame.filename for frame in view.trace.stacks.frames)
            fixes = settings.offers("physical-batch" if is_opacus else "fewer-samples")
        else:
            states = rows[tensors.category[rows] == schema.CATEGORIES.index("optimizer_state")]
            fixes = settings.offers("shard", *(["smaller-optimizer"] if "optimizer_state" in names else []))
            fixes = for_optimizer(fixes, optimizer_of(view.trace, tensors.stack[states]))
    else:
        code, names = "MD103", [name for name in held if name != "unknown"][:1]
        fixes = settings.offers(*(["generation"] if names == ["kv_cache"] and _is_inference(device) else []))
    part = sum(held.get(name, 0) for name in names)
    if not part or part < MOST * total or (code == "MD103" and part < FLOOR):
        return
    mine = rows[np.isin(tensors.category[rows], [schema.CATEGORIES.index(name) for name in names])]
    evidence = (
        Evidence(phrase("peak.live"), total, "bytes", moment_name(device, view.at)),
        *(
            Evidence(phrase("peak.kind", kind=kind_words(name)), size, "bytes")
            for name, size in list(held.items())[: NUM_LISTED + 1]
        ),
        *_before(view, rows),
        *_origins(view, mine),
    )
    kinds = _listed([kind_words(name) for name in names])
    title = phrase("peak.title", share=f"{part / total:.0%}", total=format_bytes(total), moment=when(view), kinds=kinds)
    yield Finding(
        code, title, _severity(device, is_server=is_server), device.device, evidence, fixes, weight_bytes=part
    )


def _failure(view: DeviceView, settings: AllocatorSettings) -> DeviceMoment | None:
    """Returns the moment of a view if memory ran out during the recording, otherwise None."""
    return look(view, settings) if (view.device.events.action == schema.OOM).any() else None


def _is_inference(device: DeviceTrace) -> bool:
    """Returns whether the model runs several times, and never a backward."""
    phase = device.events.phase
    is_forward = phase == schema.PHASES.index("forward")
    num_forwards = int(np.count_nonzero(is_forward[1:] & ~is_forward[:-1]))
    return num_forwards >= SEVERAL and not (phase == schema.PHASES.index("backward")).any()


def _are_outputs(view: DeviceView, rows: Array) -> bool:
    """Returns whether most activations are outputs that a program collects: one or two each of several forwards.

    No backward frees them, so recomputing saves nothing. After a failure, a backward might have followed.
    """
    device, tensors = view.device, view.device.tensors
    if (device.events.action == schema.OOM).any() or not len(rows):
        return False
    phase = device.events.phase
    visit = np.cumsum(np.append(False, phase[1:] != phase[:-1]))[np.maximum(tensors.alloc_at[rows], 0)]
    _, which, count = np.unique(visit, return_inverse=True, return_counts=True)
    few = (count[which] <= MOST_OUTPUTS) & (tensors.alloc_at[rows] >= 0)
    few &= tensors.phase_free[rows] != schema.PHASES.index("backward")
    size = tensors.block_bytes[rows]
    return len(np.unique(visit[few])) >= SEVERAL and bool(2 * size[few].sum() > size.sum())


def _is_compiled(view: DeviceView, rows: Array) -> bool:
    """Returns whether code of torch.compile allocated most of the activations among ``rows``."""
    tensors, stacks = view.device.tensors, view.trace.stacks
    mine = rows[tensors.category[rows] == schema.CATEGORIES.index("activation")]
    within = stacks.with_frame(np.array([frame.is_compiled for frame in stacks.frames], bool))
    number = tensors.stack[mine]
    sizes = tensors.block_bytes[mine]
    return bool(2 * sizes[(number >= 0) & within[number]].sum() > sizes.sum()) if len(stacks) else False


def _has_gradients_of_samples(view: DeviceView, held: dict[str, int]) -> bool:
    """Returns whether the gradients are those of single samples.

    These are more than any training keeps, in a program with vmap or Opacus. Autograd's thread has no Python call
    stack, so the gradients themselves do not show vmap.
    """
    return held.get("gradient", 0) > SETS * held.get("parameter", 0) and any(
        frame.filename.endswith(_VMAP) or _OPACUS in frame.filename for frame in view.trace.stacks.frames
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else joined((joined(names[:-1], ", "), names[-1]), phrase("peak.and"))


def _before(view: DeviceView, rows: Array) -> Iterator[Evidence]:
    tensors = view.device.tensors
    before = int(tensors.block_bytes[rows][tensors.alloc_at[rows] < 0].sum()) if has_history(view.device) else 0
    if before:
        yield Evidence(phrase("peak.before"), before, "bytes")


def _origins(view: DeviceView, rows: Array) -> Iterator[Evidence]:
    """Yields the largest tensors by name, and the call sites, layer kinds and phases that allocated ``rows``."""
    tensors = view.device.tensors
    for name, size, count, largest in largest_names(view, rows, NUM_LISTED):
        where = label_of(view, int(tensors.stack[largest]))
        yield Evidence(
            phrase("peak.named", count=count, name=short(name)), size, "bytes", "" if where in name else where
        )
    yield from _made_at(view, [place for place in by_place(view, rows) if place.label != stackless()])
    for module, size in list(by_module(view, rows).items())[:NUM_LISTED]:
        yield Evidence(phrase("peak.layers"), size, "bytes", module)
    phases = sums(schema.PHASES, tensors.phase_alloc[rows], tensors.block_bytes[rows])
    for name, size in list(phases.items())[:NUM_LISTED]:
        if name != "unknown":
            yield Evidence(phrase("peak.phase"), size, "bytes", phrase(f"vocabulary.phase.{name}"))


def _made_at(view: DeviceView, places: list[SiteMemory]) -> Iterator[Evidence]:
    for place in places[:NUM_LISTED]:
        yield Evidence(phrase("peak.site"), place.bytes, "bytes", place_of(view, place.rows, place.label))


def _severity(device: DeviceTrace, *, is_server: bool) -> Severity:
    """Returns "warning" if memory ran out, or almost did, otherwise "info"; an inference server fills the device."""
    if (device.events.action == schema.OOM).any():
        return "warning"
    return "warning" if not is_server and is_nearly_full(device) else "info"


def _optimizer_temporaries(view: DeviceView) -> Iterator[Finding]:
    """Yields MD104 at the allocated peak, since these temporaries live within one step."""
    device, tensors = view.device, view.device.tensors
    at = device.peak("allocated")
    optimizer = schema.PHASES.index("optimizer")
    if at < 0 or device.events.phase[at] != optimizer:
        return
    live = device.live(at)
    brief = np.isin(tensors.lifetime[live], [schema.LIFETIMES.index(name) for name in ("temporary", "within_phase")])
    failed_within = _failed_after(device, at, optimizer)
    # the trace does not show whether they would be freed at the end of the step; state would have remained
    if failed_within:
        brief |= (tensors.step_alloc[live] == device.events.step[at]) & ~_is_state(view, live)
    rows = live[brief & (tensors.phase_alloc[live] == optimizer)]
    rows = rows[_beyond_state(view, rows)] if failed_within else rows
    held, total = int(tensors.block_bytes[rows].sum()), int(tensors.block_bytes[live].sum())
    elsewhere = int(device.usage.allocated[device.events.phase != optimizer].max(initial=device.start["allocated"]))
    least = LARGE / 2 if failed_within else LARGE  # the step had not reached its own peak
    if held < max(least * total, FLOOR) or device.usage.allocated[at] - elsewhere < LARGE / 2 * total:
        return  # without them, the peak would be about as high elsewhere
    used = tensors.stack[rows]
    remedies = ("other-step",) if is_other_optimizer(view.trace.stacks, used) else ("fused-optimizer", "one-by-one")
    yield Finding(
        "MD104",
        phrase("peak.optimizer", held=format_bytes(held), total=format_bytes(total), moment=when_at(view, at)),
        "critical" if failed_within else "warning",
        device.device,
        (
            Evidence(phrase("peak.optimizer.held"), held, "bytes", moment_name(device, at)),
            Evidence(phrase("peak.allocated"), total, "bytes"),
            peak_without(device, temporaries := np.union1d(rows, _passing_in(view, optimizer))),
            Evidence(phrase("peak.optimizer.elsewhere"), elsewhere, "bytes"),
            *(
                Evidence(phrase("peak.site"), place.bytes, "bytes", place_of(view, place.rows, place.label))
                for place in by_place(view, rows)[:NUM_LISTED]
            ),
        ),
        for_optimizer(AllocatorSettings.of(view.trace).offers(*remedies), optimizer_of(view.trace, used)),
        saving_without(device, temporaries),
        held,
    )


def _passing_in(view: DeviceView, phase: int) -> Array:
    """Returns the temporaries of a phase, in all steps."""
    tensors = view.device.tensors
    brief = np.isin(tensors.lifetime, [schema.LIFETIMES.index(name) for name in ("temporary", "within_phase")])
    return np.flatnonzero(brief & (tensors.phase_alloc == phase))


def _failed_after(device: DeviceTrace, at: int, phase: int) -> bool:
    """Returns whether a request ran out of memory after event ``at``, in the same step, in ``phase``."""
    events = device.events
    return bool(((events.action == schema.OOM) & (events.step == events.step[at]) & (events.phase == phase))[at:].any())


def _beyond_state(view: DeviceView, rows: Array) -> Array:
    """Returns which tensors of an unfinished optimizer step remain if the earliest ones become its states.

    SGD, for example, clones the gradients as its first momentum, and registers these states at the end of the step.
    """
    state, tensors = model_state(view), view.device.tensors
    if state is None:
        return np.ones(len(rows), bool)
    known = tensors.block_bytes[view.live[tensors.category[view.live] == schema.CATEGORIES.index("optimizer_state")]]
    order = np.argsort(tensors.alloc_at[rows], kind="stable")
    beyond = np.empty(len(rows), bool)
    beyond[order] = np.cumsum(tensors.requested_bytes[rows[order]]) > state.states - int(known.sum())
    return beyond


def _is_state(view: DeviceView, rows: Array) -> Array:
    """Returns which of the tensors ``rows`` are, or may be, state of the optimizer or model, including unknown ones."""
    tensors, stacks = view.device.tensors, view.trace.stacks
    kept = np.isin(tensors.category[rows], [schema.CATEGORIES.index(name) for name in _STATE]) | (
        tensors.stack[rows] < 0
    )
    making = np.array(["_init_group" in frame.name or "init_state" in frame.name for frame in stacks.frames], bool)
    made: Array = kept | np.append(stacks.with_frame(making), False)[tensors.stack[rows]]
    return made
