"""torch_npu's own allocator on the phantom NPU does what it did on another stand-in: every address, every byte, every failure."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from memdiag.phantom import launch
from memdiag.phantom.profiles import choose

ROWS = Path(__file__).parents[3] / "shared/data/oracle-npu"
FILES = sorted(ROWS.glob("*.npz"))
PYTHON = os.environ.get("MEMDIAG_TEST_NPU_PYTHON", "")
NUM_SETTINGS = 9
EVERY = bool(os.environ.get("MEMDIAG_TEST_EVERY_ROW"))  # 126 runs of torch_npu instead of 14

pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="MEMDIAG_TEST_NPU_PYTHON names no Python with torch_npu"),
    pytest.mark.skipif(not FILES, reason="the recorded rows (../shared/data/oracle-npu) are not here"),
]

CASES = [(path, setting) for at, path in enumerate(FILES) for setting in (range(NUM_SETTINGS) if EVERY else [at % NUM_SETTINGS])]


@pytest.mark.parametrize(("path", "setting"), CASES, ids=lambda value: value.stem if isinstance(value, Path) else str(value))
def test_every_row_comes_out(path, setting, tmp_path):
    expected = np.load(path)
    if f"{setting}/oom" not in expected:
        pytest.skip("this setting was not recorded")
    given, out = tmp_path / "given.npz", tmp_path / "out.npz"
    np.savez(given, op=expected["op"], id=expected["id"], size=expected["size"])
    command = [PYTHON, str(Path(__file__).with_name("programs") / "replay.py"), str(given), str(out)]
    environment = launch.environment_for(choose(f"npu:910b-64g,total={int(expected['total'])},context=0"), command)
    environment.pop("PYTORCH_NPU_ALLOC_CONF", None)
    if conf := str(expected["confs"][setting]):
        environment["PYTORCH_NPU_ALLOC_CONF"] = conf
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    failed, address, reserved, allocated = np.load(out)["rows"].T
    used = expected["op"] == 0
    lowest = address[address >= 0].min()
    assert (failed == expected[f"{setting}/oom"]).all()
    assert (np.where(address >= 0, address - lowest, -1)[used] == expected[f"{setting}/addr"][used]).all()
    for column, name in ((reserved, "reserved"), (allocated, "allocated")):
        known = expected[f"{setting}/{name}"] >= 0
        assert (column[known] == expected[f"{setting}/{name}"][known]).all()
