"""FSDP with one unit for most of the model: it gathers all weights at once, so sharding saves little at the peak.

Each unit (a module that FSDP wrapped) gathers its weights before its forward and its backward, and frees them
afterwards. A model that is wrapped as a whole has one unit. memdiag recognises it by the sizes that FSDP allocates for
gathering: one of them is most of the bytes that a forward gathers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name, when
from memdiag.analyzers.support.sites import first_finding
from memdiag.analyzers.support.without import saving_without
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.schema import ALLOC, CATEGORIES, OOM, PHASES
from memdiag.trace.stacks import Frame
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD129": "FSDP gathers most of the model at once"}

MOST = 0.5  # fraction of the bytes that a forward gathers
SHARE = 0.15  # fraction of live bytes
FLOOR = 64 * MIB

_GATHERED = CATEGORIES.index("collective")
_FORWARD = PHASES.index("forward")


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD129 of every device."""
    gathers = np.array([_gathers(frame) for frame in trace.stacks.frames], bool)
    if not gathers.any():
        return
    asks = np.append(trace.stacks.with_frame(gathers), False)
    of_fsdp = np.array(
        ["/distributed/fsdp/" in frame.filename.replace("\\", "/") for frame in trace.stacks.frames], bool
    )
    shards = np.append(trace.stacks.with_frame(of_fsdp), False)
    for view in context.views(trace):
        yield from first_finding(view, lambda at: _unit(at, asks, shards))


def _gathers(frame: Frame) -> bool:
    """Returns whether a frame allocates the buffer for the gathered weights of a unit (FSDP2, FSDP1)."""
    file = frame.filename.replace("\\", "/")
    if file.endswith("fsdp/_fully_shard/_fsdp_collectives.py"):
        return frame.name == "foreach_all_gather"
    return file.endswith("fsdp/_flat_param.py") and frame.name == "_alloc_padded_unsharded_flat_param"


def _unit(view: DeviceView, asks: Array, shards: Array) -> Iterator[Finding]:
    """Yields MD129.

    Args:
        view: The device.
        asks: Per stack, whether it requests the buffer for the weights of a unit.
        shards: Per stack, whether FSDP runs. Other collectives gather activations.
    """
    device, tensors, events = view.device, view.device.tensors, view.device.events
    mine = np.flatnonzero(
        np.isin(events.action, (ALLOC, OOM)) & asks[events.stack] & (events.phase == _FORWARD) & (events.size >= MIB)
    )
    if not len(mine):
        return
    # each micro-batch of a step gathers all units, so only the first forward counts
    later = np.flatnonzero(events.phase[mine[0] :] != _FORWARD)
    sizes = events.size[mine[mine < mine[0] + later[0]]] if len(later) else events.size[mine]
    largest, gathered = int(sizes.max()), int(sizes.sum())
    ran_out = bool((events.action == OOM).any())
    if largest < MOST * gathered or (ran_out and largest < MOST * _weights(view, largest)):
        return
    rows = device.live(view.at)
    held = int(tensors.block_bytes[rows[(tensors.category[rows] == _GATHERED) & shards[tensors.stack[rows]]]].sum())
    total = int(tensors.block_bytes[rows].sum())
    if held < max(SHARE * total, FLOOR):
        return
    yield Finding(
        "MD129",
        phrase("gathered.title", largest=format_bytes(largest), held=format_bytes(held), when=when(view)),
        "critical" if ran_out else "warning",
        device.device,
        (
            Evidence(phrase("gathered.held"), held, "bytes", moment_name(device, view.at)),
            Evidence(phrase("gathered.live"), total, "bytes"),
            Evidence(phrase("gathered.largest"), largest, "bytes"),
            Evidence(phrase("gathered.forward"), gathered, "bytes", phrase("gathered.units", count=len(sizes))),
        ),
        (_smaller_units() if len(sizes) == 1 else _one_more_unit(),),
        _saving(device, np.flatnonzero((tensors.category == _GATHERED) & shards[tensors.stack])),
        held,
    )


def _saving(device: DeviceTrace, gathered: Array) -> Saving | None:
    """Returns a saving of up to all gathered weights, and as a guess half: two of at least four smaller units remain.

    FSDP gathers the next unit while one computes.
    """
    most = saving_without(device, gathered)
    return replace(most, expected_bytes=most.high_bytes // 2) if most else None


def _smaller_units() -> Fix:
    return Fix(
        phrase("gathered.fix.blocks"),
        "code",
        phrase("gathered.fix.blocks.change"),
        phrase("gathered.fix.blocks.when"),
        phrase("gathered.fix.blocks.caveat"),
    )


def _one_more_unit() -> Fix:
    """Returns the remedy where blocks are wrapped: all other modules together form the model's unit."""
    return Fix(
        phrase("gathered.fix.split"),
        "code",
        phrase("gathered.fix.split.change"),
        phrase("gathered.fix.split.when"),
        phrase("gathered.fix.split.caveat"),
    )


def _weights(view: DeviceView, largest: int) -> int:
    """Returns the bytes of all weights unsharded, if the number of ranks is known, else those of the unit.

    Without that number, the trace ends too early.
    """
    tensors = view.device.tensors
    world = view.trace.recorded.world if view.trace.recorded is not None else None
    shards = view.device.live(view.at)
    shards = shards[tensors.category[shards] == CATEGORIES.index("parameter")]
    return int(tensors.block_bytes[shards].sum()) * world if world else largest
