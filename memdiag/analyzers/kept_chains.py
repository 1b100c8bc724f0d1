"""Element-wise operators whose intermediates autograd retains: norms, activation functions, rotary embeddings.

In a trace, this is a run of allocations with the same number of elements in one call of a ``forward``, several of which
live until backward. One fused operator retains its input, its result and a few statistics. So each run needs only its
result, and often one more tensor: the input, which the chain may not have retained. The size may change with the type:
a mask has one byte for each element.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.attention import find_weights
from memdiag.analyzers.intermediates import made_in_forward
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.names import name_of
from memdiag.analyzers.support.places import moment_name
from memdiag.analyzers.support.sites import by_place, first_finding
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.schema import LIFETIMES
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD130": "element-wise operators keep intermediates for backward"}

MIN_MADE, MIN_KEPT = 3, 2  # tensors of a run, and of those that backward needs
SMALLEST = MIB
FLOOR = 64 * MIB
SHARE, WARNING_SHARE = 0.05, 0.1  # fraction of allocated memory
NUM_PLACES = 3
LOOP = 8  # tensors of a run from one line: a norm or a rotary embedding has fewer, a loop over a sequence has more
_RATIOS = (1, 2, 4)  # ratios of the bytes of two types: float32 and bfloat16, bfloat16 and bool, float32 and bool
_SAVED = LIFETIMES.index("forward_to_backward")
# Names of modules, functions and files of activation functions: mlp.act, new_gelu, NewGELU, activations.py
_FUNCTION = re.compile(r"(^|[._])(act|act_fn|activations?|\w*gelu|silu|swish|mish)($|\.py$| \()", re.IGNORECASE)


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD130 of every device."""
    for view in context.views(trace):
        yield from first_finding(view, _kept)


def find_runs(view: DeviceView) -> list[Array]:
    """Returns the retained tensors (rows of Tensors, in order of allocation) of each run that retains enough."""
    tensors = view.device.tensors
    order, module = made_in_forward(view, SMALLEST)
    size = tensors.requested_bytes[order]
    low, high = np.minimum(size[1:], size[:-1]), np.maximum(size[1:], size[:-1])
    alike = np.any([high == ratio * low for ratio in _RATIOS], axis=0) if len(order) else np.zeros(0, bool)
    same = (np.diff(module) == 0) & (module[1:] >= 0) & alike
    run = np.cumsum(np.concatenate(([0], ~same)))[: len(order)]
    is_saved = tensors.lifetime[order] == _SAVED
    enough = (
        (np.bincount(run) >= MIN_MADE) & (np.bincount(run, weights=is_saved) >= MIN_KEPT)
        if len(order)
        else np.zeros(0, bool)
    )
    rows = order[is_saved & enough[run]]
    number = run[is_saved & enough[run]]
    return np.split(rows, np.flatnonzero(np.diff(number)) + 1) if len(rows) else []


def _kept(view: DeviceView) -> Iterator[Finding]:
    """Yields MD130."""
    device, tensors = view.device, view.device.tensors
    live = np.zeros(len(tensors), bool)
    live[view.live] = True
    for rows in find_weights(view):
        live[rows] = False  # attention weights, for which MD131 has another remedy
    runs = [rows[live[rows]] for rows in find_runs(view)]
    runs = [rows for rows in runs if len(rows) >= MIN_KEPT]
    allocated = int(device.usage_at(view.at)["allocated"])
    kept = sum(int(tensors.block_bytes[rows].sum()) for rows in runs)
    # The last tensor of a run is its result, which the next operator retains. The input of a fused operator has the
    # same size.
    results = sum(int(tensors.block_bytes[rows[-1]]) for rows in runs)
    most_less, less = kept - results, max(kept - 2 * results, 0)
    if less < max(FLOOR, SHARE * allocated):
        return
    places = by_place(view, np.concatenate(runs))
    most = max(runs, key=lambda rows: int(tensors.block_bytes[rows].sum()))
    looped = sum(int(tensors.block_bytes[rows].sum()) for rows in runs if _is_loop(tensors.stack[rows]))
    is_loop = looped > kept / 2
    applied = np.concatenate([rows for rows in runs if _is_function(view, int(rows[0]))] or [np.zeros(0, int)])
    is_function = int(tensors.block_bytes[applied].sum()) > kept / 2
    largest = int(tensors.block_bytes[most].sum())
    expected = max(less - largest, 0) if is_loop else less  # the backward of a recomputed loop needs its tensors again
    yield Finding(
        "MD130",
        phrase("kept_chains.title", bytes=format_bytes(kept)),
        "warning" if less >= WARNING_SHARE * allocated else "info",
        device.device,
        (
            Evidence(phrase("kept_chains.kept"), kept, "bytes", moment_name(device, view.at)),
            Evidence(phrase("kept_chains.share"), round(kept / max(allocated, 1), 3), "ratio"),
            Evidence(phrase("kept_chains.less"), most_less, "bytes"),
            Evidence(phrase("kept_chains.largest", count=len(most)), largest, "bytes"),
            Evidence(phrase("kept_chains.runs"), len(runs), "chains"),
            *(Evidence(phrase("kept_chains.site"), place.bytes, "bytes", place.label) for place in places[:NUM_PLACES]),
        ),
        (_recomputed() if is_loop else _gelu() if is_function else _fused(view.trace.backend), _compiled()),
        saving=Saving(0, expected, most_less, "estimated"),
        weight_bytes=less,
    )


def _is_loop(stacks: Array) -> bool:
    """Returns whether most tensors of a run, whose stacks are given, come from a line that a loop repeats."""
    known = stacks[stacks >= 0]
    most = int(np.bincount(known).max()) if len(known) else 0
    return most >= LOOP and 2 * most > len(stacks)


def _is_function(view: DeviceView, row: int) -> bool:
    """Returns whether a tensor is of an activation function, by its name and the innermost function of its stack."""
    stacks, number = view.trace.stacks, int(view.device.tensors.stack[row])
    names = [name_of(view, row)]
    if number >= 0 and stacks.offsets[number] < stacks.offsets[number + 1]:
        frame = stacks.frames[int(stacks.frame_ids[stacks.offsets[number]])]
        names += [frame.name, frame.filename.replace("\\", "/").rpartition("/")[2]]
    return any(_FUNCTION.search(name) for name in names)


def _gelu() -> Fix:
    return Fix(
        phrase("kept_chains.fix.gelu"),
        "code",
        'torch.nn.functional.gelu(x, approximate="tanh")',
        phrase("kept_chains.fix.gelu.when"),
        phrase("kept_chains.fix.fused.caveat"),
    )


def _recomputed() -> Fix:
    line = "y = torch.utils.checkpoint.checkpoint(scan, x, use_reentrant=False)"
    when, caveat = phrase("kept_chains.fix.loop.when"), phrase("kept_chains.fix.loop.caveat")
    return Fix(phrase("kept_chains.fix.loop"), "code", line, when, caveat)


def _fused(backend: str | None) -> Fix:
    line = (
        "torch_npu.npu_rms_norm(x, weight, eps)[0]"
        if backend == "npu"
        else "torch.nn.functional.rms_norm(x, (dim,), weight, eps)"
    )
    return Fix(
        phrase("kept_chains.fix.fused"),
        "code",
        line,
        phrase("kept_chains.fix.fused.when"),
        phrase("kept_chains.fix.fused.caveat"),
    )


def _compiled() -> Fix:
    when, caveat = phrase("kept_chains.fix.compile.when"), phrase("kept_chains.fix.compile.caveat")
    return Fix(phrase("kept_chains.fix.compile"), "code", "module.compile()", when, caveat)
