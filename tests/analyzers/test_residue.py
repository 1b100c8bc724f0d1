"""Memory that a sleeping process keeps, when two processes take turns on a card (MD303)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import residue
from memdiag.analyzers.support.context import Context
from memdiag.trace import schema
from memdiag.trace.table import Table
from memdiag.units import MIB
from tests.analyzers.heaps import Heap

TOTAL = 10_000 * MIB


def turns(kept, *, high=5000, in_use=3000, heap=None):
    """Returns the trace of a process that sleeps once for each number of MiB that it keeps.

    In each sleep, another process uses ``in_use`` MiB.
    """
    heap, samples, extra = heap or Heap(), [], 0
    load, keep = ["engine.py:12 load_weights", "engine.py:40 wake_up"], ["engine.py:31 refit", "engine.py:52 sleep"]
    for number, size in enumerate(kept):
        at = 100_000 * (number + 1)
        heap.segment(at, high * MIB, where=load)
        heap.alloc(at, high * MIB, where=load)
        samples.append((len(heap.entries), high + extra, 0))
        if size > extra:
            heap.segment(at + 50_000, (size - extra) * MIB, where=keep)
            heap.alloc(at + 50_000, (size - extra) * MIB, where=keep)
            extra = size
        heap.free(at, high * MIB, where=keep)
        heap.release(at, high * MIB, where=keep)
        samples.append((len(heap.entries), extra, in_use))
    return with_samples(heap.trace(), samples)


def with_samples(trace, samples, own=512):
    """Returns a trace with samples: (event, reserved MiB, MiB of others); None for ``own``: no figures by process."""
    at, reserved, others = (np.array(column, np.int64) for column in zip(*samples, strict=True))
    unknown = np.full(len(at), -1, np.int64)
    columns = {
        "time_us": at,
        "when": np.full(len(at), schema.OCCASIONS.index("mark"), np.int8),
        "step": np.zeros(len(at), np.int64),
        "total": np.full(len(at), TOTAL),
        "free": TOTAL - (reserved + others + (own or 0)) * MIB,
        "reserved": reserved * MIB,
        "own": unknown if own is None else (reserved + own) * MIB,
        "others": unknown if own is None else others * MIB,
        "allocs": unknown,
        "frees": unknown,
        "at_event": at,
    }
    device = replace(trace.devices[0], samples=Table(schema.SAMPLES, columns))
    return replace(trace, devices=(device,))


def found(trace):
    return [finding for finding in residue.analyze(trace, Context()) if finding.code == "MD303"]


def test_memory_kept_in_sleep_that_grows_is_named_with_its_call_site():
    (finding,) = found(turns([411, 1160, 2500]))
    assert finding.severity == "warning"
    assert "2.94 GiB" in finding.title
    assert "2.04 GiB more than in the first of 3 sleeps" in finding.title
    evidence = {evidence.what: evidence.value for evidence in finding.evidence}
    assert evidence["memory of the card kept in the last sleep"] == (2500 + 512) * MIB
    assert evidence["memory of the card kept in the first sleep"] == (411 + 512) * MIB
    assert evidence["live tensors"] == 2500 * MIB
    assert any(":31 " in evidence.where for evidence in finding.evidence)


def test_a_process_that_releases_everything_is_not_reported():
    assert not found(turns([0, 0, 0]))


def test_a_constant_small_rest_is_for_information():
    (finding,) = found(turns([300, 300, 300]))
    assert (finding.severity, finding.title) == (
        "info",
        "While asleep, this process keeps 812.00 MiB of the card (3 sleeps)",
    )


def test_a_process_that_is_alone_on_its_card_does_not_sleep():
    assert not found(turns([411, 1160, 2500], in_use=0))


def test_without_figures_by_process_only_reserved_memory_counts():
    trace = turns([411, 1160, 2500])
    samples = trace.devices[0].samples
    unknown = np.full(len(samples), -1, np.int64)
    (finding,) = found(
        replace(trace, devices=(replace(trace.devices[0], samples=samples.replace(own=unknown, others=unknown)),))
    )
    evidence = {evidence.what: evidence.value for evidence in finding.evidence}
    assert evidence["memory of the card kept in the last sleep"] == 2500 * MIB


def test_free_memory_in_segments_that_cannot_be_released_is_told_apart():
    heap = Heap()
    heap.segment(0, 2000 * MIB, where="engine.py:5 start")
    heap.alloc(0, 10 * MIB, where="engine.py:5 start")
    (finding,) = found(turns([0, 0], heap=heap))
    evidence = {evidence.what: evidence.value for evidence in finding.evidence}
    assert evidence["free memory that the allocator did not release"] == 1990 * MIB
    assert "empty_cache" in finding.fixes[0].change


def test_a_trace_without_samples_has_no_sleeps():
    trace = turns([411, 1160, 2500])
    assert not found(replace(trace, devices=(replace(trace.devices[0], samples=Table.empty(schema.SAMPLES)),)))


def test_a_sleep_that_unmaps_memory_behind_pytorch_is_found_by_the_drivers_figures():
    """vLLM's CuMemAllocator unmaps weights and cache: PyTorch reserves 5000 MiB all the time."""
    heap, rows = Heap(), []
    heap.segment(0, 5000 * MIB, where="cumem.py:12 load")
    heap.alloc(0, 5000 * MIB, where="cumem.py:12 load")
    for turn, kept in enumerate((600, 900, 1500)):
        for own, others in ((5512, 0), (kept + 512, 3000)):
            rows.append((len(heap.entries), own, others))
            heap.segment(20_000 + 100 * len(rows), 2 * MIB, where="engine.py:7 other")
            heap.release(20_000 + 100 * len(rows), 2 * MIB)
        rows.append((len(heap.entries), 5512, 0))
        heap.alloc(10_000 + turn, 0)
    at, own, others = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    trace = with_samples(heap.trace(), [(event, 5000, other) for event, other in zip(at, others, strict=True)])
    samples = trace.devices[0].samples.replace(own=own * MIB, free=TOTAL - (own + others) * MIB)
    (finding,) = found(replace(trace, devices=(replace(trace.devices[0], samples=samples),)))
    evidence = {evidence.what: evidence.value for evidence in finding.evidence}
    assert evidence["number of sleeps"] == 3
    assert evidence["memory of the card kept in the last sleep"] == pytest.approx((1500 + 512) * MIB, abs=2 * MIB)
    assert evidence["reserved according to PyTorch, but unmapped from the card (sleep mode)"] == (5000 - 2012) * MIB
    assert "live tensors" not in evidence
    assert finding.title.endswith("in the first of 3 sleeps")


PAGE_EXAMPLES = {
    "MD303": lambda: found(turns([411, 1160, 2500])),
}
