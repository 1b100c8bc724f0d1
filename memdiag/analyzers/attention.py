"""Attention weights that autograd retains, because the program multiplies queries and keys itself.

In a trace, one call of a ``forward`` then allocates tensors that are larger than those before and after them: queries
and keys are smaller than the weights, and so is their product with the values. A fused kernel retains none of the
weights. Trace entries have no operators and shapes, so the module, its function or its file must have attention in its
name. Element-wise chains after a projection do not count, because the projection is as large as they are. Norms do not
count either: in 16-bit training, many compute with 32 bits, so their tensors are twice as large as their input.
Autocast does the same with softmax; its input, the 16-bit product of queries and keys, belongs to the weights. The
packed projection of nn.MultiheadAttention does not count: queries, keys and values together are three times as large.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from memdiag.analyzers.intermediates import made_in_forward
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name
from memdiag.analyzers.support.sites import by_place, first_finding
from memdiag.analyzers.support.without import saving_without
from memdiag.results.finding import Evidence, Finding, Fix, Severity
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.schema import CATEGORIES, LIFETIMES, OOM, PHASES
from memdiag.trace.table import Array
from memdiag.units import KIB, MIB, format_bytes

CODES: dict[str, str] = {"MD131": "attention keeps its weights for backward"}

SMALLEST = 64 * KIB  # smaller tensors are not looked at
LARGER = 2  # times the tensors before and after
NUM_BEFORE = 3  # queries, keys and values
MIN_MADE = 2  # the product of queries and keys, and its softmax
FLOOR = 64 * MIB
SHARE, WARNING_SHARE, CRITICAL_SHARE = 0.05, 0.1, 1 / 3  # fraction of allocated memory; critical only if it ran out
NUM_PLACES = 3
_RATIOS = (1, 2, 4)  # of the bytes of two types: the mask of dropout has one byte for each element
_CONVERTED = 2  # bytes of float32 for one of bfloat16
_NAME = re.compile(r"attn|attention", re.IGNORECASE)
_PYTORCHS = "multi_head_attention_forward"  # of nn.MultiheadAttention
_PROJECTION = "_in_projection"  # of nn.MultiheadAttention, packed or not
_NORM = re.compile(r"norm", re.IGNORECASE)  # "self_attn.q_norm", "post_attention_layernorm"
_SAVED, _UNKNOWN = LIFETIMES.index("forward_to_backward"), LIFETIMES.index("unknown")
_ACTIVATION = CATEGORIES.index("activation")
_BRIEF = [LIFETIMES.index(name) for name in ("temporary", "within_phase")]
_PASSES = [PHASES.index(name) for name in ("forward", "backward")]


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD131 of every device."""
    for view in context.views(trace):
        yield from first_finding(view, _kept)


def find_weights(view: DeviceView) -> list[Array]:
    """Returns the retained weights (rows of Tensors) of each call of an attention."""
    tensors = view.device.tensors
    order, module = made_in_forward(view, SMALLEST)
    frames = view.trace.stacks.frames
    projects = view.trace.stacks.with_frame(np.array([frame.name.startswith(_PROJECTION) for frame in frames], bool))
    others = ~np.append(projects, False)[tensors.stack[order]]
    order, module = order[others], module[others]
    if not len(order):
        return []
    size, is_saved = tensors.requested_bytes[order], _is_saved(view)[order]
    begins = np.flatnonzero(np.append(True, np.diff(module) != 0))
    found = []
    for first, end in zip(begins.tolist(), [*begins[1:].tolist(), len(order)], strict=True):
        if module[first] < 0:
            continue
        largest = int(size[first:end].max())
        at = first + np.flatnonzero(size[first:end] == largest)
        before, after = size[max(at[0] - NUM_BEFORE, 0) : at[0]], size[at[-1] + 1 : at[-1] + 2]
        if len(before) and _CONVERTED * before.max() == largest:  # softmax in 32 bits of a product in 16
            at = first + np.flatnonzero(np.isin(size[first:end], [largest, largest // _CONVERTED]))
            before, after = size[max(at[0] - NUM_BEFORE, 0) : at[0]], size[at[-1] + 1 : at[-1] + 2]
        smallest = int(size[at].min())
        if not len(before) or not len(after) or LARGER * max(before.max(), after[0]) > smallest:
            continue
        if _CONVERTED * before.max() == largest:
            continue
        within = np.arange(at[0], at[-1] + 1)
        kept = order[within[np.isin(size[within] * np.array(_RATIOS)[:, None], largest).any(axis=0) & is_saved[within]]]
        if len(at) >= MIN_MADE and len(kept) and _is_attention(view, int(kept[0])):
            found.append(kept)
    return found


def _is_saved(view: DeviceView) -> Array:
    """Returns which tensors backward needs; those live when memory ran out in a first forward are activations."""
    tensors = view.device.tensors
    is_open = (tensors.lifetime == _UNKNOWN) & (tensors.free_completed_at >= view.device.num_events)
    saved: Array = (tensors.lifetime == _SAVED) | is_open & (tensors.category == _ACTIVATION)
    return saved


def _is_attention(view: DeviceView, row: int) -> bool:
    """Returns whether the name of a tensor, or of a function up to its ``forward`` or the file of one, says so."""
    tensors, texts = view.device.tensors, []
    if tensors.name[row] >= 0:
        texts.append(view.trace.strings[tensors.name[row]])
    for frame in view.trace.stacks[int(tensors.stack[row])]:
        texts += [frame.name, frame.filename.rsplit("/", 1)[-1]]
        if frame.name == "forward":
            break
    return any(map(_NAME.search, texts)) and not any(map(_NORM.search, texts))


def _kept(view: DeviceView) -> Iterator[Finding]:
    """Yields MD131."""
    device, tensors = view.device, view.device.tensors
    live = np.zeros(len(tensors), bool)
    live[view.live] = True
    every = find_weights(view)
    calls = [rows[live[rows]] for rows in every]
    calls = [rows for rows in calls if len(rows)]
    allocated = int(device.usage_at(view.at)["allocated"])
    kept = sum(int(tensors.block_bytes[rows].sum()) for rows in calls)
    if kept < max(FLOOR, SHARE * allocated):
        return
    places = by_place(view, np.concatenate(calls))
    yield Finding(
        "MD131",
        phrase("attention.title", bytes=format_bytes(kept)),
        _severity(view, kept / max(allocated, 1)),
        device.device,
        (
            Evidence(phrase("attention.kept"), kept, "bytes", moment_name(device, view.at)),
            Evidence(phrase("attention.share"), round(kept / max(allocated, 1), 3), "ratio"),
            Evidence(phrase("attention.calls"), len(calls), "calls"),
            Evidence(phrase("attention.largest"), max(int(tensors.block_bytes[rows].sum()) for rows in calls), "bytes"),
            *(Evidence(phrase("attention.site"), place.bytes, "bytes", place.label) for place in places[:NUM_PLACES]),
        ),
        tuple(_remedies(view, calls)),
        saving=saving_without(device, _with_copies(device, np.concatenate(every)), at_most=kept),
        weight_bytes=kept,
    )


def _severity(view: DeviceView, share: float) -> Severity:
    """Returns the severity of weights that hold a fraction of allocated memory."""
    if share >= CRITICAL_SHARE and view.device.events.action[view.at] == OOM:
        return "critical"
    return "warning" if share >= WARNING_SHARE else "info"


def _with_copies(device: DeviceTrace, weights: Array) -> Array:
    """Returns the weights of all calls, their gradients and temporary copies (rows of Tensors)."""
    tensors = device.tensors
    is_copy = np.isin(tensors.requested_bytes, np.unique(tensors.requested_bytes[weights]))
    is_copy &= np.isin(tensors.phase_alloc, _PASSES) & np.isin(tensors.lifetime, _BRIEF)
    return np.union1d(weights, np.flatnonzero(is_copy))


def _remedies(view: DeviceView, calls: Iterable[Array]) -> Iterator[Fix]:
    """Yields the remedies; PyTorch's own module only needs an argument."""
    stacks, codes = view.trace.stacks, view.device.tensors.stack
    are_pytorchs = all(any(frame.name == _PYTORCHS for frame in stacks[int(codes[rows[0]])]) for rows in calls)
    for fix in AllocatorSettings.of(view.trace).offers("attention"):
        change = "attention(q, k, v, need_weights=False)" if are_pytorchs else fix.change
        yield replace(fix, change=change, caveat=phrase("attention.caveat"))
