"""Gradients of parameters that no optimizer updates.

Autograd computes a gradient for each parameter that requires one: also for a teacher, for a network that only computes
a loss, and for layers that the optimizer does not get. Nothing uses these gradients, and the ``zero_grad`` of an
optimizer does not free them. memdiag recognises them in two ways:

* a recorder saw which gradients the optimizers used: these are others, of the size of a parameter, that outlive a step
  or are freed together with those;
* ``zero_grad`` freed other gradients in each of several steps, but never these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

import numpy as np

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.names import largest_names
from memdiag.analyzers.support.places import moment_name, when
from memdiag.analyzers.support.sites import first_finding
from memdiag.analyzers.support.without import peak_without, saving_without
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.text import phrase
from memdiag.trace.distinct import occurrences
from memdiag.trace.model import Trace
from memdiag.trace.schema import ALLOC, CATEGORIES, OOM, PHASES
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD133": "no optimizer uses these gradients"}

SHARE = 0.05  # of live bytes
FLOOR = 32 * MIB
FEWEST_STEPS = 3  # in which other gradients are freed
NUM_NAMES = 3
LONGEST_LINE = 64
_WORD = re.compile(r"[A-Za-z0-9_]+")
_WHOLE = "model.requires_grad_(False)  # the model without an optimizer"

USED = "grad of "  # begins the name of a gradient that a recorder saw at an optimizer's step
_OF_NO_MODULE = USED + "parameter "  # of a tensor that is in no module
# A tensor that is optimized itself, such as an image, is smaller than the unused gradients by this factor.
_COPIES = 100
_GRADIENT, _PARAMETER, _ACTIVATION = (CATEGORIES.index(name) for name in ("gradient", "parameter", "activation"))
_BACKWARD = PHASES.index("backward")
_TRAINING = [PHASES.index(name) for name in ("forward", "backward", "optimizer")]


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD133 of every device."""
    if trace.bases.get("phase", "none") == "none":
        return
    for view in context.views(trace):
        yield from first_finding(view, _unused)


def find_unused(view: DeviceView) -> Array:
    """Returns the gradients (of the whole trace) that no optimizer uses."""
    tensors = view.device.tensors
    made = np.flatnonzero(
        (tensors.category == _GRADIENT) & (tensors.phase_alloc == _BACKWARD) & (tensors.step_alloc >= 0)
    )
    used = is_used(view)[made]
    if not used.any():
        return _never_freed(view, made)
    found = _others(view, made, used)
    return found[:0] if _has_copies(view, found) else found


def is_used(view: DeviceView) -> Array:
    """Returns for each tensor (bool) whether a recorder saw it as a gradient at an optimizer's step."""
    used: Array = _begin_with(view, USED)[view.device.tensors.name]
    return used


def _begin_with(view: DeviceView, text: str) -> Array:
    """Returns, for each string of the trace, whether it begins with a text; -1 is an index too, for no string."""
    return np.array([each.startswith(text) for each in view.trace.strings] + [False], bool)


def _has_copies(view: DeviceView, rows: Array) -> bool:
    """Returns whether optimizers update tensors of no module that may be copies of the parameters of ``rows``.

    Examples are float32 copies of 16-bit parameters, and flat partitions of them.
    """
    tensors = view.device.tensors
    own = np.flatnonzero(_begin_with(view, _OF_NO_MODULE)[tensors.name])
    _, first = np.unique(tensors.name[own], return_index=True)
    held = np.intersect1d(rows, view.live)
    return bool(_COPIES * tensors.block_bytes[own[first]].sum() > tensors.block_bytes[held].sum())


def _others(view: DeviceView, made: Array, used: Array) -> Array:
    """Returns the gradients that no optimizer used, although they outlived a step."""
    tensors = view.device.tensors
    outlive = _is_kept(view, made) & (tensors.step_alloc[made] <= tensors.step_alloc[made[used]].max())
    outlive |= tensors.step_free[made] > tensors.step_alloc[made]
    outlive |= _are_freed_with(view, made, made[used])
    sizes = tensors.requested_bytes[_not_updated(view, made[used])]
    found: Array = made[~used & outlive & np.isin(tensors.requested_bytes[made], sizes)]
    return found


def _are_freed_with(view: DeviceView, rows: Array, used: Array) -> Array:
    """Returns which tensors are freed together with used gradients, by ``model.zero_grad()`` at the end of a step."""
    events, freed = view.device.events, view.device.tensors.free_requested_at
    num_allocations = np.append(np.cumsum(events.action == ALLOC), -1)  # no two frees are together across an allocation
    is_freed = np.append((events.phase != _BACKWARD), False)[freed[rows]]
    found: Array = is_freed & np.isin(num_allocations[freed[rows]], num_allocations[freed[used]])
    return found


def _not_updated(view: DeviceView, used: Array) -> Array:
    """Returns the live parameters of sizes of which there are more parameters than used gradients with different names.

    The others get a second gradient at times: the generator's backward computes those of the discriminator, too.
    """
    tensors = view.device.tensors
    parameters = view.live[tensors.category[view.live] == _PARAMETER]
    sizes = np.unique(np.stack((tensors.name[used], tensors.requested_bytes[used])), axis=1)[1]
    own = tensors.requested_bytes[parameters]
    found: Array = parameters[occurrences(own, own) > occurrences(sizes, own)]
    return found


def _never_freed(view: DeviceView, made: Array) -> Array:
    """Returns the gradients that outlive all steps, if those of other parameters are freed in each step."""
    tensors = view.device.tensors
    is_kept = _is_kept(view, made)
    kept, freed = made[is_kept], made[~is_kept]
    last = int(view.device.events.step.max(initial=-1))
    steps = np.unique(tensors.step_alloc[freed[tensors.step_free[freed] - tensors.step_alloc[freed] <= 1]])
    old = kept[tensors.step_alloc[kept] <= last - FEWEST_STEPS]
    first = int(tensors.step_alloc[old].min(initial=last))
    found: Array = old if np.count_nonzero(steps >= first) >= last - first else old[:0]
    return found


def _is_kept(view: DeviceView, rows: Array) -> Array:
    """Returns which tensors are live until the training ends."""
    training = np.flatnonzero(np.isin(view.device.events.phase, _TRAINING))
    kept: Array = view.device.tensors.free_requested_at[rows] > training.max(initial=-1)
    return kept


def _unused(view: DeviceView) -> Iterator[Finding]:
    """Yields MD133."""
    device, tensors = view.device, view.device.tensors
    unused = find_unused(view)
    rows = np.intersect1d(unused, view.live)
    held, total = int(tensors.block_bytes[rows].sum()), int(tensors.block_bytes[view.live].sum())
    if held < max(SHARE * total, FLOOR):
        return
    parameters = _parameters_of(view, rows)
    yield Finding(
        "MD133",
        phrase("unused_gradients.title", bytes=format_bytes(held), share=f"{held / total:.0%}", when=when(view)),
        "critical" if (device.events.action == OOM).any() else "warning",
        device.device,
        (
            Evidence(phrase("unused_gradients.held"), held, "bytes", moment_name(device, view.at)),
            Evidence(phrase("unused_gradients.count"), len(rows), "tensors"),
            peak_without(device, unused),
            *(
                Evidence(phrase("unused_gradients.of"), size, "bytes", name)
                for name, size, _, _ in largest_names(view, parameters, NUM_NAMES)
            ),
        ),
        (
            Fix(
                phrase("unused_gradients.freeze"),
                "code",
                _line([view.trace.strings[number] for number in tensors.name[parameters]]),
                phrase("remedies.every"),
                phrase("unused_gradients.freeze.caveat"),
            ),
        ),
        _saving(view, unused),
        held,
    )


def _saving(view: DeviceView, unused: Array) -> Saving | None:
    """Returns a saving of at least the gradients, and at most also of everything that forward and backward keep."""
    tensors = view.device.tensors
    graph = (tensors.category == _ACTIVATION) | (tensors.phase_alloc == _BACKWARD) & (tensors.category != _GRADIENT)
    least, most = (saving_without(view.device, rows) for rows in (unused, np.union1d(unused, np.flatnonzero(graph))))
    if most is None:
        return None
    fall = least.expected_bytes if least else 0
    return replace(most, low_bytes=fall, expected_bytes=fall)


def _parameters_of(view: DeviceView, rows: Array) -> Array:
    """Returns the live parameters that have the sizes of the gradients ``rows`` and no used gradient of their name."""
    tensors, strings = view.device.tensors, view.trace.strings
    found = view.live[tensors.category[view.live] == _PARAMETER]
    found = found[np.isin(tensors.requested_bytes[found], tensors.requested_bytes[rows]) & (tensors.name[found] >= 0)]
    known = {strings[number] for number in np.unique(tensors.name) if number >= 0}
    return np.array([row for row in found if USED + strings[tensors.name[row]] not in known], np.int64)


def _line(names: Sequence[str]) -> str:
    """Returns the line that freezes the module to which all of the parameters belong."""
    paths = [name.split(".")[:-1] for name in names]
    path = [level[0] for level in takewhile(lambda words: len(set(words)) == 1, zip(*paths, strict=False))]
    # The names are from the file: nothing else may get into a line that people paste.
    if not path or not all(_WORD.fullmatch(word) for word in path):
        return _WHOLE
    is_attribute = all(word.isidentifier() for word in path)
    part = ".".join(path) if is_attribute else f'get_submodule("{".".join(path)}")'
    line = f"model.{part}.requires_grad_(False)"
    return line if len(line) <= LONGEST_LINE else _WHOLE
