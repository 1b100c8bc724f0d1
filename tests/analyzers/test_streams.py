from memdiag.analyzers import streams
from memdiag.analyzers.support.context import Context
from memdiag.sources import load
from tests.analyzers.heaps import MIB, Heap
from tests.analyzers.page_examples import golden


def findings(trace, **options):
    return {finding.code: finding for finding in streams.analyze(trace, Context(**options))}


def number(finding, words):
    return next(evidence.value for evidence in finding.evidence if words in evidence.what)


def waiting(heap, count=4, size=50, where="copy4", between=3):
    """Frees tensors while another stream still uses them."""
    for i in range(count):
        heap.segment(i * 100, size * MIB)
        heap.alloc(i * 100, size * MIB, where=where)
    for i in range(count):
        heap.free(i * 100, size * MIB, pending=True, where=where)
    for i in range(between):
        heap.alloc(90000 + i, 0)
    for i in range(count):
        heap.complete(i * 100, size * MIB)


def test_freed_memory_that_waits_is_counted_in_bytes_and_time(heap):
    waiting(heap)
    heap.wait(500)
    found = findings(heap.trace(), at=12)["MD501"]
    assert found.severity == "warning"
    assert number(found, "largest amount of freed memory that waited") == 200 * MIB
    assert number(found, "tensors whose blocks became free with a delay") == 4
    # Each of 50 MiB waits for 7 entries of 1 us, in the order of the frees.
    assert number(found, "size x waiting time") == round(4 * 50 * 7 / 1000, 3)
    assert found.evidence[-1].unit == "MiB x ms"
    assert found.evidence[-1].where == "train.py:4 copy4"


def test_time_is_in_entries_where_there_is_no_clock(heap):
    waiting(heap)
    found = findings(heap.trace(timed=False), at=12)["MD501"]
    assert found.evidence[-1].unit == "GiB x events"
    assert number(found, "size x waiting time") == round(4 * 50 * 7 / 1024, 3)


def test_a_free_that_completes_at_once_does_not_wait(heap):
    for _ in range(5):
        heap.segment(0, 500 * MIB)
        heap.alloc(0, 500 * MIB)
        heap.free(0, 500 * MIB)
        heap.release(0, 500 * MIB)
    assert findings(heap.trace()) == {}


def test_waiting_elsewhere_than_at_the_peak_is_for_information(heap):
    waiting(heap)
    heap.segment(5000, 400 * MIB)
    heap.alloc(5000, 400 * MIB)
    assert findings(heap.trace())["MD501"].severity == "info"


def test_collectives_get_their_own_advice(heap):
    waiting(heap, where=("all_gather_into_tensor", "unshard", "train1"))
    titles = [fix.change for fix in findings(heap.trace(), at=12)["MD501"].fixes]
    assert "export TORCH_NCCL_AVOID_RECORD_STREAMS=1" in titles


def test_other_tensors_do_not(heap):
    waiting(heap)
    changes = [fix.change for fix in findings(heap.trace(), at=12)["MD501"].fixes]
    assert changes == [""]


def test_an_npu_gets_the_variable_of_its_own(heap):
    waiting(heap)
    found = findings(heap.trace(backend="npu"), at=12)["MD501"]
    assert found.fixes[0].change == "export MULTI_STREAM_MEMORY_REUSE=3"


def test_an_error_although_a_range_fits(heap):
    heap.segment(0, 100 * MIB)
    heap.alloc(0, 100 * MIB, where="copy4")
    heap.free(0, 100 * MIB, pending=True)
    heap.segment(200, 20 * MIB)
    heap.alloc(200, 20 * MIB)
    heap.complete(0, 100 * MIB)
    heap.oom(90 * MIB, where="x7")
    found = findings(heap.trace())["MD502"]
    assert found.severity == "critical"
    assert number(found, "size of the request when memory ran out") == 90 * MIB
    assert number(found, "largest free range") == 100 * MIB


def test_an_error_where_nothing_fits_is_no_matter_of_streams(heap):
    heap.segment(0, 100 * MIB)
    heap.alloc(0, 100 * MIB)
    heap.oom(90 * MIB)
    assert findings(heap.trace()) == {}


def test_a_recorded_run_with_two_streams(goldens):
    found = findings(load(goldens / "cuda-2.13.0-streams" / "snapshot.pickle"))["MD501"]
    assert found.severity == "warning"
    assert number(found, "largest amount of freed memory that waited") == 105 * MIB


def _late():
    heap = Heap()
    heap.segment(0, 100 * MIB)
    heap.alloc(0, 100 * MIB, where="prefetch.py:18 next_batch")
    heap.free(0, 100 * MIB, pending=True)
    heap.complete(0, 100 * MIB)
    heap.oom(90 * MIB, where="model.py:31 forward")
    return streams.analyze(heap.trace(), Context())


PAGE_EXAMPLES = {
    "MD501": lambda: golden("cuda-2.13.0-streams"),
    "MD502": _late,
}
