"""Messages joined with recorded failures."""

from pathlib import Path

import numpy as np
import pytest

from memdiag.analyzers.support.joined import join
from memdiag.sources import load
from memdiag.trace import schema
from memdiag.units import MIB
from tests.analyzers.joined_messages import joined, parts, says

OOM_GOLDENS = [
    "cuda-2.11.0-oom",
    "cuda-2.13.0-oom",
    "cuda-2.13.0-oom-dump",
    "cuda-2.14.1-oom",
    "cuda-2.15.0-oom",
    "npu-2.13.0-oom",
]


@pytest.mark.parametrize("name", OOM_GOLDENS)
def test_recorded_failures(goldens, name):
    folder = goldens / name
    trace = load(folder / "snapshot.pickle")
    [alone] = join(None, trace).messages
    device = trace.devices[0]
    at = int(np.flatnonzero(device.events.action == schema.OOM)[0])
    usage = device.usage_at(at)
    # The ledger splits reserved memory to the byte.
    mine = [entry.bytes for entry in alone.ledger if entry.owner == "this process"]
    assert sum(mine) == usage["reserved"]
    assert alone.judgement.verdict == "fragmentation"
    if not (folder / "message.txt").exists():
        return
    [both] = joined((folder / "message.txt").read_text(), trace)
    assert says(both, f"(rounded) at event {at}", "Its numbers match the message: ")
    assert both.judgement.verdict == alone.judgement.verdict
    fixes = [fix for finding in both.findings for fix in finding.fixes]
    assert not [fix for fix in fixes if fix.kind == "record"]
    assert sum("expandable_segments:True" in fix.change for fix in fixes) == 1
    assert sum(entry.bytes for entry in both.ledger if entry.owner != "total") == parts(both)["total"] == 512 * MIB
    assert both.text.startswith(("CUDA out of memory", "NPU out of memory"))


def test_numbers_of_a_recorded_failure(goldens):
    """The report of a recorded failure has the numbers that were counted by hand in the snapshot.

    The snapshot has 8 free blocks of 3 MiB, each after blocks of at most 17 MiB in a segment of 20 MiB.
    """
    [one] = join(None, load(goldens / "cuda-2.13.0-oom" / "snapshot.pickle")).messages
    assert says(
        one,
        "24.00 MiB was free",
        "the requested 13.00 MiB",
        "free in 8 blocks. The largest is 3.00 MiB, 10.00 MiB too small",
    )
    assert says(
        one, "510.00 MiB reserved = 472.00 MiB requested by live tensors + 14.00 MiB lost to rounding + 24.00 MiB free"
    )


def test_a_dump_written_at_the_failure(shared):
    folder = Path(shared) / "data" / "npu-samples" / "oom"
    files = sorted(folder.glob("*.pickle"))
    if not files:
        pytest.skip("needs npu-samples/oom in ../shared/data")
    for file in files:
        [one] = join(None, load(file)).messages
        assert (one.framework, one.judgement.verdict, one.judgement.confidence) == ("torch_npu", "capacity", "medium")
        assert says(one, "the requested 100.00 MiB: 76.01 MiB is missing")
