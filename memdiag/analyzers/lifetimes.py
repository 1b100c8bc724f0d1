"""Long-lived tensors: those retained longer than needed, and those between short-lived ones.

Four kinds of tensor outlive the operation that allocated them, and each leaves a separate hole when freed: weights and
gradients from initialisation; activations, from forward to backward; tensors that survive to the next step; optimizer
states, allocated by the first optimizer step. The tensors between them live for an operation or two. If the two sorts
share segments, holes appear that fit no large request (MD113). Two of the kinds are often live by mistake: outputs of
the last step (MD111), and its gradients (MD112).

Thresholds: MD111 and MD112 require a twentieth of the live bytes (warning; MD111 from a hundredth as information) and
32 MiB. MD113 requires 1 GiB, or a tenth of reserved memory and 256 MiB, of free memory that is unusable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.moments import DeviceMoment, look
from memdiag.analyzers.support.names import largest_names, place_of
from memdiag.analyzers.support.places import moment_name, when
from memdiag.analyzers.support.sites import SiteMemory, by_place, first_finding
from memdiag.analyzers.support.without import from_next_steps, peak_without, saving_without
from memdiag.analyzers.unused_gradients import find_unused, is_used
from memdiag.diagnosis.remedies import present
from memdiag.diagnosis.remedies.placement import LONG_LIVED_FIRST
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.schema import CATEGORIES, LIFETIMES, OOM, PHASES
from memdiag.trace.table import Array
from memdiag.units import GIB, MIB, format_bytes

CODES: dict[str, str] = {
    "MD111": "tensors of one step are still live in the next",
    "MD112": "old gradients are still live in the next forward pass",
    "MD113": "free memory between long-lived and short-lived tensors is unusable",
}

KEPT_SHARE = 0.05  # of live bytes: a warning
SEEN_SHARE = 0.01
LARGE_SHARE = 0.1  # critical, if memory ran out and they are a graph
FLOOR = 32 * MIB
GAP = GIB  # free, but unusable
GAP_SHARE = 0.1
GAP_FLOOR = 256 * MIB
NUM_PLACES = 3

_FORWARD, _BACKWARD = PHASES.index("forward"), PHASES.index("backward")


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields findings MD111 to MD113 of every device."""
    settings = AllocatorSettings.of(trace)
    if trace.bases.get("phase", "none") == "none":
        return
    for view in context.views(trace):
        yield from first_finding(view, _outputs)
        yield from first_finding(view, _gradients)
        yield from _mixed(look(view, settings))


def kinds(view: DeviceView, rows: Array) -> dict[str, Array]:
    """Returns the tensors among ``rows`` by long-lived kind (a key of the messages), and the short-lived ones.

    Other tensors are omitted.
    """
    tensors = view.device.tensors
    category, lifetime = tensors.category[rows], tensors.lifetime[rows]

    def is_(names: tuple[str, ...], of: tuple[str, ...], index: Array) -> Array:
        return np.isin(index, [of.index(name) for name in names])

    optimizer = is_(("optimizer_state",), CATEGORIES, category)
    activation = (
        is_(("activation",), CATEGORIES, category) | is_(("forward_to_backward",), LIFETIMES, lifetime)
    ) & ~optimizer
    survives = (
        is_(("survives_step",), LIFETIMES, lifetime)
        & ~optimizer
        & ~is_(("gradient", "parameter"), CATEGORIES, category)
    )
    start = (
        (is_(("parameter", "gradient"), CATEGORIES, category) | is_(("persistent",), LIFETIMES, lifetime))
        & ~optimizer
        & ~survives
    )
    short = is_(("temporary", "within_phase"), LIFETIMES, lifetime) & ~(optimizer | activation | survives | start)
    return {
        "start": rows[start],
        "activation": rows[activation & ~survives & ~start],
        "survives": rows[survives],
        "optimizer": rows[optimizer],
        "short": rows[short],
    }


def _outputs(view: DeviceView) -> Iterator[Finding]:
    """Yields MD111.

    These are tensors of the previous step's forward or backward, held by a variable until its next assignment.
    """
    device, tensors, rows = view.device, view.device.tensors, view.live
    if view.at < 0:
        return
    step = int(device.events.step[view.at])
    ours = np.isin(
        tensors.category, [CATEGORIES.index(name) for name in ("unknown", "activation", "input", "temporary")]
    )
    gradients = _in_variables(view)
    ours[gradients] = True
    ours &= tensors.step_alloc >= 0
    replaced = (tensors.step_free - tensors.step_alloc == 1) | (tensors.free_requested_at >= device.num_events)
    age = step - tensors.step_alloc[rows]
    older = rows[ours[rows] & (age > 1)]
    # tensors that pile up at a call site are a leak (MD301)
    ours &= replaced & ~((tensors.stack >= 0) & np.isin(tensors.stack, tensors.stack[older]))
    old = rows[ours[rows] & (age == 1)]
    held, total = int(tensors.block_bytes[old].sum()), int(tensors.block_bytes[rows].sum())
    if held < max(SEEN_SHARE * total, FLOOR):
        return
    is_graph = _has_graph(view, old, step - 1)
    every = np.flatnonzero(ours & np.isin(tensors.phase_alloc, (_FORWARD, _BACKWARD)))
    since = from_next_steps(device, every)
    ran_out = bool((device.events.action == OOM).any())
    places = by_place(view, old)
    is_gradients = 2 * tensors.block_bytes[np.intersect1d(old, gradients)].sum() > held
    yield Finding(
        "MD111",
        phrase("lifetimes.outputs", bytes=format_bytes(held), moment=when(view)),
        "critical"
        if ran_out and is_graph and held >= LARGE_SHARE * total
        else "warning"
        if held >= KEPT_SHARE * total
        else "info",
        device.device,
        (
            Evidence(phrase("lifetimes.outputs.held"), held, "bytes", moment_name(device, view.at)),
            Evidence(phrase("lifetimes.count"), len(old), "tensors"),
            peak_without(device, every, since=since),
            *(
                Evidence(phrase("lifetimes.site"), place.bytes, "bytes", place_of(view, place.rows, place.label))
                for place in places[:NUM_PLACES]
            ),
        ),
        (
            Fix(
                phrase("lifetimes.delete.gradients" if is_gradients else "lifetimes.delete"),
                "code",
                "del gradients" if is_gradients else "del logits, loss, batch",
                phrase("remedies.every"),
                "" if is_gradients else phrase("lifetimes.delete.caveat"),
            ),
            *(_without_graph() if is_graph else ()),
        ),
        saving_without(device, every, since=since),
        held,
    )


def _has_graph(view: DeviceView, old: Array, step: int) -> bool:
    """Returns whether the tensors ``old`` are most activations of an earlier step that ran its backward.

    Backward frees them, unless it retains the graph, or an autograd function holds them as attributes.
    """
    tensors, events = view.device.tensors, view.device.events
    of_forward = (tensors.category == CATEGORIES.index("activation")) & (tensors.phase_alloc == _FORWARD)
    kept = int(tensors.block_bytes[old[of_forward[old]]].sum())
    is_used = bool(((events.step == step) & (events.phase == _BACKWARD)).any())
    return is_used and 2 * kept > tensors.block_bytes[of_forward & (tensors.step_alloc == step)].sum()


def _without_graph() -> Iterator[Fix]:
    yield Fix(
        phrase("lifetimes.release"),
        "code",
        phrase("lifetimes.release.change"),
        phrase("lifetimes.release.when"),
        phrase("lifetimes.release.caveat"),
    )


def _in_variables(view: DeviceView) -> Array:
    """Returns the gradients that a variable of the program holds, such as the result of ``torch.autograd.grad``.

    A recorder saw the gradients of the optimizers. These are others, and no ``zero_grad`` frees them.
    """
    tensors, stacks = view.device.tensors, view.trace.stacks
    gradients = tensors.category == CATEGORIES.index("gradient")
    used = is_used(view)
    if not (used & gradients).any():
        return np.flatnonzero(used & gradients)
    zeroes = stacks.with_frame(np.array([frame.name == "zero_grad" for frame in stacks.frames], bool))
    assigned = (tensors.free_stack >= 0) & ~np.append(zeroes, False)[tensors.free_stack]
    in_phase = np.isin(tensors.phase_free, (_FORWARD, _BACKWARD))
    found: Array = np.flatnonzero(gradients & ~used & assigned & ~in_phase)
    return found


def _sites(view: DeviceView, places: list[SiteMemory]) -> Iterator[Evidence]:
    for place in places:
        yield Evidence(phrase("lifetimes.site"), place.bytes, "bytes", place_of(view, place.rows, place.label))


def _gradients(view: DeviceView) -> Iterator[Finding]:
    """Yields MD112."""
    device, tensors, rows = view.device, view.device.tensors, view.live
    if view.at < 0 or device.events.phase[view.at] not in (_FORWARD, _BACKWARD):
        return
    earlier = tensors.step_alloc[rows] < device.events.step[view.at]
    old = rows[(tensors.category[rows] == CATEGORIES.index("gradient")) & earlier]
    if len(old):  # zero_grad would not free these (MD133, MD111)
        old = np.setdiff1d(old, np.append(find_unused(view), _in_variables(view)))
    held, total = int(tensors.block_bytes[old].sum()), int(tensors.block_bytes[rows].sum())
    if held < max(KEPT_SHARE * total, FLOOR) or total - (left := _most_without(view, old)) < max(
        KEPT_SHARE * total, FLOOR
    ):
        return  # without them, the step's own gradients would need as much
    line = view.trace.recorded.line_of("backward") if view.trace.recorded is not None else ""
    title = {"bytes": format_bytes(held), "moment": when(view)}
    yield Finding(
        "MD112",
        phrase("lifetimes.gradients.line", line=line, **title) if line else phrase("lifetimes.gradients", **title),
        "critical" if (device.events.action == OOM).any() else "warning",
        device.device,
        (
            Evidence(phrase("lifetimes.gradients.held"), held, "bytes", moment_name(device, view.at)),
            Evidence(phrase("lifetimes.count"), len(old), "tensors"),
            *([Evidence(phrase("lifetimes.gradients.backward"), line)] if line else []),
            Evidence(phrase("lifetimes.total"), total, "bytes"),
            Evidence(phrase("without.left"), left, "bytes", phrase("lifetimes.step")),
            *(
                Evidence(phrase("lifetimes.of"), size, "bytes", name)
                for name, size, _, _ in largest_names(view, old, NUM_PLACES)
            ),
        ),
        (
            Fix(
                phrase("lifetimes.free"),
                "code",
                "optimizer.step(); optimizer.zero_grad(set_to_none=True)",
                phrase("lifetimes.free.when"),
                phrase("lifetimes.free.caveat"),
            ),
        ),
        weight_bytes=held,
    )


def _most_without(view: DeviceView, old: Array) -> int:
    """Returns the step's peak of bytes without retained gradients of an earlier step.

    The gradients ``old`` are assumed to exist only after the step's backward allocated them again.

    This is matched by size: a tensor that lives only in backward is assumed to be added, when freed, to a gradient of
    the same size.
    """
    device, tensors = view.device, view.device.tensors
    step = np.flatnonzero(device.events.step == device.events.step[view.at])
    first, last = int(step[0]), int(step[-1])
    added = (
        (tensors.alloc_at > first)
        & (tensors.alloc_at <= last)
        & (tensors.phase_alloc == _BACKWARD)
        & (tensors.phase_free == _BACKWARD)
    )
    rows = np.flatnonzero(added & np.isin(tensors.requested_bytes, tensors.requested_bytes[old]))
    made: dict[int, list[int]] = {}
    for size, at in zip(
        tensors.requested_bytes[rows][::-1].tolist(), tensors.free_requested_at[rows][::-1].tolist(), strict=True
    ):
        made.setdefault(size, []).append(at)
    until = tensors.free_requested_at[old].copy()
    for number, size in enumerate(tensors.requested_bytes[old].tolist()):
        if made.get(size):
            until[number] = min(until[number], made[size].pop())
    change = np.zeros(last - first + 2, np.int64)
    np.add.at(change, np.minimum(until, last + 1) - first, tensors.block_bytes[old])
    idle = tensors.block_bytes[old].sum() - np.cumsum(change[:-1])
    return int((device.usage.allocated[first : last + 1] - idle).max())


def _mixed(here: DeviceMoment) -> Iterator[Finding]:
    """Yields MD113."""
    if not here.is_split_known:
        return
    device, unusable = here.device, here.split["stranded"] + here.split["foreign"]
    if unusable < min(GAP, max(GAP_SHARE * here.usage["reserved"], GAP_FLOOR)):
        return
    rows = device.live(here.at, pending=True)
    held = {name: int(device.tensors.block_bytes[own].sum()) for name, own in kinds(here.view, rows).items()}
    long = sum(held.values()) - held["short"]
    if not long:
        return
    yield Finding(
        "MD113",
        phrase("lifetimes.mixed", bytes=format_bytes(unusable), long=format_bytes(long)),
        "info",
        device.device,
        (
            Evidence(phrase("lifetimes.mixed.free"), unusable, "bytes", here.name),
            Evidence(phrase("lifetimes.mixed.long"), long, "bytes"),
            *(
                Evidence(phrase("lifetimes.kind", kind=phrase(f"lifetimes.kind.{name}")), amount, "bytes")
                for name, amount in held.items()
            ),
        ),
        present(
            *here.settings.offers("expandable-segments", "lifetime-pools"),
            LONG_LIVED_FIRST.of(phrase("lifetimes.long")),
        ),
        weight_bytes=unusable,
    )
