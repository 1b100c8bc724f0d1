import pytest

from memdiag.analyzers import settings as analyzer
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context
from memdiag.sources import load
from memdiag.trace.layout import Layout
from tests.analyzers.heaps import MIB, Heap

GIB = 1 << 30


def findings(trace):
    return {finding.code: finding for finding in analyzer.analyze(trace, Context())}


@pytest.fixture
def plain(heap):
    """Returns a heap on which no setting has an effect."""
    heap.segment(0, 20 * MIB)
    heap.alloc(0, 5 * MIB)
    heap.segment(100, 64 * MIB)
    heap.alloc(100, 64 * MIB)
    return heap


def cuda(heap, text, layout=None, **values):
    return heap.trace(settings={"PYTORCH_CUDA_ALLOC_CONF": text, **values}, layout=layout)


def npu(heap, text, layout=None):
    return heap.trace(backend="npu", settings={"PYTORCH_NPU_ALLOC_CONF": text}, layout=layout)


def test_no_settings_no_findings(plain):
    assert findings(plain.trace()) == {}
    assert findings(cuda(plain, "")) == {}


def test_expandable_segments_that_never_came(plain):
    found = findings(cuda(plain, "expandable_segments:True", expandable_segments=True))["MD601"]
    assert found.severity == "warning"
    assert found.evidence[0].value == "expandable_segments:True"
    assert "none of 2 segments" in found.evidence[0].what
    assert found.fixes[0].change == "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def test_expandable_segments_in_effect(heap):
    heap.segment(0, 20 * MIB, expandable=True)
    heap.alloc(0, 20 * MIB)
    assert findings(cuda(heap, "expandable_segments:True", expandable_segments=True)) == {}


@pytest.mark.parametrize(("megabytes", "has_effect"), [(64, True), (65, False)])
def test_max_split_size_needs_a_segment_as_large(plain, megabytes, has_effect):
    trace = cuda(
        plain,
        f"max_split_size_mb:{megabytes}",
        layout=Layout(max_split=megabytes * MIB),
        max_split_size=megabytes * MIB,
    )
    found = findings(trace)
    assert ("MD601" not in found) == has_effect
    if not has_effect:
        assert found["MD601"].severity == "info"
        assert "64.00 MiB" in found["MD601"].evidence[0].what
        assert found["MD601"].fixes[0].change == "unset PYTORCH_CUDA_ALLOC_CONF"


def test_divisions_that_round_nothing_differently(plain):
    found = findings(cuda(plain, "roundup_power2_divisions:4", layout=Layout(divisions=(4,) * 16)))["MD601"]
    assert "all 2 distinct request sizes" in found.evidence[0].what


def test_divisions_that_round_something_differently(plain):
    plain.segment(300, 40 * MIB)
    plain.alloc(300, 33 * MIB)
    assert findings(cuda(plain, "roundup_power2_divisions:4", layout=Layout(divisions=(4,) * 16))) == {}


def test_a_collection_threshold_without_any_release(plain):
    found = findings(cuda(plain, "garbage_collection_threshold:0.8"))["MD601"]
    assert "memory limit" in found.evidence[0].what


def test_a_collection_threshold_with_releases(heap):
    heap.segment(0, 100 * MIB)
    heap.alloc(0, 100 * MIB)
    heap.free(0, 100 * MIB)
    heap.release(0, 100 * MIB, where="f3")
    heap.segment(200, 110 * MIB, where="f3")
    heap.alloc(200, 110 * MIB, where="f3")
    assert findings(cuda(heap, "garbage_collection_threshold:0.8")) == {}


def test_a_misspelt_key_gets_a_corrected_line(plain):
    found = findings(cuda(plain, "expandeable_segments:True,max_split_size_mb:64", layout=Layout(max_split=64 * MIB)))[
        "MD602"
    ]
    assert found.evidence[0].what == "unknown key; did you mean expandable_segments?"
    assert found.fixes[0].change == "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True"


def test_a_key_of_another_backend(plain):
    found = findings(cuda(plain, "page_size:1g"))["MD602"]
    assert found.evidence[0].what == "this key belongs to another backend"
    assert found.fixes[0].change == "unset PYTORCH_CUDA_ALLOC_CONF"


def test_a_variable_of_another_backend(plain):
    found = findings(plain.trace(backend="npu", settings={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}))
    assert found["MD602"].evidence[-1].where == "PYTORCH_CUDA_ALLOC_CONF"


@pytest.mark.parametrize("backend", analyzer.KEYS)
def test_known_keys_are_not_reported_as_unknown(plain, backend):
    variable = {"cuda": "PYTORCH_CUDA_ALLOC_CONF", "npu": "PYTORCH_NPU_ALLOC_CONF"}[backend]
    text = ",".join(f"{key}:1" for key in analyzer.KEYS[backend])
    assert "MD602" not in findings(plain.trace(backend=backend, settings={variable: text}))


def test_what_an_npu_cannot_combine(plain):
    found = findings(npu(plain, "expandable_segments:True,garbage_collection_threshold:0.8"))["MD603"]
    assert found.severity == "warning"
    assert found.fixes[0].change == "export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True"


def test_max_split_beside_expandable_segments_is_for_information_on_cuda(heap):
    heap.segment(0, 20 * MIB, expandable=True)
    heap.alloc(0, 20 * MIB)
    found = findings(cuda(heap, "expandable_segments:True,max_split_size_mb:128"))
    assert found["MD603"].severity == "info"
    assert "MD601" not in found


def test_keys_that_an_npu_reads_in_expandable_mode_only(plain):
    found = findings(npu(plain, "segment_size_mb:128"))["MD601"]
    assert "only with expandable_segments" in found.evidence[0].what


def test_pages_of_one_gib_that_never_came(plain):
    assert "1 GiB" in findings(npu(plain, "page_size:1g"))["MD601"].evidence[0].what
    plain.segment(4000, GIB)
    plain.alloc(4000, 500 * MIB)
    assert "MD601" not in findings(npu(plain, "page_size:1g"))


def test_another_allocator_altogether(plain):
    found = findings(cuda(plain, "backend:cudaMallocAsync"))
    assert set(found) == {"MD604"}
    assert found["MD604"].fixes[0].change == "unset PYTORCH_CUDA_ALLOC_CONF"


def test_the_first_variable_that_is_set_wins(plain):
    trace = plain.trace(
        settings={"PYTORCH_ALLOC_CONF": "max_split_size_mb:30", "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:40"}
    )
    settings = AllocatorSettings.of(trace)
    assert (settings.variable, settings.keys) == ("PYTORCH_CUDA_ALLOC_CONF", {"max_split_size_mb": "40"})
    assert AllocatorSettings.of(
        plain.trace(settings={"PYTORCH_ALLOC_CONF": "a:1", "PYTORCH_CUDA_ALLOC_CONF": ""})
    ).keys == {"a": "1"}


def test_nothing_said_is_not_the_same_as_nothing_set(plain):
    assert not AllocatorSettings.of(plain.trace()).is_known
    assert AllocatorSettings.of(cuda(plain, "")).is_known


def test_what_the_report_says_of_settings(heap):
    heap.segment(0, 20 * MIB, expandable=True)
    heap.alloc(0, 20 * MIB)
    assert analyzer.settings_in_effect(heap.trace(backend="npu")) == {"seen": {"expandable_segments": True}}
    assert analyzer.settings_in_effect(heap.trace(segments=None, backend="npu"))["seen"] == {
        "expandable_segments": True
    }


def test_recorded_settings(goldens):
    assert findings(load(goldens / "cuda-2.13.0-expandable" / "snapshot.pickle")) == {}
    assert findings(load(goldens / "cuda-2.13.0-max-split" / "snapshot.pickle")) == {}
    assert findings(load(goldens / "cuda-2.13.0-roundup" / "snapshot.pickle")) == {}


def _set(text):
    """Returns the findings on the allocator settings of a small program."""
    heap = Heap()
    heap.segment(0, 20 * MIB)
    heap.alloc(0, 5 * MIB, where="model.py:31 forward")
    heap.segment(100, 64 * MIB, expandable=text.startswith("expandable"))
    heap.alloc(100, 64 * MIB, where="model.py:31 forward")
    layout = Layout(max_split=512 * MIB if "max_split" in text else None)
    trace = heap.trace(settings={"PYTORCH_CUDA_ALLOC_CONF": text}, layout=layout)
    return analyzer.analyze(trace, Context())


PAGE_EXAMPLES = {
    "MD601": lambda: _set("max_split_size_mb:512"),
    "MD602": lambda: _set("expandeable_segments:True"),
    "MD603": lambda: _set("expandable_segments:True,max_split_size_mb:512"),
    "MD604": lambda: _set("backend:cudaMallocAsync"),
}
