"""Retained forward passes are reported only if no backward follows them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import kept_passes
from memdiag.analyzers.support.context import Context
from memdiag.trace.recording import Optimizer, ProcessMarks, RecordingEnd
from memdiag.trace.schema import PHASES
from tests.training import BACKWARD, MAIN, MIB, SILENT, Frame, Training, forward

EVALUATE = Frame("/app/train.py", 55, "evaluate")
CRITERION = Frame("/lib/torch/nn/modules/loss.py", 1297, "forward")
LOSS = Frame("/lib/torch/nn/functional.py", 3555, "cross_entropy")


class Evaluated(Training):
    """Runs three training steps, then retained forward passes."""

    def passes(
        self,
        count: int,
        *,
        kept: float = 1.0,
        backward: bool = False,
        loss: int = 0,
        in_module: bool = False,
        retained: int = 0,
    ) -> None:
        """Runs forward passes.

        ``kept`` and the bytes of ``loss``, which a module may compute, apply to each pass, ``backward`` to all of them.
        Each of the first ``retained`` passes has a backward pass that frees nothing.
        """
        graphs = []
        for number in range(count):
            self.phase = "forward"
            graph = [self.alloc(2 * self.size, self._called(layer), "activation") for layer in range(3)]
            self.phase = "outside"
            self.passing(512, (EVALUATE, MAIN))
            for addr in graph[round(3 * kept) :]:
                self.free(addr)
            graphs += graph[: round(3 * kept)]
            if in_module:
                self.phase = "forward"
                self.alloc(loss, (LOSS, CRITERION, EVALUATE, MAIN), "input")
                self.phase = "outside"
                self.passing(512, (EVALUATE, MAIN))
            elif loss:
                self.alloc(loss, (LOSS, EVALUATE, MAIN), "input")
            if number < retained:
                self.phase = "backward"
                self.passing(512, (EVALUATE, MAIN))
                self.phase = "outside"
        if backward:
            self._backward([graphs.pop(), *graphs[:3]], self.size)
            for addr in graphs[3:]:
                self.free(addr)

    def updates(self, count: int, used: int, computed: int, *, freed: bool = False) -> None:
        """Runs forward passes, and a backward for the last ``used`` ones, which frees their graphs.

        The backward computes gradients for the last ``computed`` ones. A later one frees the others if ``freed``.
        """
        graphs = []
        for _ in range(count):
            self.phase = "forward"
            graphs.append([self.alloc(2 * self.size, self._called(layer), "activation") for layer in range(3)])
            self.phase = "outside"
            self.passing(512, (EVALUATE, MAIN))
        self.phase = "backward"
        self.passing(4, BACKWARD)
        for graph in graphs[::-1][:computed]:
            for addr in graph:
                self.passing(2 * self.size, SILENT)
                if graph in graphs[count - used :]:
                    self.free(addr)
        self.phase = "outside"
        self.passing(512, (EVALUATE, MAIN))
        if freed:
            self.phase = "backward"
            self.passing(4, BACKWARD)
        for graph in graphs[: count - used]:
            for addr in graph:
                self.free(addr)

    def _called(self, layer: int) -> tuple:
        return (*forward(layer)[:-1], EVALUATE, MAIN)


def found(program, *, marked=True, recorded=None):
    """Returns the finding.

    Args:
        marked: Whether phases are marked as by a recorder; from stacks alone, consecutive passes count as one.
        recorded: What a recorder noted besides.
    """
    trace = program.trace()
    (device,) = trace.devices
    if marked:
        device = replace(
            device,
            events=device.events.replace(phase=np.array([PHASES.index(name) for name in program.phases], np.int8)),
        )
    trace = replace(
        trace, devices=(device,), recorded=recorded, bases={**trace.bases, **({"phase": "marks"} if marked else {})}
    )
    return list(kept_passes.analyze(trace, Context()))


def trained(**options):
    program = Evaluated(size=32 * MIB)
    program.initialise()
    for _ in range(3):
        program.step()
    program.now += 1
    program.passes(**options)
    return program


def test_an_evaluation_that_keeps_its_graphs_is_named_with_the_line_that_calls_the_model():
    program = trained(count=6)
    (finding,) = found(program)
    facts = {fact.what.key: (fact.value, fact.where) for fact in finding.evidence}
    earlier = 5 * 3 * 2 * program.size  # the sixth pass is the current one
    assert facts["kept_passes.kept"][0] == earlier
    assert facts["kept_passes.site"] == (earlier, "train.py:55 evaluate")
    assert facts["kept_passes.graphs"][0] == 5
    assert finding.severity == "warning"
    assert "no_grad" in finding.fixes[0].change


@pytest.mark.parametrize(("fails", "has_optimizer"), [(True, True), (True, False), (False, True)])
def test_a_training_that_failed_before_its_backward_may_add_up_losses(fails, has_optimizer):
    program = trained(count=6)
    if fails:
        program.phase = "forward"
        program.fail(MIB, forward(0))
    optimizers = (Optimizer("AdamW", 24 * MIB, 0, frozenset()),) if has_optimizer else ()
    recorded = ProcessMarks((), {}, {}, {}, {}, ended=RecordingEnd(reason="oom", optimizers=optimizers))
    (finding,) = found(program, recorded=recorded)
    changes = [fix.change for fix in finding.fixes]
    assert changes[0] == "with torch.no_grad():"
    assert any(".backward()" in change for change in changes) == (fails and has_optimizer)


@pytest.mark.parametrize(("retained", "follows"), [(0, False), (1, False), (5, True)])
@pytest.mark.parametrize("in_module", [False, True])
def test_graphs_that_their_backward_does_not_free_come_from_state_of_earlier_steps(retained, follows, in_module):
    (finding,) = found(trained(count=6, retained=retained, in_module=in_module, loss=MIB))
    assert ("after their backward pass" in finding.title) == follows
    assert ("h.detach()" in finding.fixes[0].change) == follows


def test_what_a_loss_keeps_is_part_of_the_graph_though_it_lives_as_long_as_an_input():
    (finding,) = found(trained(count=6, loss=100 * MIB))
    assert finding.evidence[0].value == 5 * (3 * 2 * 32 + 100) * MIB


def test_a_loss_that_a_module_computes_belongs_to_the_pass_before():
    (finding,) = found(trained(count=6, loss=100 * MIB, in_module=True))
    assert finding.evidence[0].value == 5 * (3 * 2 * 32 + 100) * MIB


def test_it_is_the_cause_where_memory_ran_out():
    program = trained(count=6)
    program.fail(1 << 41)
    assert [finding.severity for finding in found(program)] == ["critical"]


def test_few_passes_outputs_and_passes_of_one_backward_are_no_fault():
    assert not found(trained(count=3))
    assert not found(trained(count=6, kept=0.0))
    assert not found(trained(count=6, backward=True))


def meta_trained(**options):
    program = Evaluated(size=32 * MIB)
    program.initialise()
    for _ in range(3):
        program.now += 1
        program.updates(**options)
    return program


def test_passes_that_the_backward_of_their_step_does_not_use_are_retained_without_use():
    (finding,) = found(meta_trained(count=9, used=3, computed=3))
    facts = {fact.what.key: fact.value for fact in finding.evidence}
    assert (facts["kept_passes.graphs"], facts["kept_passes.used"]) == (6, 3)
    assert facts["kept_passes.kept"] == 6 * 3 * 2 * 32 * MIB
    assert "detach()" in finding.fixes[0].change


@pytest.mark.parametrize(
    "options",
    [
        {"count": 9, "used": 3, "computed": 9},  # backward(retain_graph=True) of each loss but the last
        {"count": 9, "used": 3, "computed": 3, "freed": True},
        {"count": 9, "used": 4, "computed": 4},  # too few to be sure
        {"count": 8, "used": 8, "computed": 8},
    ],
)
def test_passes_that_a_backward_of_their_step_uses_are_no_fault(options):
    assert not found(meta_trained(**options))


def test_without_marks_nothing_is_said():
    assert not found(trained(count=6), marked=False)


PAGE_EXAMPLES = {
    "MD106": lambda: found(trained(count=6)),
}
