"""torch_npu's allocator on the simulated NPU matches the recording in every address, size and failure.

The tests run a few of the 126 recordings. To run all of them, which takes two minutes, use
``python -m tests.phantom.npu_rows``.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.phantom.npu_rows import FILES, NUM_SETTINGS, PROGRAM, device_of, differences
from tests.phantom.npu_stand_in import needs_npu, on_phantom

pytestmark = [
    needs_npu,
    pytest.mark.skipif(not FILES, reason="the recorded rows (../shared/data/oracle-npu) are not here"),
]

SOME = [(path, at % NUM_SETTINGS) for at, path in enumerate(FILES)][::4]


@pytest.mark.parametrize(
    ("path", "setting"), SOME, ids=lambda value: value.stem if isinstance(value, Path) else str(value)
)
def test_every_call_matches_the_recording(path, setting, tmp_path):
    expected = np.load(path)
    if f"{setting}/oom" not in expected:
        pytest.skip("this setting was not recorded")
    given, out = tmp_path / "given.npz", tmp_path / "out.npz"
    np.savez(given, op=expected["op"], id=expected["id"], size=expected["size"])
    conf = str(expected["confs"][setting])
    done = on_phantom(device_of(path), PROGRAM, given, out, cwd=tmp_path, PYTORCH_NPU_ALLOC_CONF=conf)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = np.load(out)["rows"]
    assert differences(path, setting, rows) == []
    rows[len(rows) // 2 :, 3] += 512  # shows that a differing row is reported
    assert differences(path, setting, rows)[0].startswith("allocated in ")
