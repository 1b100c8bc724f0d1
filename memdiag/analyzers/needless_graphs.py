"""Forward passes that autograd records although the program never calls backward: inference without ``no_grad``.

The graph of a pass keeps the inputs of most operators until the pass ends. Without it, a tensor is freed once the
operators that read it have run. The finding needs the recorder, which knows whether autograd records a pass, and
a program that ended by itself or ran out of memory: a backward might have followed an interrupted pass. In a training,
it needs a failure in a pass of a model in evaluation mode, if no backward has ever followed such a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.kept_passes import find_passes, numbered
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name, when
from memdiag.analyzers.support.sites import by_place, first_finding
from memdiag.analyzers.support.without import peak_without, saving_without
from memdiag.results.finding import Evidence, Finding
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.schema import OOM, PHASES
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD137": "autograd graphs in a program without a backward pass"}

FLOOR = 64 * MIB
SHARE, WARNING_SHARE = 0.1, 0.25  # of live bytes
IN_USE = 4  # kept tensors of a pass that operators may still read, with the input of a residual block
NUM_PLACES = 3

_TRAINING = [PHASES.index(name) for name in ("backward", "optimizer")]


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD137 of every device."""
    ended = trace.recorded.ended if trace.recorded is not None else None
    if ended is None or trace.bases.get("phase") != "marks" or ended.is_windowed:
        return
    failed = any((device.events.action == OOM).any() for device in trace.devices)
    evaluates = failed and ended.is_evaluation
    is_whole = ended.has_needless_graph if failed else ended.reason == "exit" and not ended.error
    trains = any(np.isin(device.events.phase, _TRAINING).any() for device in trace.devices)
    if not (evaluates or (ended.num_graphs and is_whole and not trains)):
        return
    for view in context.views(trace):
        yield from first_finding(view, lambda at: _kept(at, evaluates=evaluates))


def _kept(view: DeviceView, *, evaluates: bool) -> Iterator[Finding]:
    device, tensors = view.device, view.device.tensors
    if view.at < 0 or device.start["allocated"] or find_passes(view) is not None:  # MD106
        return
    _, of_tensor = numbered(view)
    training = np.flatnonzero(np.isin(device.events.phase, _TRAINING))  # its passes need their graphs
    rows = np.flatnonzero((of_tensor >= 0) & (tensors.alloc_at > (training[-1] if len(training) else -1)))
    since = _ends_of_use(view, rows, of_tensor)
    graph = np.intersect1d(rows[since <= view.at], view.live)
    total, held = (int(tensors.block_bytes[each].sum()) for each in (view.live, graph))
    failed = bool((device.events.action == OOM).any())
    saving = saving_without(device, rows, since=since)
    less = held if evaluates else saving.expected_bytes if saving else 0  # the peak may be in the training
    if less < max(SHARE * total, FLOOR):
        return
    words = {"bytes": format_bytes(held), "share": f"{held / total:.0%}", "when": when(view)}
    title = phrase("needless_graphs.title.failed" if failed else "needless_graphs.title", **words)
    if evaluates:
        title = phrase("needless_graphs.title.evaluation", **words)
    yield Finding(
        "MD137",
        title,
        "critical" if failed else "warning" if less >= WARNING_SHARE * total else "info",
        device.device,
        (
            Evidence(phrase("needless_graphs.held"), held, "bytes", moment_name(device, view.at)),
            *(
                Evidence(phrase("needless_graphs.site"), each.bytes, "bytes", each.label)
                for each in by_place(view, graph)[:NUM_PLACES]
            ),
            *(() if evaluates else (peak_without(device, rows, since=since),)),
        ),
        AllocatorSettings.of(view.trace).offers("no-graph"),
        saving,
        held,
    )


def _ends_of_use(view: DeviceView, rows: Array, of_tensor: Array) -> Array:
    """Returns, for each tensor of a pass, the event from which on it would be free without a graph (estimated).

    This is when the pass allocates the tensor ``IN_USE`` places later.
    """
    made = view.device.tensors.alloc_at[rows]
    order = np.lexsort((made, of_tensor[rows]))
    ends = np.full(len(rows), view.device.num_events, np.int64)
    later = order[IN_USE:]
    same = of_tensor[rows[later]] == of_tensor[rows[order[: len(later)]]]
    ends[order[: len(later)][same]] = made[later[same]]
    return ends
