"""Copies of the weights are reported if a line makes them again and again, or by ``copy.deepcopy``."""

from __future__ import annotations

import pytest

from memdiag.analyzers import model_copies
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.root_causes import is_root
from tests.training import MAIN, MIB, Frame, Training

LAYERS, SIZE = 4, 8 * MIB
KEEP_BEST = (Frame("/app/train.py", 60, "keep_best"), MAIN)
DEEPCOPY = (Frame("/usr/lib/python3.11/copy.py", 128, "deepcopy"), *KEEP_BEST)


def epochs(*, num=3, where=KEEP_BEST, part=1.0, beside=False, updates=False, keeps=False, apart=False, backend="cuda"):
    """Returns epochs of two steps and a copy of the weights each; the older copy is freed after the newer one is made.

    Args:
        num: Number of epochs.
        where: Call stack of the copies.
        part: Of the parameters, the part that is copied.
        beside: Whether the line also makes tensors of another size.
        updates: Whether the line computes new weights, with a temporary tensor for each.
        keeps: Whether all copies stay.
        apart: Whether other large tensors are made in between.
        backend: The backend.
    """
    program, best = Training(layers=LAYERS, size=SIZE), []
    program.initialise()
    for _ in range(num):
        program.step()
        program.step()
        older, best = best, []
        for layer in range(int(part * LAYERS)):
            if updates:
                program.passing(SIZE * (1 + layer), where)
            if apart:
                program.passing(SIZE, (MAIN,))
            best.append(program.alloc(SIZE * (1 + layer), where, "unknown"))
            if beside:
                best.append(program.alloc(SIZE * 100, where, "unknown"))
        for each in () if keeps else older:
            program.free(each)
    program.step()
    return program.trace(backend=backend)


def found(**options):
    return list(model_copies.analyze(epochs(**options), Context()))


def test_the_saving_is_the_peak_without_the_copies():
    (finding,) = found()
    assert finding.title.startswith("Copies of the model's weights made at train.py:60 keep_best stay on the device")
    peaks = [int(epochs(part=part).devices[0].usage.allocated.max()) for part in (1, 0)]
    assert finding.saving.expected_bytes == peaks[0] - peaks[1]
    assert is_root(finding)


@pytest.mark.parametrize(
    "options",
    [
        {"num": 1},  # once: perhaps the state of an optimizer of its own
        {"part": 0.5},  # of some layers: something else
        {"beside": True},
        {"updates": True},  # weights of an inner loop
        {"apart": True},  # one at a time
        {"where": ()},
        {"backend": "cpu"},  # they would be on the host, too
    ],
)
def test_other_tensors_of_these_sizes_are_not_reported(options):
    assert not found(**options)


def test_every_copy_that_stays_counts():
    (finding,) = found(keeps=True)
    assert (finding.severity, finding.evidence[0].value) == ("warning", 3 * 80 * MIB)


def test_one_deep_copy_is_a_copy():
    (finding,) = found(num=1, where=DEEPCOPY)
    assert "train.py:60 keep_best" in finding.title


PAGE_EXAMPLES = {"MD139": lambda: found(keeps=True)}
