"""Data that stays on the device during the whole training, such as a data set or a replay buffer.

A step needs one batch of it. memdiag recognises large tensors that a line of the program allocated before the first
step, that are never freed in the training, and that are no parameter, gradient, state or workspace. The recorder
knows that they are inputs if a model gets a slice of them; if the program copies batches out of them, their category is
unknown. Without a recorder, weights may be unknown too, until two steps have shown which tensors have gradients.
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
from memdiag.trace.schema import CATEGORIES, OOM, PHASES
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD134": "data stays on the device during the training"}

SHARE = 0.05  # of live bytes, for each call site
FLOOR = 64 * MIB
CAUSE_SHARE = 0.2  # of all call sites together, from which on they are the first thing to change after a failure
FEWEST_STEPS = 2  # without a recorder; with one, the first step is enough for data of many batches
BATCHES = 16  # raw images, for example, are larger than what the model gets, but not by this factor
COPIES = 3  # such as both states of Adam and an average, for each parameter
NUM_PLACES = 3

_DATA = _UNKNOWN, _INPUT = [CATEGORIES.index(name) for name in ("unknown", "input")]
_MODELS = (  # they make, copy or load models and the states of optimizers
    "/torch/nn/",
    "/torch/optim/",
    "/copy.py",
    "/torch/serialization.py",
    "/safetensors/torch.py",
)
_PARAMETER = CATEGORIES.index("parameter")
_BACKWARD = PHASES.index("backward")
_TRAINING = [PHASES.index(name) for name in ("forward", "backward", "optimizer")]


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD134 of every GPU or NPU."""
    if trace.backend not in ("cuda", "npu") or trace.bases.get("phase", "none") == "none":
        return
    for view in context.views(trace):
        yield from first_finding(view, _resident)


def _resident(view: DeviceView) -> Iterator[Finding]:
    """Yields MD134."""
    device, tensors = view.device, view.device.tensors
    training = np.flatnonzero(np.isin(device.events.phase, _TRAINING))
    with_backward = np.unique(device.events.step[device.events.phase == _BACKWARD])
    if not _is_training(view.trace, len(with_backward)) or not len(training):
        return
    is_data = np.isin(tensors.category, _DATA) & (tensors.alloc_at >= 0) & (tensors.alloc_at < training[0])
    is_data &= (tensors.free_requested_at > training[-1]) & _made_by_program(view.trace)[tensors.stack]
    is_data &= ~_may_be_copies(view)
    if len(np.unique(device.events.step[training])) < FEWEST_STEPS:
        is_data &= _is_larger_than_batch(view)
    total = int(tensors.block_bytes[view.live].sum())
    least = max(SHARE * total, FLOOR)
    places = [place for place in by_place(view, view.live[is_data[view.live]]) if place.bytes >= least]
    if not places:
        return
    rows = np.concatenate([place.rows for place in places])
    held = int(tensors.block_bytes[rows].sum())
    yield Finding(
        "MD134",
        phrase(
            "resident_data.title",
            bytes=format_bytes(held),
            place=places[0].label,
            share=f"{held / total:.0%}",
            when=when(view),
        ),
        _severity(view, rows, held / total),
        device.device,
        (
            Evidence(phrase("resident_data.held"), held, "bytes", moment_name(device, view.at)),
            Evidence(phrase("resident_data.count"), len(rows), "tensors"),
            peak_without(device, rows),
            *(
                Evidence(phrase("resident_data.site"), place.bytes, "bytes", place_of(view, place.rows, place.label))
                for place in places[:NUM_PLACES]
            ),
        ),
        (
            Fix(
                phrase("resident_data.move"),
                "code",
                f'batch = data[i:j].pin_memory().to("{view.trace.backend}", non_blocking=True)',
                phrase("resident_data.move.when"),
                phrase("resident_data.move.caveat"),
            ),
        ),
        saving_without(device, rows),
        held,
    )


def _is_training(trace: Trace, num_backward: int) -> bool:
    """Returns whether the trace shows a training: in inference, such tensors may be a cache for keys and values."""
    recorded = trace.recorded
    is_known = trace.bases["phase"] == "marks" and recorded is not None and len(recorded.ended.optimizers) > 0
    return is_known or num_backward >= (1 if trace.bases["phase"] == "marks" else FEWEST_STEPS)


def _may_be_copies(view: DeviceView) -> Array:
    """Returns which tensors may be averages, states or float32 copies that the program itself keeps for the parameters.

    They have the sizes of parameters, and are at most COPIES for each parameter.
    """
    tensors = view.device.tensors
    parameters = tensors.requested_bytes[view.live[tensors.category[view.live] == _PARAMETER]]
    others = tensors.requested_bytes[view.live[tensors.category[view.live] == _UNKNOWN]]
    own = tensors.requested_bytes
    found: Array = np.zeros(len(tensors), bool)
    for size in (own, own // 2):  # also with 32 bits instead of 16
        number = occurrences(parameters, size)
        found |= (number > 0) & (occurrences(others, own) <= COPIES * number)
    found &= tensors.category == _UNKNOWN
    return found


def _is_larger_than_batch(view: DeviceView) -> Array:
    """Returns which tensors are too large to be the batch of the first step, which is live until the second one."""
    tensors = view.device.tensors
    inputs = tensors.requested_bytes[tensors.category == _INPUT]
    found: Array = (tensors.category == _UNKNOWN) & (tensors.requested_bytes >= BATCHES * inputs.sum())
    return found if len(inputs) else np.zeros(len(tensors), bool)


def _made_by_program(trace: Trace) -> Array:
    """Returns, by stack, whether a line of the program is on it, and nothing of ``_MODELS``."""
    frames = trace.stacks.frames
    is_user = np.array([frame.is_user for frame in frames], bool)
    is_model = np.array([any(part in frame.filename.replace("\\", "/") for part in _MODELS) for frame in frames], bool)
    found: Array = np.append(trace.stacks.with_frame(is_user) & ~trace.stacks.with_frame(is_model), False)
    return found


def _severity(view: DeviceView, rows: Array, share: float) -> Severity:
    """Returns the severity: after a failure, the data is its cause if it is a good part and no model gets it as it is.

    A model that gets the data itself may need all of it in each step, such as a graph network.
    """
    device, tensors = view.device, view.device.tensors
    if not (device.events.action == OOM).any():
        return "info"
    is_copied = (tensors.category[rows] == _UNKNOWN).all() and (tensors.category == _INPUT).any()
    return "critical" if is_copied and share >= CAUSE_SHARE else "warning"
