"""A message and a trace of the same failure never disagree.

Random failures are expressed in two ways: as the message that PyTorch would print, read by ``memdiag oom``, and as the
facts in a trace. For recorded failures, the message is made from the numbers of the trace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memdiag.analyzers.support.failure_cause import facts_of
from memdiag.analyzers.support.failures import every_failure
from memdiag.diagnosis.classifier import classify
from memdiag.diagnosis.facts import Facts
from memdiag.oom.read import read_text
from memdiag.sources import load
from memdiag.trace.model import Trace
from memdiag.units import GIB, KIB, MIB

QUARTER = GIB // 4  # printed without rounding
GOLDENS = sorted(path.parent.name for path in (Path(__file__).parents[1] / "goldens").glob("*-oom*/snapshot.pickle"))
MOST_FAILURES = 3  # per device


@dataclass(frozen=True)
class Failure:
    """One failed allocation of a process on a device, in bytes."""

    request: int
    total: int
    free: int
    live: int
    pieces: int  # free blocks of the default pool
    pool: int  # free blocks of private pools
    own: int  # memory of this process outside the allocator
    limit: int | None
    has_processes: bool

    @property
    def segment(self) -> int:
        """Size of the driver request."""
        if self.request <= MIB:
            return 2 * MIB
        return 20 * MIB if self.request < 10 * MIB else -(-self.request // (2 * MIB)) * 2 * MIB

    @property
    def reserved(self) -> int:
        return self.live + self.pieces + self.pool

    @property
    def others(self) -> int:
        return self.total - self.free - self.reserved - self.own

    def message(self) -> str:
        """Returns the text of PyTorch 2.5 and later."""
        text = (
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {printed(self.segment)}. GPU 0 has a total "
            "capacity of "
        )
        text += f"{printed(self.total)} of which {printed(self.free)} is free. "
        if self.has_processes:
            text += f"Process 77 has {printed(self.others)} memory in use. " if self.others else ""
            text += (
                f"Including non-PyTorch memory, this process has {printed(self.reserved + self.own)} memory in use. "
            )
        text += f"{printed(self.limit)} allowed; " if self.limit else ""
        text += f"Of the allocated memory {printed(self.live + self.pool)} is allocated by PyTorch, "
        text += f"with {printed(self.pool)} allocated in private pools (e.g., CUDA Graphs), " if self.pool else ""
        return text + f"and {printed(self.pieces)} is reserved by PyTorch but unallocated."

    def trace(self, *, total: bool = True) -> Facts:
        """Returns the facts in a trace: none about limits and other processes."""
        return Facts(
            request=self.request,
            requested=self.segment,
            total=self.total if total else None,
            free=self.free,
            reserved=self.reserved,
            allocated=self.live + self.pool,
            slack=self.pieces,
            pool=self.pool,
            is_printed=False,
            is_counted=True,
        )


def printed(size: int) -> str:
    """Returns a size as PyTorch prints it."""
    if size <= KIB:
        return f"{size} bytes"
    if size <= MIB:
        return f"{size / KIB:.2f} KiB"
    return f"{size / MIB:.2f} MiB" if size <= GIB else f"{size / GIB:.2f} GiB"


@st.composite
def failures(draw: st.DrawFn, unit: int) -> Failure:
    """Draws failures that PyTorch could report: the driver lacked memory for the segment, or a limit was reached."""
    total = draw(st.integers(8 * GIB // unit, 192 * GIB // unit)) * unit
    cuts = sorted(draw(st.lists(st.integers(0, total // unit), min_size=5, max_size=5)))
    sizes = [(high - low) * unit for low, high in zip([0, *cuts], [*cuts, total // unit], strict=True)]
    free, live, pieces, pool, own, _ = draw(st.permutations(sizes))
    if draw(st.booleans()):
        live, pool = live + pool, 0
    request = draw(st.integers(1, total * 5 // 4 // unit)) * unit
    if unit == 1 and draw(st.booleans()):
        request = draw(st.integers(1, 64 * MIB))
    failure = Failure(-(-request // 512) * 512, total, free, live, pieces, pool, own, None, draw(st.booleans()))
    if draw(st.booleans()):
        failure = replace(failure, limit=draw(st.integers(failure.reserved // unit, total // unit)) * unit)
    assume(free < failure.segment or (failure.limit is not None and failure.reserved + failure.segment > failure.limit))
    return failure


def read(failure: Failure):
    """Returns the facts in the message of a failure, and its verdict."""
    [message] = read_text(failure.message()).messages
    return Facts.from_fields(message.fields, message.backend, message.framework), message.judgement


def joined(facts: Facts, failure: Failure) -> Facts:
    """Returns the facts of a trace with those that only the message prints."""
    counted = failure.trace()
    names = ("request", "requested", "free", "reserved", "allocated", "slack", "pool", "is_counted")
    return replace(facts, **{name: getattr(counted, name) for name in names})


@given(failures(QUARTER))
@settings(max_examples=200)
def test_the_same_numbers_give_the_same_verdict(failure):
    facts, text = read(failure)
    assert (facts.free, facts.total, facts.slack, facts.live) == (
        failure.free,
        failure.total,
        failure.pieces,
        failure.live,
    )
    both = classify(joined(facts, failure))
    assert (both.verdict, both.rule) == (text.verdict, text.rule)


@given(failures(1))
@settings(max_examples=200)
def test_message_and_trace_are_never_sure_of_different_causes(failure):
    facts, text = read(failure)
    both = classify(joined(facts, failure))
    alone, without_total = classify(failure.trace()), classify(failure.trace(total=False))
    verdicts = {one.verdict for one in (text, both, alone, without_total) if one.confidence == "high"}
    assert len(verdicts) <= 1, (text, both, alone, without_total)


@given(failures(QUARTER))
@settings(max_examples=200)
def test_a_trace_that_lacks_nothing_gives_the_verdict_of_the_message(failure):
    failure = replace(failure, limit=None, has_processes=False)
    assume(failure.free < failure.segment)
    _, text = read(failure)
    alone = classify(failure.trace())
    assert alone.verdict == text.verdict, (text, alone)


def message_of(facts: Facts, total: int, backend: str) -> str:
    """Returns the message that PyTorch prints for a failure on a device of ``total`` bytes."""
    assert facts.requested is not None
    assert facts.free is not None
    assert facts.reserved is not None
    assert facts.allocated is not None
    unused = printed(facts.reserved - facts.allocated)
    if backend == "npu":
        text = (
            f"RuntimeError: NPU out of memory. Tried to allocate {printed(facts.requested)} (NPU 0; {printed(total)} "
            "total capacity; "
        )
        text += (
            f"{printed(facts.allocated)} already allocated; {printed(facts.allocated + facts.pending)} current active; "
        )
        return text + f"{printed(facts.free)} free; {printed(facts.reserved)} reserved in total by PyTorch)"
    text = (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {printed(facts.requested)}. GPU 0 has a total "
        "capacity of "
    )
    text += (
        f"{printed(total)} of which {printed(facts.free)} is free. Of the allocated memory {printed(facts.allocated)} "
    )
    text += "is allocated by PyTorch, "
    text += f"with {printed(facts.pool)} allocated in private pools (e.g., CUDA Graphs), " if facts.pool else ""
    return text + f"and {unused} is reserved by PyTorch but unallocated."


def compare(trace: Trace) -> int:
    """Compares message and trace for each failure of a trace, on two device sizes; returns the number of failures."""
    compared = 0
    for device in trace.devices:
        for failure in every_failure(trace, device.device)[:MOST_FAILURES]:
            facts = facts_of(failure)
            if failure.free_bytes < 0 or facts.free is None or facts.reserved is None:
                continue
            alone = classify(facts)
            smallest = facts.reserved + facts.free
            for total in {facts.total} if facts.total else {smallest, smallest + GIB // 2, 2 * smallest + 20 * GIB}:
                [message] = read_text(message_of(facts, total, facts.backend)).messages
                sure = {one.verdict for one in (message.judgement, alone) if one.confidence == "high"}
                assert len(sure) <= 1, (total, message.judgement, alone)
                if total == smallest and not facts.pending:  # no memory outside the allocator, so the trace is complete
                    allowed = {message.judgement.verdict, *message.judgement.alternatives}
                    assert alone.verdict == message.judgement.verdict or (
                        alone.rule == "refused" and alone.verdict in allowed
                    ), (
                        message.judgement,
                        alone,
                    )
                compared += 1
    return compared


@pytest.mark.parametrize("name", GOLDENS)
def test_goldens(goldens, name):
    assert compare(load(goldens / name / "snapshot.pickle"))


def test_a_dump_of_torch_npu(shared):
    files = sorted((Path(shared) / "data" / "npu-samples" / "oom").glob("*.pickle"))
    if not files:
        pytest.skip("needs npu-samples/oom in ../shared/data")
    assert sum(compare(load(file)) for file in files)
