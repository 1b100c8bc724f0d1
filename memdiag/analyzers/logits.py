"""Logits and the tensors of their loss, which may need more memory than all layers together.

Tensors are logits, or copies of them, if they have as many elements as the largest tensor of the loss. The finding
requires a tenth of live bytes, or a third if no call stack names the loss, and 64 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.names import place_of
from memdiag.analyzers.support.places import moment_name, when_at
from memdiag.analyzers.support.sites import by_place
from memdiag.analyzers.support.without import saving_without
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import has_history
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD105": "logits and loss hold a large part of the peak"}

LARGE = 0.1  # of live bytes
MOST = 1 / 3  # for an output without a known loss, which is not always logits
FLOOR = 64 * MIB
NUM_LISTED = 3
SAME = 0.002  # logits and labels may be shifted by a token of a sequence: 2,047 of 2,048

_CHUNKS = "loss += checkpoint(chunk_loss, x, y, use_reentrant=False)"
_NOT_LAYERS = {"container.py", "loss.py", "module.py"}
_LOSS = ("cross_entropy", "log_softmax", "nll_loss", "crossentropy")


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD105 of every device."""
    for view in context.views(trace):
        if len(view.live) and has_history(view.device):
            yield from _loss(view)


def _loss(view: DeviceView) -> Iterator[Finding]:
    """Yields MD105 at the peak, or at the loss's failed request."""
    device, tensors, stacks = view.device, view.device.tensors, view.trace.stacks
    named = np.array([any(word in frame.name for word in _LOSS) for frame in stacks.frames], bool)
    of_loss = np.append(stacks.with_frame(named), False)
    at = max((device.peak("allocated"), view.at), key=lambda event: device.usage_at(event)["allocated"])
    failed = np.flatnonzero(
        (device.events.action == schema.OOM) & (of_loss[device.events.stack] | _after_model(device))
    )
    wanted = 0
    if len(failed):
        at = int(failed[-1])
        wanted = int(device.events.size[at])
    live = device.live(at)
    rows = live[of_loss[tensors.stack[live]]]
    sites = [stacks.site(stack) for stack in np.flatnonzero(of_loss).tolist()]
    functions = {(site.filename, site.name) for site in sites if site is not None}
    # over the whole trace, because copies for the loss precede it
    largest = max(int(tensors.requested_bytes[of_loss[tensors.stack]].max(initial=0)), wanted)
    rows = np.union1d(rows, _inputs_of(view, rows, largest, live, functions))
    held, total = int(tensors.block_bytes[rows].sum()), int(tensors.block_bytes[live].sum())
    share = LARGE if named.any() else MOST
    if not held or held + wanted < max(share * total, FLOOR):
        return
    places = by_place(view, rows)
    if not named.any() and not (tensors.phase_alloc[rows] == schema.PHASES.index("forward")).any():
        return  # with the size of the failed request, but not from the model
    sizes = {"place": places[0].label, "held": format_bytes(held), "share": f"{held / total:.0%}"}
    site = view.label(int(device.events.stack[at]))
    more = phrase("logits.more", bytes=format_bytes(wanted)) if wanted else ""
    yield Finding(
        "MD105",
        phrase("logits.loss" if named.any() else "logits.output", **sizes, moment=when_at(view, at), more=more),
        "critical" if wanted else "warning",
        device.device,
        (
            Evidence(phrase("logits.loss.held"), held, "bytes", moment_name(device, at)),
            *([Evidence(phrase("logits.loss.asked"), wanted, "bytes", site)] if wanted else []),
            Evidence(phrase("peak.allocated"), total, "bytes"),
            *(
                Evidence(phrase("peak.site"), place.bytes, "bytes", place_of(view, place.rows, place.label))
                for place in places[:NUM_LISTED]
            ),
        ),
        (*_loss_in_chunks(view), *_without_float32(view, largest)),
        _saving(view, of_loss[tensors.stack], largest, live),
        held,
    )


def _without_float32(view: DeviceView, largest: int) -> Iterator[Fix]:
    """Yields the second remedy of MD105 if the program may convert logits: tensors of half their size exist."""
    size = view.device.tensors.requested_bytes
    if (_as_large(view, largest) & (size < largest * (1 - SAME))).any():
        yield Fix(phrase("logits.float"), "code", "", phrase("logits.float.when"), phrase("logits.float.caveat"))


def _after_model(device: DeviceTrace) -> Array:
    """Returns, per event, whether it is between a forward and the next phase, where the loss is computed."""
    phase = device.events.phase
    changes = np.flatnonzero(np.concatenate(([True], phase[1:] != phase[:-1])))
    before = np.concatenate(([-1], phase[changes][:-1]))
    follows = np.repeat(before == schema.PHASES.index("forward"), np.diff(np.append(changes, len(phase))))
    after: Array = (phase == schema.PHASES.index("outside")) & follows
    return after


def _inputs_of(view: DeviceView, rows: Array, largest: int, live: Array, functions: set[tuple[str, str]]) -> Array:
    """Returns the live tensors with as many elements as the largest one of the loss, of 4 or 2 bytes each.

    They are logits and their copies.

    Layers may have that size as well: only tensors of the last layer, and those allocated after them, count. With
    ``functions`` (file, name), only tensors that one of these allocated count.
    """
    tensors, stacks = view.device.tensors, view.trace.stacks
    if largest < FLOOR:
        return rows
    inputs: Array = live[_as_large(view, largest)[live]]
    made_at = tensors.alloc_at[inputs]
    inputs = inputs[made_at >= made_at[_in_layer(view)[inputs]].max(initial=0)]
    if not functions:
        return inputs
    beside = [bool((site := stacks.site(int(stack))) and site[::2] in functions) for stack in tensors.stack[inputs]]
    beside_loss: Array = inputs[np.array(beside, bool)]
    return beside_loss


def _saving(view: DeviceView, of_loss: Array, largest: int, live: Array) -> Saving | None:
    """Returns by how much the peak falls without logits and loss of all steps; None if layers have their size, too.

    A gradient that the program keeps stays: the logits are then an input of the program, or a parameter.
    """
    as_large = _as_large(view, largest)
    of_loss = of_loss & (view.device.tensors.category != schema.CATEGORIES.index("gradient"))
    if np.count_nonzero((as_large & _in_layer(view))[live]) > 1:
        return None
    return saving_without(view.device, np.flatnonzero(of_loss | as_large))


def _in_layer(view: DeviceView) -> Array:
    """Returns which tensors a layer of PyTorch allocated."""
    stacks = view.trace.stacks
    in_layer = stacks.with_frame(np.array([_is_layer(frame.filename) for frame in stacks.frames], bool))
    mine: Array = np.append(in_layer, False)[view.device.tensors.stack]
    return mine


def _as_large(view: DeviceView, largest: int) -> Array:
    """Returns which tensors of the passes have as many elements as one of ``largest`` bytes, of 4 or 2 bytes each."""
    tensors = view.device.tensors
    near = [np.abs(tensors.requested_bytes - size) <= SAME * size for size in (2 * largest, largest, largest // 2)]
    in_pass = (tensors.phase_alloc != schema.PHASES.index("initialisation")) & (tensors.alloc_at >= 0)
    made = np.isin(tensors.category, [schema.CATEGORIES.index(name) for name in ("unknown", "activation", "temporary")])
    as_large: Array = np.logical_or.reduce(near) & in_pass & made
    return as_large


def _is_layer(filename: str) -> bool:
    """Returns whether a file holds layers of PyTorch that compute something themselves."""
    folder, _, name = filename.replace("\\", "/").rpartition("/")
    return folder.endswith("torch/nn/modules") and name not in _NOT_LAYERS


def _loss_in_chunks(view: DeviceView) -> Iterator[Fix]:
    """Yields the remedy of MD105: a loop, unless the model is a causal one of Transformers, which liger-kernel patches.

    It does not patch others, such as T5 and BERT. Since 4.46, causal models of Transformers share one loss function.
    """
    frames = view.trace.stacks.frames
    is_causal = any("ForCausalLM" in text for text in (*(frame.name for frame in frames), *view.trace.strings))
    has_liger = is_causal and any("/transformers/" in frame.filename for frame in frames)
    for fix in AllocatorSettings.of(view.trace).offers("loss-in-chunks"):
        yield fix if has_liger else replace(fix, change=_CHUNKS)
