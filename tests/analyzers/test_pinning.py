"""The analyzer finds the few live tensors that keep whole segments and pages from being released."""

from memdiag.analyzers import fragmentation
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.pinning import idle_by_group, pinned
from memdiag.sources import load
from memdiag.trace.layout import Layout

MIB = 1 << 20


def findings(trace, **options):
    return {finding.code: finding for finding in fragmentation.analyze(trace, Context(**options))}


def test_pieces_in_part_use_hold_what_is_stranded_or_foreign_or_fits(golden):
    trace = load(golden / "snapshot.pickle")
    settings = AllocatorSettings.of(trace)
    for view in Context().views(trace):
        device = view.device
        for at in range(0, device.num_events, max(device.num_events // 7, 1)):
            row = int(device.usage.reference[at])
            if row < 0:
                continue
            topology, group = device.topology(at), int(device.references.group[row])
            idle = idle_by_group(view, topology, settings)
            assert sum(size for other, size in idle.items() if other != group) == device.usage.foreign[at]
            assert idle.get(group, 0) >= device.usage.stranded[at]


def test_segments_pinned_by_few_bytes_are_ranked_by_what_would_come_free(heap):
    for i in range(6):
        where, kept = ("small3", 1) if i < 4 else ("large4", 3)
        heap.segment(i * 100, 42 * MIB, where="f1")
        heap.alloc(i * 100, (42 - kept) * MIB, where="f1")
        heap.alloc(i * 100 + 42 - kept, kept * MIB, where=where)
    for i in range(6):
        heap.free(i * 100, (41 if i < 4 else 39) * MIB)
    heap.segment(2000, 64 * MIB)
    heap.alloc(2000, 64 * MIB)
    found = findings(heap.trace())["MD202"]
    assert found.severity == "warning"
    assert found.weight_bytes == (4 * 41 + 2 * 39) * MIB
    pins = [evidence for evidence in found.evidence if "could be released" in evidence.what]
    assert [(pin.value, pin.where) for pin in pins] == [
        (164 * MIB, "train.py:3 small3"),
        (78 * MIB, "train.py:4 large4"),
    ]
    assert "4 segments that could be released without 4 tensors of 4.00 MiB" in pins[0].what
    assert "train.py:3 small3" in found.fixes[-1].title


def test_the_longest_lived_tensor_of_a_piece_is_its_pin(heap):
    heap.segment(0, 80 * MIB)
    heap.alloc(0, 70 * MIB)
    heap.alloc(70, 2 * MIB, where="short3")
    heap.alloc(72, 8 * MIB, where="long4")
    heap.free(0, 70 * MIB)
    heap.segment(200, 90 * MIB)
    at = heap.alloc(200, 90 * MIB)
    heap.free(70, 2 * MIB)
    trace = heap.trace()
    view = next(iter(Context(at=at).views(trace)))
    found = pinned(view, trace.devices[0].topology(at), AllocatorSettings.of(trace), -1, 0)
    assert [(pin.label, pin.held_bytes, pin.tensor_bytes) for pin in found.pins] == [
        ("train.py:4 long4", 70 * MIB, 8 * MIB)
    ]


def test_pages_of_expandable_segments_are_pinned_one_by_one(heap):
    heap.segment(0, 100 * MIB, expandable=True)
    heap.alloc(0, 30 * MIB)
    heap.alloc(30, 2 * MIB, where="pin3")
    heap.alloc(32, 68 * MIB)
    heap.free(0, 30 * MIB)
    last = heap.free(32, 68 * MIB)
    trace = heap.trace(layout=Layout(expandable=True))
    view = next(iter(Context(at=last).views(trace)))
    topology, settings = trace.devices[0].topology(last), AllocatorSettings.of(trace)
    found = pinned(view, topology, settings, -1, 0)
    # Pages of 20 MiB: the tensor is in the second page, which has 18 MiB free; the other four pages are cached.
    assert (found.pages, found.num_pieces, found.held_bytes, found.live_bytes) == (True, 1, 18 * MIB, 2 * MIB)
    assert idle_by_group(view, topology, settings) == {int(topology.segments["group"][0]): 18 * MIB}


def test_a_tensor_across_two_pages_pins_both(heap):
    heap.segment(0, 40 * MIB, expandable=True)
    heap.alloc(0, 18 * MIB)
    heap.alloc(18, 4 * MIB, where="pin3")
    heap.alloc(22, 18 * MIB)
    heap.free(0, 18 * MIB)
    last = heap.free(22, 18 * MIB)
    trace = heap.trace(layout=Layout(expandable=True))
    view = next(iter(Context(at=last).views(trace)))
    found = pinned(view, trace.devices[0].topology(last), AllocatorSettings.of(trace), -1, 0)
    assert (found.num_pieces, found.held_bytes) == (2, 36 * MIB)
    assert [(pin.num_tensors, pin.tensor_bytes, pin.num_pieces) for pin in found.pins] == [(1, 4 * MIB, 2)]


def test_a_snapshot_without_a_trace_still_shows_what_pins_what(shared):
    trace = load(shared / "data" / "snapshots" / "Felixburton7__voxelflex__dump_snapshot@95411eb0.pickle")
    assert trace.num_events == 0
    found = findings(trace)
    assert set(found) <= {"MD202"}
    assert found["MD202"].weight_bytes > 50 * MIB
