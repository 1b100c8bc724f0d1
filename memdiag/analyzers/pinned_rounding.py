"""Pinned host memory that is lost because PyTorch rounds each block up to a power of two.

A recording counts the bytes of pinned tensors and of their blocks. A snapshot has only the blocks. Then the upper
bound of the loss is half of each block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.devices import top_sites
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import has_history
from memdiag.trace.table import Array
from memdiag.units import GIB, MIB, format_bytes

CODES: dict[str, str] = {"MD151": "pinned host memory rounded up to powers of two"}

FLOOR = 64 * MIB
SHARE = 0.1  # fraction of the pinned memory in use
WARNING_FLOOR = GIB
BOUND_FLOOR = GIB  # of blocks whose requests are unknown
LEAST_BLOCK = MIB
NUM_PLACES = 3


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD151: measured if the recording counted pinned tensors, otherwise an upper bound."""
    found = _measured(trace) or _bounded(trace, context)
    if found is not None:
        yield found


def _measured(trace: Trace) -> Finding | None:
    """Returns the finding from the counted tensors."""
    samples = trace.host_samples
    rows = np.flatnonzero((samples.pinned_blocks >= 0) & (samples.pinned_blocks <= samples.pinned_used))
    if not len(rows):
        return None
    lost = samples.pinned_blocks - samples.pinned_tensors
    row = int(rows[np.argmax(lost[rows])])
    cost, used = int(lost[row]), int(samples.pinned_used[row])
    if cost < max(FLOOR, SHARE * used):
        return None
    tensors, blocks, held = (int(samples[name][row]) for name in ("pinned_tensors", "pinned_blocks", "pinned"))
    evidence = (
        Evidence(phrase("host.pinned.blocks"), blocks, "bytes"),
        Evidence(phrase("host.pinned.tensors"), tensors, "bytes"),
        Evidence(phrase("host.pinned.cost"), cost, "bytes"),
        Evidence(phrase("host.pinned.others"), used - blocks, "bytes"),
        Evidence(phrase("host.pinned.cached"), held - used, "bytes"),
        *_sites(trace),
    )
    return Finding(
        "MD151",
        phrase("host.pinned.title", bytes=format_bytes(cost), used=format_bytes(used)),
        "warning" if cost >= WARNING_FLOOR else "info",
        None,
        evidence,
        tuple(_fixes()),
        weight_bytes=cost,
    )


def _bounded(trace: Trace, context: Context) -> Finding | None:
    """Returns the finding from blocks alone, whose requests may have been just above half of them."""
    device = trace.host
    if device is None:
        return None
    at = device.peak("allocated") if has_history(device) else device.num_events - 1
    size = _rounded(device, device.live(at))
    blocks = int(size.sum())
    if blocks < BOUND_FLOOR:
        return None
    bound = blocks // 2 - len(size)
    return Finding(
        "MD151",
        phrase("host.pinned.title.bound", bytes=format_bytes(bound), used=format_bytes(blocks)),
        "info",
        None,
        (
            Evidence(phrase("host.pinned.powers", count=len(size)), blocks, "bytes"),
            Evidence(phrase("host.pinned.bound"), bound, "bytes"),
            *_sites(trace, context.top),
        ),
        tuple(_fixes()),
        weight_bytes=bound,
    )


def _rounded(device: DeviceTrace, live: Array) -> Array:
    """Returns the sizes of those blocks that are powers of two: others were not rounded."""
    size = device.tensors.block_bytes[live]
    powers: Array = size[(size >= LEAST_BLOCK) & (size & (size - 1) == 0)]
    return powers


def _sites(trace: Trace, top: int = NUM_PLACES) -> Iterator[Evidence]:
    """Yields the call sites of the largest pinned blocks, if the file has their history."""
    device = trace.host
    if device is None:
        return
    at = device.peak("allocated") if has_history(device) else device.num_events - 1
    for site in top_sites(DeviceView(trace, device, at, "allocated"), device.live(at), min(top, NUM_PLACES)):
        yield Evidence(phrase("host.pinned.site"), site.bytes, "bytes", site.name)


def _fixes() -> Iterator[Fix]:
    yield Fix(
        phrase("host.pinned.fix.exact"),
        "env",
        "export PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:1",
        phrase("host.pinned.fix.exact.when"),
        phrase("host.pinned.fix.exact.caveat"),
    )
    yield Fix(
        phrase("host.pinned.fix.one"),
        "code",
        "",
        phrase("remedies.every"),
        phrase("host.pinned.fix.one.caveat"),
    )
