"""torch_npu's own allocator on the phantom NPU does what it did on another stand-in: every address, every byte, every failure."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from npu_stand_in import PROGRAMS, needs_npu, on_phantom

ROWS = Path(__file__).parents[3] / "shared/data/oracle-npu"
FILES = sorted(ROWS.glob("*.npz"))
NUM_SETTINGS = 9
EVERY = bool(os.environ.get("MEMDIAG_TEST_EVERY_ROW"))  # 126 runs of torch_npu instead of 4

pytestmark = [
    needs_npu,
    pytest.mark.skipif(not FILES, reason="the recorded rows (../shared/data/oracle-npu) are not here"),
]

SOME = [(path, at % NUM_SETTINGS) for at, path in enumerate(FILES)][::4]
CASES = [(path, setting) for path in FILES for setting in range(NUM_SETTINGS)] if EVERY else SOME


@pytest.mark.parametrize(("path", "setting"), CASES, ids=lambda value: value.stem if isinstance(value, Path) else str(value))
def test_every_row_comes_out(path, setting, tmp_path):
    expected = np.load(path)
    if f"{setting}/oom" not in expected:
        pytest.skip("this setting was not recorded")
    given, out = tmp_path / "given.npz", tmp_path / "out.npz"
    np.savez(given, op=expected["op"], id=expected["id"], size=expected["size"])
    device = f"npu:910b-64g,total={int(expected['total'])},context=0"
    conf = str(expected["confs"][setting])
    done = on_phantom(device, PROGRAMS / "replay.py", given, out, cwd=tmp_path, PYTORCH_NPU_ALLOC_CONF=conf)
    assert done.returncode == 0, done.stderr[-2000:]
    failed, address, reserved, allocated = np.load(out)["rows"].T
    used = expected["op"] == 0
    lowest = address[address >= 0].min()
    assert (failed == expected[f"{setting}/oom"]).all()
    assert (np.where(address >= 0, address - lowest, -1)[used] == expected[f"{setting}/addr"][used]).all()
    for column, name in ((reserved, "reserved"), (allocated, "allocated")):
        known = expected[f"{setting}/{name}"] >= 0
        assert (column[known] == expected[f"{setting}/{name}"][known]).all()
