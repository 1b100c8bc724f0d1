"""Tensors of an attempt that ran out of memory, still live when the next attempt runs out of memory.

A program may catch the error and try again with a smaller batch. An exception, a reference cycle or a variable can hold
the tensors of the failed attempt, while the next attempt allocates its own. memdiag recognises two kinds:

* a model that was created again: its tensors have the same names in both attempts,
* activations of the forward that failed, after the program has left that forward and allocated memory outside of it.
  An error that PyTorch catches itself, such as one of cuDNN's benchmark, leaves no forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.names import place_of
from memdiag.analyzers.support.places import moment_name
from memdiag.analyzers.support.sites import by_place
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.schema import ALLOC, CATEGORIES, OOM, PHASES
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD132": "tensors of a failed attempt are still live"}

SHARE = 0.05  # of live bytes
FLOOR = 64 * MIB
FEWEST = 3  # names that occur in both attempts: a list of outputs that grows has one or two
NUM_PLACES = 3
MOST = 32  # earlier errors to look at
_FORWARD, _OUTSIDE, _ACTIVATION = PHASES.index("forward"), PHASES.index("outside"), CATEGORIES.index("activation")


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD132 of every device, at an out-of-memory error that is not the first."""
    for view in context.views(trace):
        events = view.device.events
        if view.at < 0 or events.action[view.at] != OOM:
            continue
        found = [
            (rows, int(failed_at))
            for failed_at in np.flatnonzero(events.action[: view.at] == OOM)[-MOST:]
            if len(rows := np.union1d(_repeated(view, failed_at), _activations(view, failed_at)))
        ]
        if found:
            sizes = view.device.tensors.block_bytes
            yield from _kept(view, *max(found, key=lambda item: int(sizes[item[0]].sum())))


def _repeated(view: DeviceView, failed_at: int) -> Array:
    """Returns the live tensors from before event ``failed_at`` whose names tensors from after it have too."""
    tensors, rows = view.device.tensors, view.live
    rows = rows[tensors.name[rows] >= 0]
    is_old = tensors.alloc_at[rows] < failed_at
    names = np.intersect1d(tensors.name[rows[is_old]], tensors.name[rows[~is_old]])
    found: Array = rows[is_old & np.isin(tensors.name[rows], names)] if len(names) >= FEWEST else rows[:0]
    return found


def _activations(view: DeviceView, failed_at: int) -> Array:
    """Returns the live activations of the last forward before event ``failed_at``, if the program has left it."""
    events, tensors, rows = view.device.events, view.device.tensors, view.live
    later = failed_at + 1 + np.flatnonzero(events.action[failed_at + 1 : view.at] == ALLOC)
    forward = np.flatnonzero(events.phase[: failed_at + 1] == _FORWARD)
    if not len(later) or events.phase[later[0]] != _OUTSIDE or not len(forward):
        return rows[:0]
    others = np.flatnonzero(events.phase[: forward[-1]] != _FORWARD)
    begin = int(others[-1]) if len(others) else -1
    of_forward = (tensors.alloc_at[rows] > begin) & (tensors.alloc_at[rows] < failed_at)
    found: Array = rows[of_forward & (tensors.category[rows] == _ACTIVATION)]
    return found


def _kept(view: DeviceView, rows: Array, failed_at: int) -> Iterator[Finding]:
    """Yields MD132."""
    device, tensors = view.device, view.device.tensors
    held, total = int(tensors.block_bytes[rows].sum()), int(tensors.block_bytes[view.live].sum())
    if held < max(SHARE * total, FLOOR):
        return
    before = int(tensors.block_bytes[view.live[tensors.alloc_at[view.live] < failed_at]].sum())
    yield Finding(
        "MD132",
        phrase("earlier_attempt.title", bytes=format_bytes(held), share=f"{held / total:.0%}"),
        "critical",
        device.device,
        (
            Evidence(phrase("earlier_attempt.kept"), held, "bytes", moment_name(device, view.at)),
            Evidence(phrase("earlier_attempt.before"), before, "bytes", moment_name(device, failed_at)),
            *(
                Evidence(phrase("earlier_attempt.site"), place.bytes, "bytes", place_of(view, place.rows, place.label))
                for place in by_place(view, rows)[:NUM_PLACES]
            ),
        ),
        (_freed(view.trace.backend),),
        weight_bytes=held,
    )


def _freed(backend: str | None) -> Fix:
    device = "npu" if backend == "npu" else "cuda"
    line = f"del model, optimizer; gc.collect(); torch.{device}.empty_cache()"
    return Fix(
        phrase("earlier_attempt.fix"),
        "code",
        line,
        phrase("earlier_attempt.fix.when"),
        phrase("earlier_attempt.fix.caveat"),
    )
