"""Copies of a model's weights that a training makes and keeps on the device, such as the state of the best epoch.

Trace entries do not say what is in a tensor. So a line of the program must make tensors of the sizes of most parameters
in a row after the training has begun, and either call ``copy.deepcopy``, or make such a set again later. Tensors from
before the training do not count: they may be averages of the weights, or states of the program's own optimizer. Those
that live for one step do not count either: they may be the weights of an inner loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.names import place_of
from memdiag.analyzers.support.places import moment_name, when
from memdiag.analyzers.support.sites import by_place, first_finding
from memdiag.analyzers.support.without import peak_without, saving_without
from memdiag.results.finding import Evidence, Finding, Fix, Severity
from memdiag.text import phrase
from memdiag.trace.distinct import occurrences
from memdiag.trace.model import Trace
from memdiag.trace.schema import CATEGORIES, LIFETIMES, OOM, PHASES
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD139": "copies of the model's weights stay on the device"}

SHARE, WARNING_SHARE = 0.1, 0.25  # of live bytes
FLOOR = 64 * MIB
SMALLEST = MIB  # of a tensor: small ones coincide by chance
MOST = 0.9  # of the bytes of a set: have the size of a parameter; of parameters that have a counterpart
FEWEST = 4  # parameters
NUM_PLACES = 3

_PARAMETER = CATEGORIES.index("parameter")
# Without a recorder, what a line of the program allocates is input.
_OTHERS = [CATEGORIES.index(name) for name in ("unknown", "input")]
_PASSING = [LIFETIMES.index(name) for name in ("temporary", "within_phase", "within_step", "forward_to_backward")]
_TRAINING = [PHASES.index(name) for name in ("forward", "backward", "optimizer")]
_HOST = ("cpu", "mps")  # the memory of the device is that of the host
_COPY = "/copy.py"  # of Python


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD139 of every device."""
    if trace.backend in _HOST:
        return
    frames = trace.stacks.frames
    copies = np.array([frame.name == "deepcopy" and frame.filename.endswith(_COPY) for frame in frames], bool)
    by_deepcopy = np.append(trace.stacks.with_frame(copies), False)
    for view in context.views(trace):
        yield from first_finding(view, lambda at: _copied(at, by_deepcopy))


def find_copies(view: DeviceView, by_deepcopy: Array) -> Array:
    """Returns the tensors (rows of Tensors) of all copies in the trace.

    Args:
        view: A device at a moment.
        by_deepcopy: By stack, whether ``copy.deepcopy`` makes the tensor.
    """
    device, tensors = view.device, view.device.tensors
    training = np.flatnonzero(np.isin(device.events.phase, _TRAINING))
    size = tensors.requested_bytes
    weights = view.live[(tensors.category[view.live] == _PARAMETER) & (size[view.live] >= SMALLEST)]
    if not len(training) or len(weights) < FEWEST:
        return np.zeros(0, np.int64)
    chosen = np.isin(tensors.category, _OTHERS) & (size >= SMALLEST) & (tensors.alloc_at > training[0])
    chosen &= ~np.isin(tensors.lifetime, _PASSING) & ~np.isin(tensors.phase_alloc, _TRAINING) & (tensors.stack >= 0)
    rows = np.flatnonzero(chosen)
    sizes, number = np.unique(size[weights], return_counts=True)
    large = np.flatnonzero(size >= SMALLEST)
    in_order = np.zeros(len(tensors), np.int64)
    in_order[large[np.argsort(tensors.alloc_at[large], kind="stable")]] = np.arange(len(large))
    found = [np.zeros(0, np.int64)]
    for place in by_place(view, rows):
        if not place.label or _computes(view, place.rows):
            continue
        mine = place.rows[np.isin(size[place.rows], sizes)]
        mine = mine[_are_in_row(in_order[mine], MOST * len(weights))]
        made = occurrences(size[mine], sizes)
        if (
            (np.minimum(made, number) * sizes).sum() >= MOST * (number * sizes).sum()
            and size[mine].sum() >= MOST * size[place.rows].sum()
            and (_are_made_again(made, number) or by_deepcopy[tensors.stack[mine]].any())
        ):
            found.append(mine)
    return np.concatenate(found)


def _are_in_row(number: Array, least: float) -> Array:
    """Returns which of some numbers are in a sequence of at least ``least`` without a gap."""
    order = np.argsort(number)
    sequence = np.cumsum(np.append(False, np.diff(number[order]) != 1)) if len(number) else order
    found = np.zeros(len(number), bool)
    found[order] = np.bincount(sequence, minlength=1)[sequence] >= least
    return found


def _are_made_again(made: Array, number: Array) -> bool:
    """Returns whether there are two of nearly each parameter."""
    return bool(made.sum() >= (1 + MOST) * number.sum())


def _computes(view: DeviceView, rows: Array) -> bool:
    """Returns whether the lines that made ``rows`` also make temporary tensors: a copy needs none, an update does."""
    tensors = view.device.tensors
    beside = np.isin(tensors.stack, tensors.stack[rows]) & np.isin(tensors.lifetime, _PASSING)
    num_beside = np.count_nonzero(beside & (tensors.requested_bytes >= SMALLEST))
    return bool(num_beside > (1 - MOST) * len(rows))


def _copied(view: DeviceView, by_deepcopy: Array) -> Iterator[Finding]:
    """Yields MD139."""
    device, tensors = view.device, view.device.tensors
    every = find_copies(view, by_deepcopy)
    rows = np.intersect1d(every, view.live)
    held, total = (int(tensors.block_bytes[each].sum()) for each in (rows, view.live))
    if held < max(SHARE * total, FLOOR):
        return
    places = by_place(view, rows)
    yield Finding(
        "MD139",
        phrase(
            "model_copies.title",
            place=places[0].label,
            bytes=format_bytes(held),
            share=f"{held / total:.0%}",
            when=when(view),
        ),
        _severity(view, held / total),
        device.device,
        (
            Evidence(phrase("model_copies.held"), held, "bytes", moment_name(device, view.at)),
            Evidence(phrase("model_copies.count"), len(rows), "tensors"),
            peak_without(device, every),
            *(
                Evidence(phrase("model_copies.site"), place.bytes, "bytes", place_of(view, place.rows, place.label))
                for place in places[:NUM_PLACES]
            ),
        ),
        (
            Fix(
                phrase("model_copies.host", place=places[0].label),
                "code",
                "best = {k: v.cpu() for k, v in model.state_dict().items()}",
                phrase("model_copies.host.when"),
                phrase("model_copies.host.caveat"),
            ),
        ),
        saving_without(device, every),
        held,
    )


def _severity(view: DeviceView, share: float) -> Severity:
    if (view.device.events.action == OOM).any():
        return "critical" if share >= WARNING_SHARE else "warning"
    return "warning" if share >= WARNING_SHARE else "info"
