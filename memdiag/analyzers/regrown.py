"""Tensors that grow by reallocation, a little at a time: KV caches, results joined by ``torch.cat``.

``cache = torch.cat([cache, new])`` needs the old and the new tensor at once and copies all of it. It leaves a free
block into which the next tensor does not fit, because all cached blocks are slightly too small. In a trace, one call
site allocates a larger tensor, and the previous one is freed right after, again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name
from memdiag.analyzers.support.sites import label_of
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.sizes.cuda import SMALL_LIMIT
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.model import Trace
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD128": "tensors that grow by repeated reallocation"}

MOST_AT_ONCE = 0.5  # fraction of the old size: only a little is added
LEAST_LINKS = 6  # reallocations of one tensor
MOSTLY = 0.75  # fraction of the reallocations at a call site that grow: batches of changing length shrink as often
LOOKS = 4  # number of frees after its allocation among which that of its predecessor must be
SHARE = 0.1  # fraction of the reserved peak held by such tensors
WARNING_SHARE = 0.1  # fraction of the reserved peak that was never in use
FLOOR = 32 * MIB
NUM_PLACES = 3


@dataclass(frozen=True)
class Regrown:
    """Tensors of one call site that were reallocated repeatedly.

    Attributes:
        stack: Call site.
        rows: All of them, except the smallest of each chain.
        num_chains: Number of tensors that grow this way.
        links: Largest number of reallocations of one of them.
    """

    stack: int
    rows: Array
    num_chains: int
    links: int


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD128 of every device."""
    for view in context.views(trace):
        if view.device.num_events and len(trace.stacks):
            yield from _regrown(view)


def find_regrown(view: DeviceView) -> list[Regrown]:
    """Returns the call sites whose tensors grow by reallocation, most allocated bytes first."""
    tensors, device = view.device.tensors, view.device
    before, is_other = _replaced(view)
    depth = np.zeros(len(before), np.int64)
    for row in np.flatnonzero(before >= 0).tolist():  # in order of birth: the one before has its depth
        depth[row] = depth[before[row]] + 1
    last = np.ones(len(before), bool)
    last[before[before >= 0]] = False
    ends = np.flatnonzero(last & (depth >= LEAST_LINKS))
    stacks = np.unique(tensors.stack[ends])
    others = np.bincount(tensors.stack[is_other], minlength=len(view.trace.stacks))[stacks].tolist()
    found = []
    for stack, mine, here, other in zip(
        stacks.tolist(),
        _by_stack(view, np.flatnonzero(depth > 0), stacks),
        _by_stack(view, ends, stacks),
        others,
        strict=True,
    ):
        if len(mine) >= MOSTLY * (len(mine) + other):
            found.append(Regrown(stack, mine, len(here), int(depth[here].max())))
    return sorted(found, key=lambda one: (-int(device.tensors.block_bytes[one.rows].sum()), one.stack))


def _by_stack(view: DeviceView, rows: Array, stacks: Array) -> list[Array]:
    """Returns the tensors of each of some stacks (sorted)."""
    rows = rows[np.argsort(view.device.tensors.stack[rows], kind="stable")]
    own = view.device.tensors.stack[rows]
    return [
        rows[low:high]
        for low, high in zip(np.searchsorted(own, stacks), np.searchsorted(own, stacks, "right"), strict=True)
    ]


def _replaced(view: DeviceView) -> tuple[Array, Array]:
    """Returns, per tensor, the smaller one of the same call site that was freed right after its allocation, or -1.

    Also returns whether, without one, another tensor of that call site was freed: of equal or larger size, or much
    smaller.
    """
    device, tensors = view.device, view.device.tensors
    frees = np.flatnonzero((device.events.action == schema.FREE_REQUESTED) & (device.events.tensor >= 0))
    freed = device.events.tensor[frees]
    rows = np.flatnonzero((tensors.alloc_at >= 0) & (tensors.stack >= 0) & (tensors.requested_bytes > SMALL_LIMIT))
    before, is_other = np.full(len(tensors.stack), -1, np.int64), np.zeros(len(tensors.stack), bool)
    at = np.searchsorted(frees, tensors.alloc_at[rows])
    for look in range(LOOKS):
        number = at + look
        open_ = (number < len(frees)) & (before[rows] < 0)
        mine, old = rows[open_], freed[number[open_]]
        size, new = tensors.requested_bytes[old], tensors.requested_bytes[mine]
        same = (tensors.stack[old] == tensors.stack[mine]) & (tensors.alloc_at[old] < tensors.alloc_at[mine])
        fits = same & (size < new) & (new - size <= MOST_AT_ONCE * size)
        before[mine[fits]] = old[fits]
        is_other[mine[same & ~fits]] = True
    return before, is_other & (before < 0)


def _regrown(view: DeviceView) -> Iterator[Finding]:
    """Yields MD128."""
    device, tensors = view.device, view.device.tensors
    found = find_regrown(view)
    if not found:
        return
    rows = np.concatenate([one.rows for one in found])
    moments = {view.at, device.peak("allocated"), device.peak("reserved")} - {-1}
    held, at = max((int(tensors.block_bytes[np.intersect1d(rows, device.live(at))].sum()), at) for at in moments)
    reserved = max(int(device.usage.reserved.max()), int(device.usage.allocated.max()))
    if held < max(SHARE * reserved, FLOOR):
        return
    idle = reserved - int(device.usage.active.max())
    ran_out = bool((device.events.action == schema.OOM).any())
    largest = int(tensors.requested_bytes[rows].max())
    links, number = max(one.links for one in found), sum(one.num_chains for one in found)
    place = label_of(view, found[0].stack)
    yield Finding(
        "MD128",
        phrase("regrown.title", count=number, links=links, bytes=format_bytes(largest), place=place),
        "critical" if ran_out else "warning" if idle >= WARNING_SHARE * reserved else "info",
        device.device,
        (
            Evidence(phrase("regrown.live"), held, "bytes", moment_name(device, at)),
            Evidence(phrase("regrown.total"), int(tensors.block_bytes[rows].sum()), "bytes"),
            Evidence(phrase("regrown.idle"), idle, "bytes"),
            *(
                Evidence(
                    phrase("regrown.site"), int(tensors.block_bytes[one.rows].sum()), "bytes", label_of(view, one.stack)
                )
                for one in found[:NUM_PLACES]
            ),
        ),
        (
            Fix(
                phrase("regrown.fix.once"),
                "code",
                phrase("regrown.fix.once.change"),
                phrase("regrown.fix.once.when"),
                phrase("regrown.fix.once.caveat"),
            ),
            Fix(
                phrase("regrown.fix.chunks"),
                "code",
                "",
                phrase("remedies.every"),
                phrase("regrown.fix.chunks.caveat"),
            ),
        ),
        weight_bytes=max(held, idle),
    )
