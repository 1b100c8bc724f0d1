"""A program that selects more devices than are simulated gets the option that simulates enough of them."""

import subprocess

import pytest

from tests.forking import memdiag_command
from tests.pythons import NO_CUDA, NO_NPU, cuda_python, npu_python

KINDS = [
    pytest.param("cuda:h100-80g", "torch", cuda_python(), marks=pytest.mark.skipif(not cuda_python(), reason=NO_CUDA)),
    pytest.param("npu:910b-64g", "torch_npu", npu_python(), marks=pytest.mark.skipif(not npu_python(), reason=NO_NPU)),
]


@pytest.mark.parametrize(("device", "library", "python"), KINDS)
def test_the_option_is_named_once(device, library, python, tmp_path):
    kind = device.partition(":")[0]
    program = f"import torch, {library}\nfor number in (0, 2, 3):\n    try:\n        torch.{kind}.set_device(number)\n"
    (tmp_path / "train.py").write_text(program + "    except RuntimeError:\n        print('refused', number)\n")
    words = [*memdiag_command(), "record", "--phantom", device, "--", python, "train.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:2] == ["refused 2", "refused 3"]
    said = [line for line in done.stderr.splitlines() if "error:" in line or "hint:" in line]
    assert said == [
        "memdiag: error: the program selects device 2, but 1 device is simulated for this process",
        f"memdiag: hint: --phantom {device},devices=3",
    ]
