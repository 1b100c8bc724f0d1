import pytest

from memdiag.analyzers import quality
from memdiag.analyzers.support.context import Context
from memdiag.sources import load
from tests.analyzers.heaps import MIB, Heap
from tests.analyzers.page_examples import golden
from tests.training import SILENT, Training


def findings(trace):
    return {finding.code: finding for finding in quality.analyze(trace, Context())}


def busy(heap, where="f3", count=60):
    for _ in range(count):
        heap.alloc(500, MIB, where=where)
        heap.free(500, MIB)


def test_a_good_recording_is_not_mentioned(heap):
    heap.segment(500, 20 * MIB)
    busy(heap)
    assert findings(heap.trace()) == {}


@pytest.mark.parametrize("name", ["no-trace", "state-only"])
def test_a_snapshot_without_history(goldens, name):
    found = findings(load(goldens / f"cuda-2.13.0-{name}" / "snapshot.pickle"))["MD951"]
    assert found.severity == "warning"
    assert found.fixes[0].change == "torch.cuda.memory._record_memory_history(max_entries=1_000_000)"


def test_an_empty_snapshot_has_nothing_to_record_again(goldens):
    assert findings(load(goldens / "cuda-2.13.0-empty" / "snapshot.pickle")) == {}


def test_what_was_there_before_is_unknown(heap):
    heap.segment(500, 20 * MIB)
    busy(heap)
    heap.free(1000, 300 * MIB)
    heap.release(1000, 300 * MIB)
    found = findings(heap.trace())["MD952"]
    assert found.severity == "info"
    assert found.evidence[0].value == 300 * MIB
    assert "max_entries=1_000_000" in found.fixes[0].change


def test_a_long_trace_needs_a_larger_ring(heap):
    heap.segment(500, 20 * MIB)
    busy(heap, count=90_000)
    heap.free(1000, 300 * MIB)
    heap.release(1000, 300 * MIB)
    trace = heap.trace()
    assert f"max_entries={4 * trace.num_events:_}" in findings(trace)["MD952"].fixes[0].change


def test_no_stacks(heap):
    heap.segment(500, 20 * MIB)
    busy(heap, where="", count=120)
    busy(heap, count=3)
    found = findings(heap.trace(backend="npu"))["MD953"]
    assert (found.evidence[0].value, found.evidence[1].value) == (120, 123)
    assert found.fixes[0].change == 'torch.npu.memory._record_memory_history(context="all", stacks="python")'


class ManyTemporariesInBackward(Training):
    def passing(self, size, frames):
        for _ in range(100 if frames == SILENT else 1):
            super().passing(size, frames)


def test_backward_passes_without_stacks_are_not_blamed():
    program = ManyTemporariesInBackward()
    program.initialise()
    for _ in range(3):
        program.step()
    trace = program.trace()
    assert (trace.devices[0].tensors.stack < 0).mean() > quality.NO_STACK_SHARE
    assert "MD953" not in findings(trace)


def test_formats_that_cannot_hold_stacks_are_not_blamed(heap):
    heap.segment(500, 20 * MIB)
    busy(heap, where="", count=120)
    assert findings(heap.trace(format="lifespans-csv")) == {}


def test_contradictions(heap):
    heap.segment(500, 20 * MIB)
    busy(heap)
    for _ in range(10):
        heap.free(700, MIB)
    found = findings(heap.trace())["MD954"]
    assert sum(evidence.value for evidence in found.evidence) >= 0.01 * heap.trace().num_events


def test_a_real_snapshot_that_contradicts_itself(shared):
    assert "MD954" in findings(
        load(shared / "data" / "snapshots" / "facebookresearch__mosaic__test__snapshots__output.pickle")
    )


def _recorded(*, late=False, stacks=True, contradictions=0):
    """Returns the findings on the quality of a recording."""
    heap = Heap()
    heap.segment(400, 120 * MIB)
    heap.alloc(400, 100 * MIB, where="model.py:31 forward")
    for _ in range(120):
        heap.alloc(500, MIB, where="model.py:31 forward" if stacks else "")
        heap.free(500, MIB)
    if late:
        heap.free(1000, 300 * MIB)
        heap.release(1000, 300 * MIB)
    for _ in range(contradictions):
        heap.free(700, MIB)
    return quality.analyze(heap.trace(), Context())


PAGE_EXAMPLES = {
    "MD951": lambda: golden("cuda-2.13.0-no-trace"),
    "MD952": lambda: _recorded(late=True),
    "MD953": lambda: _recorded(stacks=False),
    "MD954": lambda: _recorded(contradictions=10),
}
