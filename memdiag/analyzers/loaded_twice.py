"""A checkpoint loaded to the device and kept next to the model it was copied into.

``torch.load(path, map_location="cuda")`` allocates every tensor of the file on the device, and ``load_state_dict``
copies them into the model's parameters. While a variable holds the checkpoint there are two of each. memdiag recognises
them by call stack and size: tensors that a loader allocated, and as many others of the same sizes. If the model took
over the loaded tensors (``assign=True``), there are no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.names import place_of
from memdiag.analyzers.support.places import moment_name, when
from memdiag.analyzers.support.sites import by_place, first_finding
from memdiag.analyzers.support.without import peak_without, saving_without
from memdiag.results.finding import Evidence, Finding
from memdiag.text import phrase
from memdiag.trace.distinct import occurrences
from memdiag.trace.model import Trace
from memdiag.trace.schema import CATEGORIES, LIFETIMES, OOM
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD127": "the loaded checkpoint stays as a second copy on device"}

SHARE = 0.05  # of live bytes
FLOOR = 64 * MIB
SMALLEST = MIB  # of a tensor: small ones coincide by chance
FEWEST, MANY = 2, 4  # number of sizes that occur in both; or of tensors, if all layers of the model are alike
STATES = 2  # optimizer tensors for each weight: Adam's
NUM_PLACES = 3

_LOADERS = ("torch/serialization.py", "safetensors/torch.py")
_PASSING = [LIFETIMES.index(name) for name in ("temporary", "within_phase", "within_step", "forward_to_backward")]
_STATE = CATEGORIES.index("optimizer_state")
_NOT_A_MODEL = [
    CATEGORIES.index(name)
    for name in ("gradient", "activation", "input", "temporary", "collective", "workspace", "kv_cache")
]


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD127 of every device."""
    loaders = loaders_of(trace)
    if loaders is None:
        return
    for view in context.views(trace):
        yield from first_finding(view, lambda at: _twice(at, loaders))


def loaders_of(trace: Trace) -> Array | None:
    """Returns, by stack, whether a loader of checkpoints is on it; None if there is no loader in the trace."""
    frames = trace.stacks.frames
    loading = np.array([frame.filename.replace("\\", "/").endswith(_LOADERS) for frame in frames], bool)
    return np.append(trace.stacks.with_frame(loading), False) if loading.any() else None


def find_copies(view: DeviceView, loaders: Array) -> Array:
    """Returns the live tensors that a loader allocated and that have equal counterparts, one of these for each.

    Args:
        loaders: By stack, whether a loader is on it.
    """
    tensors, rows = view.device.tensors, view.live
    rows = rows[tensors.requested_bytes[rows] >= SMALLEST]
    loaded = loaders[tensors.stack[rows]]
    kept = ~np.isin(tensors.lifetime[rows], _PASSING) & ~np.isin(tensors.category[rows], _NOT_A_MODEL)
    is_state = tensors.category[rows] == _STATE
    mine = rows[loaded]
    sizes, which = np.unique(tensors.requested_bytes[mine], return_inverse=True)
    weights, states = (
        occurrences(tensors.requested_bytes[rows[~loaded & kept & chosen]], sizes) for chosen in (~is_state, is_state)
    )
    # State may belong to the loaded weights themselves, which the model took over: it counts only with other weights of
    # its size.
    have = weights + np.minimum(states, STATES * weights)
    order = np.argsort(which, kind="stable")
    first = np.searchsorted(which[order], np.arange(len(sizes)))
    rank = np.empty(len(mine), np.int64)
    rank[order] = np.arange(len(mine)) - first[which[order]]
    copies: Array = mine[rank < have[which]]
    return copies if np.count_nonzero(have) >= FEWEST or len(copies) >= MANY else mine[:0]


def _twice(view: DeviceView, loaders: Array) -> Iterator[Finding]:
    """Yields MD127."""
    device, tensors = view.device, view.device.tensors
    rows = find_copies(view, loaders)
    held, total = int(tensors.block_bytes[rows].sum()), int(tensors.block_bytes[view.live].sum())
    if held < max(SHARE * total, FLOOR):
        return
    places = by_place(view, rows)
    yield Finding(
        "MD127",
        phrase(
            "loaded_twice.title",
            place=places[0].label,
            bytes=format_bytes(held),
            share=f"{held / total:.0%}",
            when=when(view),
        ),
        "critical" if (device.events.action == OOM).any() else "warning",
        device.device,
        (
            Evidence(phrase("loaded_twice.copies"), held, "bytes", moment_name(device, view.at)),
            Evidence(phrase("loaded_twice.count"), len(rows), "tensors"),
            peak_without(device, rows),
            *(
                Evidence(phrase("loaded_twice.site"), place.bytes, "bytes", place_of(view, place.rows, place.label))
                for place in places[:NUM_PLACES]
            ),
        ),
        AllocatorSettings.of(view.trace).offers(
            "map-file" if view.trace.backend == "cpu" else "load-to-host", "take-over"
        ),
        saving_without(device, rows),
        held,
    )
