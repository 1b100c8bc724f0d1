"""torch's own CUDA allocator on the phantom device does what was recorded of it: every address, every byte, every failure."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cuda_stand_in import needs_torch, run

ROWS = Path(__file__).parents[3] / "shared/data/oracle"
FILES = sorted(ROWS.glob("*.npz"))
NUM_SETTINGS = 10
EVERY = bool(os.environ.get("MEMDIAG_TEST_EVERY_ROW"))
FIELDS = ["seg", "off", "reserved", "allocated", "active", "requested", "retries", "ooms", "device_allocs", "device_frees"]
CASES = [(path, setting) for at, path in enumerate(FILES) for setting in (range(NUM_SETTINGS) if EVERY else [at % NUM_SETTINGS])]

pytestmark = [needs_torch, pytest.mark.skipif(not FILES, reason="the recorded rows (../shared/data/oracle) are not here")]


@pytest.mark.parametrize(("path", "setting"), CASES, ids=lambda value: value.stem if isinstance(value, Path) else str(value))
def test_every_row_comes_out(path, setting, tmp_path):
    expected = np.load(path)
    if f"{setting}/status" not in expected:
        pytest.skip("this setting was not recorded")
    given, out = tmp_path / "given.npz", tmp_path / "out.npz"
    np.savez(given, **{name: expected[name] for name in ("op", "id", "size", "stream", "ops")})
    done = run(
        [Path(__file__).with_name("programs") / "replay_cuda.py", given, out], tmp_path,
        device=f"cuda:h100-80g,total={int(expected['total'])},context=0",
        PYTORCH_CUDA_ALLOC_CONF=str(expected["confs"][setting]), MEMDIAG_PHANTOM_EVENTS=str(expected["done"]),
    )  # fmt: skip
    if "not from Python" in done.stderr:
        pytest.skip("a private pool of one stream cannot be had from Python")
    assert done.returncode == 0, done.stderr[-2000:]
    found = np.load(out)
    assert (found["status"] == expected[f"{setting}/status"]).all()
    for field in FIELDS:
        different = np.nonzero(found[field] != np.cumsum(expected[f"{setting}/{field}"]))[0]
        assert not len(different), f"{field}: {len(different)} rows differ, the first is {different[0]}"
