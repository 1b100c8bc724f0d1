"""The engine reproduces every recorded row of the real allocators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.allocator.recorded_rows import failing_rows, files, workload_of


@pytest.mark.parametrize(("folder", "policy"), [("oracle", "caching"), ("oracle-npu", "npu")])
def test_every_row_of_the_real_allocators(shared: Path, folder: str, policy: str) -> None:
    paths = files(shared / "data" / folder)
    assert paths, f"no recorded rows in {folder}"
    failures = []
    for path in paths:
        recorded = np.load(path)
        work = workload_of(recorded)
        for setting, conf in enumerate(recorded["confs"].tolist()):
            rows, words = failing_rows(recorded, setting, work, policy)
            if len(rows):
                failures.append(f"{path.name} {conf!r}: {len(rows)} rows; {words}")
    assert failures == []
