"""Buffers in which data-parallel libraries gather gradients before sending them: long-lived, but not model tensors.

They are recognised by the requesting code: the reducer of DistributedDataParallel (a C++ class: its caller is the last
Python frame), Megatron's buffers of parameters and gradients, DeepSpeed's buckets. A smaller bucket has different
effects. DistributedDataParallel and Megatron divide the bytes of all gradients into more buckets, while DeepSpeed's
buffer has the size of one bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name
from memdiag.analyzers.support.sites import by_place, first_finding
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import joined, phrase
from memdiag.trace.evidence import reducer_stacks
from memdiag.trace.model import Trace
from memdiag.trace.schema import CATEGORIES, LIFETIMES
from memdiag.trace.stacks import Frame
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD124": "communication buckets hold a large part of the peak"}

FLOOR = 64 * MIB
SHARE = 0.02  # fraction of allocated memory
WARNING_SHARE = 0.1
LEAST = MIB  # of one buffer
NUM_PLACES = 3

_LONG = [LIFETIMES.index(name) for name in ("persistent", "survives_step", "optimizer_state")]
_DDP, _MEGATRON, _DEEPSPEED = "DistributedDataParallel", "Megatron", "DeepSpeed"
_LIBRARIES = (_DDP, _MEGATRON, _DEEPSPEED)


def _fix(library: str) -> Fix:
    """Returns how to reduce the bucket memory of a library."""
    if library == _DDP:
        change, when = "DistributedDataParallel(model, gradient_as_bucket_view=True)", phrase("buckets.ddp.when")
        return Fix(phrase("buckets.ddp.fix"), "code", change, when, phrase("buckets.ddp.caveat"))
    if library == _MEGATRON:
        return Fix(
            phrase("buckets.megatron.fix"),
            "flag",
            "",
            phrase("buckets.megatron.when"),
            phrase("buckets.megatron.caveat"),
        )
    change = '"zero_optimization": {"reduce_bucket_size": 100000000, "allgather_bucket_size": 100000000}'
    return Fix(
        phrase("buckets.deepspeed.fix"),
        "flag",
        change,
        phrase("buckets.deepspeed.when"),
        phrase("buckets.deepspeed.caveat"),
    )


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD124 of every device."""
    owner = _owners(trace)
    if not (owner >= 0).any():
        return
    for view in context.views(trace):
        yield from first_finding(view, lambda at: _held(at, owner))


def _owners(trace: Trace) -> Array:
    """Returns, per stack, which library's bucket is allocated there (index into the fixes), or -1."""
    stacks = trace.stacks
    of_frame = np.array([_owner(frame) for frame in stacks.frames], object)
    found = np.full(len(stacks), -1, np.int64)
    found[reducer_stacks(stacks)] = _LIBRARIES.index(_DDP)
    for owner in (_MEGATRON, _DEEPSPEED):
        mask = of_frame == owner if len(of_frame) else np.zeros(0, bool)
        found[stacks.with_frame(np.asarray(mask, bool))] = _LIBRARIES.index(owner)
    return found


def _owner(frame: Frame) -> str:
    """Returns Megatron or DeepSpeed if a frame allocates its bucket, else ""."""
    file = frame.filename.replace("\\", "/")
    if file.endswith("param_and_grad_buffer.py"):
        return _MEGATRON
    return _DEEPSPEED if "/deepspeed/" in file and ("bucket" in frame.name or "ipg" in frame.name) else ""


def _held(view: DeviceView, owner: Array) -> Iterator[Finding]:
    """Yields MD124."""
    device, tensors = view.device, view.device.tensors
    live = device.live(view.at)
    stays = np.isin(tensors.lifetime[live], _LONG) | (tensors.free_requested_at[live] >= device.num_events)
    whose = np.append(owner, -1)[tensors.stack[live]]
    mine = (whose >= 0) & stays & (tensors.block_bytes[live] >= LEAST)
    rows, whose = live[mine], whose[mine]
    held, allocated = int(tensors.block_bytes[rows].sum()), int(device.usage_at(view.at)["allocated"])
    if held < max(FLOOR, SHARE * allocated):
        return
    libraries = [name for number, name in enumerate(_LIBRARIES) if (whose == number).any()]
    gradients = np.setdiff1d(live[tensors.category[live] == CATEGORIES.index("gradient")], rows)
    yield Finding(
        "MD124",
        phrase("buckets.title", libraries=joined(libraries, phrase("buckets.and")), bytes=format_bytes(held)),
        "warning" if held >= WARNING_SHARE * allocated else "info",
        device.device,
        (
            Evidence(phrase("buckets.held"), held, "bytes", moment_name(device, view.at)),
            Evidence(phrase("buckets.share"), round(held / max(allocated, 1), 3), "ratio"),
            Evidence(
                phrase("buckets.largest"),
                int(tensors.block_bytes[rows].max()),
                "bytes",
                phrase("buckets.count", count=len(rows)),
            ),
            Evidence(phrase("buckets.gradients"), int(tensors.block_bytes[gradients].sum()), "bytes"),
            *(
                Evidence(phrase("buckets.site"), place.bytes, "bytes", place.label)
                for place in by_place(view, rows)[:NUM_PLACES]
            ),
        ),
        tuple(_fix(name) for name in libraries),
        weight_bytes=held,
    )
