"""``--would-fit`` answers how a request would be served: from cache, with a new segment, after a retry, or not."""

from __future__ import annotations

import dataclasses
import json

import pytest

from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.moments import look
from memdiag.analyzers.support.would_fit import answer, answers
from memdiag.render.analyze import full as terminal
from memdiag.render.analyze import json as json_form
from memdiag.render.analyze import md as markdown
from memdiag.render.analyze import terminal as summary
from memdiag.sources import load
from memdiag.text import in_language
from memdiag.trace.card import Card, MemorySample
from memdiag.trace.layout import Layout
from tests.analyzers.page_examples import golden

MIB = 1 << 20


def on_card(trace, capacity=None, outside=None, fraction=None):
    """Returns the trace on a device of this many MiB, with the given memory outside the allocator."""
    samples = () if outside is None else (MemorySample("end", 0, 1000 * MIB, (1000 - outside) * MIB, 0),)
    known = {"capacity_bytes": None if capacity is None else capacity * MIB, "card": Card(samples, fraction)}
    return dataclasses.replace(trace, devices=(dataclasses.replace(trace.devices[0], **known),))


def asked(trace, mib, at="end"):
    [found] = answers(trace, Context(at=at), int(mib * MIB))
    return found


@pytest.fixture
def crossed(heap):
    """A trace with 72 MiB reserved: 12 and 18 MiB free around 10 MiB, and 32 MiB cached for another stream."""
    heap.segment(0, 40 * MIB)
    heap.alloc(0, 12 * MIB, where="f1")
    heap.alloc(12, 10 * MIB, where="f2")
    heap.alloc(22, 18 * MIB, where="f3")
    heap.segment(100, 32 * MIB, stream=7)
    heap.alloc(100, 32 * MIB, stream=7, where="f4")
    heap.free(100, 32 * MIB, stream=7)
    heap.free(0, 12 * MIB)
    heap.free(22, 18 * MIB)
    heap.segment(200, 2 * MIB)
    heap.alloc(200, 1000, where="f5")
    heap.segment(300, 20 * MIB)
    heap.alloc(300, 20 * MIB, where="f6")  # the reference request: large blocks, default stream
    return heap.trace()


def test_it_fits_into_a_free_block_of_its_pool_and_stream(crossed):
    found = asked(crossed, 18)
    assert (found.answer, found.largest_free_bytes, found.num_free, found.free_bytes) == (
        "cache",
        18 * MIB,
        2,
        30 * MIB,
    )
    assert found.shortfall_bytes == 0
    assert found.explanation.startswith("Yes, in cached memory: at the end")


def test_free_blocks_of_other_streams_do_not_count_and_an_unknown_card_leaves_it_open(crossed):
    found = asked(crossed, 20)
    assert (found.answer, found.largest_free_shortfall_bytes, found.shortfall_bytes, found.driver_free_bytes) == (
        "unknown",
        2 * MIB,
        None,
        None,
    )
    assert (found.closest_range_bytes, found.blocking_bytes, found.blocking_tensors) == (
        22 * MIB,
        10 * MIB,
        ("10.00 MiB train.py:2 f2",),
    )


@pytest.mark.parametrize(
    ("capacity", "outside", "expected", "missing"),
    [
        (94 + 24, 0, "segment", 0),  # 94 MiB are reserved
        (94 + 24, None, "segment", 0),
        (94 + 23, 0, "retry", 0),  # the 32 MiB of the other stream are released
        (94 + 24, 1, "retry", 0),
        (94, 0, "retry", 0),
        (94, 9, "retry", 0),
    ],
)
def test_the_driver_gives_a_segment_at_once_or_after_a_retry(crossed, capacity, outside, expected, missing):
    found = asked(on_card(crossed, capacity, outside), 24)
    assert (found.answer, found.new_segment_bytes, found.released_bytes, found.shortfall_bytes) == (
        expected,
        24 * MIB,
        32 * MIB,
        missing,
    )


def test_it_does_not_fit_and_the_missing_bytes_are_named(crossed):
    found = asked(on_card(crossed, 94 + 10, 0), 50)
    assert (found.answer, found.shortfall_bytes) == ("no", 8 * MIB)
    assert "8.00 MiB would be missing" in found.explanation
    assert (found.closest_range_bytes, found.blocking_tensors) == (0, ())
    assert any("No segment of this pool" in detail for detail in found.details)


def test_the_memory_fraction_of_the_process_counts(crossed):
    assert asked(on_card(crossed, 200, 0), 50).answer == "segment"
    assert asked(on_card(crossed, 200, 0, 0.5), 50).answer == "no"  # limit 100 MiB: 6 MiB left, a retry releases 32


def test_memory_outside_the_allocator_that_was_not_recorded_makes_it_an_upper_bound(crossed):
    assert any("at most" in detail for detail in asked(on_card(crossed, 200), 50).details)
    assert not any("at most" in detail for detail in asked(on_card(crossed, 200, 0), 50).details)


def test_a_block_that_waits_for_a_stream_is_released_by_a_retry(heap):
    heap.segment(0, 40 * MIB)
    heap.alloc(0, 40 * MIB)
    heap.free(0, 40 * MIB, pending=True)
    found = asked(on_card(heap.trace(), 60, 0), 50)
    assert (found.answer, found.free_bytes, found.released_bytes) == ("retry", 0, 40 * MIB)


def test_an_expandable_segment_grows_by_what_is_missing_at_its_end(heap):
    heap.segment(0, 40 * MIB, expandable=True)
    heap.alloc(0, 24 * MIB)
    found = asked(on_card(heap.trace(), 60, 0), 30)  # 16 MiB free at its end, so 14 more: a page of 20
    assert (found.answer, found.new_segment_bytes) == ("segment", 20 * MIB)


def test_the_size_is_rounded_as_the_recorded_settings_do(heap):
    heap.segment(0, 40 * MIB)
    heap.alloc(0, 40 * MIB)
    heap.free(0, 40 * MIB)
    plain, divided = heap.trace(), heap.trace(layout=Layout(divisions=(0,) * 4 + (4,) + (0,) * 11))
    assert asked(plain, 17).rounded_request_bytes == 17 * MIB
    assert asked(divided, 17).rounded_request_bytes == 20 * MIB
    assert asked(heap.trace(backend="npu"), 17).rounded_request_bytes == 17 * MIB + 512


def test_a_block_that_may_not_be_split_does_not_serve_a_smaller_tensor(heap):
    heap.segment(0, 40 * MIB)
    heap.alloc(0, 40 * MIB)
    heap.free(0, 40 * MIB)
    trace = heap.trace(layout=Layout(max_split=32 * MIB))
    assert asked(on_card(trace, 40, 0), 10).answer == "retry"  # the allocator does not split large blocks for it
    assert asked(on_card(trace, 40, 0), 36).answer == "cache"


def test_at_a_failure_the_failed_size_does_not_fit_and_the_driver_says_what_it_had(root):
    trace = load(root / "tests/goldens/cuda-2.13.0-oom/snapshot.pickle")
    found = asked(trace, 13, at="oom")
    assert (found.answer, found.shortfall_bytes, found.largest_free_bytes, found.driver_free_bytes) == (
        "no",
        12 * MIB,
        3 * MIB,
        2 * MIB,
    )
    assert asked(trace, 3, at="oom").answer == "cache"


def test_the_requests_of_a_recording_fit_as_the_allocator_served_them(root):
    """Before each recorded request, the answer is "cache" exactly if the real allocator reserved no segment for it."""
    trace = load(root / "tests/goldens/cuda-2.13.0-train/snapshot.pickle")
    device, settings = trace.devices[0], AllocatorSettings.of(trace)
    [view] = Context(at="end").views(trace)
    references = device.references
    checked = 0
    for row in range(len(references)):
        opened, served = int(references.opened_at[row]), int(references.at_event[row])
        if opened < 1 or references.failed[row] or opened == served:
            continue
        here = look(dataclasses.replace(view, at=opened - 1, kind="event"), settings)
        group = int(references.group[row])
        if int(device.groups.stream[here.group]) == int(device.groups.stream[group]):
            assert answer(here, int(references.size[row])).answer != "cache"
            checked += 1
    assert checked


def test_every_form_of_the_report_begins_with_the_answer(crossed):
    report = build_report(crossed, at="end", replay=False, fitting=18 * MIB)
    for text in (summary.render(report), terminal.render(report), markdown.render(report)):
        assert "Would a tensor of 18.00 MiB fit?" in text.splitlines()[0]
        assert "Yes, in cached memory" in text.split("\n", 4)[1] + text.split("\n", 4)[2]
    [found] = json.loads(json_form.render(report))["would_fit"]
    assert (found["answer"], found["requested_bytes"], found["rounded_request_bytes"]) == ("cache", 18 * MIB, 18 * MIB)
    assert "would_fit" not in json.loads(json_form.render(build_report(crossed, at="end", replay=False)))


def test_a_file_without_addresses_leaves_it_open(crossed):
    blind = dataclasses.replace(crossed, devices=(dataclasses.replace(crossed.devices[0], has_addresses=False),))
    assert asked(blind, 1).answer == "unknown"
    assert in_language(asked(blind, 1).explanation, "zh").startswith("未知")


PAGE_EXAMPLES = {
    "MD208": lambda: golden("cuda-2.13.0-max-split"),
}
