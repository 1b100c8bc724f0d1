"""The reference allocator reproduces the recordings of the real ones, row by row."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.allocator.reference import Reference
from tests.allocator.reference_npu import NpuReference
from tests.allocator.rows import COUNTERS, OUT_OF_MEMORY, SHARED, UNDEFINED, calls, expected, run

CUDA, NPU = sorted((SHARED / "oracle").glob("*.npz")), sorted((SHARED / "oracle-npu").glob("*.npz"))
EVERY = bool(os.environ.get("MEMDIAG_TEST_EVERY_ROW"))
MANY = 10**9 if EVERY else 1500  # the later rows of a file add little coverage


def cases(files, num_settings):
    return [(path, k) for at, path in enumerate(files) for k in (range(num_settings) if EVERY else [at % num_settings])]


def name(value):
    return value.stem if isinstance(value, Path) else str(value)


@pytest.mark.skipif(not CUDA, reason="the recorded rows (../shared/data/oracle) are not here")
@pytest.mark.parametrize(("path", "setting"), cases(CUDA, 10), ids=name)
def test_cuda(path, setting):
    recorded = np.load(path)
    if f"{setting}/status" not in recorded:
        pytest.skip("this setting was not recorded")
    allocator = Reference(int(recorded["total"]), str(recorded["confs"][setting]), done=str(recorded["done"]))
    found = np.array(list(run(allocator, calls(recorded)[:MANY])), np.int64)
    if found[-1, 0] == UNDEFINED:
        found = found[:-1]
    wanted = {column: values[: len(found)] for column, values in expected(recorded, setting).items()}
    placed = found[:, 1] >= 0
    assert (found[:, 0] == wanted["status"]).all()
    assert (found[placed, 1:3] == np.column_stack([wanted["seg"], wanted["off"]])[placed]).all()
    assert (found[:, 4:] == np.column_stack([wanted[column] for column in COUNTERS])).all()


@pytest.mark.skipif(not NPU, reason="the recorded rows (../shared/data/oracle-npu) are not here")
@pytest.mark.parametrize(("path", "setting"), cases(NPU, 9), ids=name)
def test_npu(path, setting):
    recorded = np.load(path)
    allocator = NpuReference(int(recorded["total"]), str(recorded["confs"][setting]))
    lowest, found = allocator.device.next_address, []
    for call, row in zip(calls(recorded)[:MANY], run(allocator, calls(recorded)[:MANY]), strict=True):
        block = allocator.live.get(call.tensor)
        found.append(
            (row[0] == OUT_OF_MEMORY, block.segment.base + block.off - lowest if row[1] >= 0 else -1, row[4], row[5])
        )
    wanted = np.column_stack(
        [recorded[f"{setting}/{column}"][: len(found)] for column in ("oom", "addr", "reserved", "allocated")]
    )
    assert ((found == wanted) | (wanted < 0)).all()
