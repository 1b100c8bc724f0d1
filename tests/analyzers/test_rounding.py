"""The analyzer reports bytes lost to rounding, and bytes lost on an NPU after blocks of exact multiples of 2 MiB."""

from memdiag.analyzers import fragmentation
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support import rounding
from memdiag.analyzers.support.context import Context
from memdiag.trace.layout import Layout
from tests.analyzers.heaps import MIB, Heap

PAGE = 2 * MIB - 512  # bytes that an NPU leaves unused after a block of a multiple of 2 MiB


def findings(trace, **options):
    return {finding.code: finding for finding in fragmentation.analyze(trace, Context(**options))}


def number(finding, words):
    return next(evidence.value for evidence in finding.evidence if words in evidence.what)


def test_rounding_to_powers_of_two_is_named_with_its_setting(heap):
    layout = Layout(divisions=(2,) * 16)
    for i in range(4):
        heap.segment(i * 200, 96 * MIB)
        heap.alloc(i * 200, 65 * MIB, where="odd3")
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "roundup_power2_divisions:2,max_split_size_mb:200"}
    found = findings(heap.trace(settings=settings, layout=layout))["MD203"]
    assert number(found, "allocated - requested bytes") == 4 * 31 * MIB
    assert number(found, "roundup_power2_divisions") == 4 * 31 * MIB
    assert number(found, "lost by rounding the requests of 4 tensors") == 4 * 31 * MIB
    assert found.fixes[0].change == "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:200"


def test_exact_multiples_of_two_mib_cost_a_page_each_on_an_npu(heap):
    for i in range(40):
        heap.segment(i * 100, 32 * MIB)
        heap.alloc(i * 100, 30 * MIB, where="weight3")
    trace = heap.trace(backend="npu")
    found = findings(trace)["MD207"]
    assert number(found, "free bytes at the ends of the segments of these tensors") == 40 * PAGE
    assert (found.saving.low_bytes, found.saving.expected_bytes, found.saving.high_bytes) == (0, 80 * MIB, 80 * MIB)
    assert found.saving.basis == "estimated"
    assert "MD207" not in findings(heap.trace(backend="cuda"))


def test_tails_in_use_are_not_counted(heap):
    for i in range(40):
        heap.segment(i * 100, 32 * MIB)
        heap.alloc(i * 100, 30 * MIB, where="weight3")
        heap.alloc(i * 100 + 30 + 512 / MIB, 3 * MIB // 2)
    assert "MD207" not in findings(heap.trace(backend="npu"))


def test_rounding_codes_are_codes_of_fragmentation():
    assert set(rounding.CODES) <= set(fragmentation.CODES)


def _divisions():
    heap = Heap()
    for i in range(4):
        heap.segment(i * 200, 96 * MIB)
        heap.alloc(i * 200, 65 * MIB, where="model.py:31 forward")
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "roundup_power2_divisions:2,max_split_size_mb:200"}
    return build_report(heap.trace(settings=settings, layout=Layout(divisions=(2,) * 16)), replay=False).findings


def _tails():
    heap = Heap()
    for i in range(40):
        heap.segment(i * 100, 32 * MIB)
        heap.alloc(i * 100, 30 * MIB, where="linear.py:103 __init__")
    return build_report(heap.trace(backend="npu"), replay=False).findings


PAGE_EXAMPLES = {
    "MD203": _divisions,
    "MD207": _tails,
}
