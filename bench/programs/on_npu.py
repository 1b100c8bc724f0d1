"""Runs a script for CUDA on an NPU, by torch_npu's own transfer_to_npu: on_npu.py SCRIPT ARGUMENTS."""

import runpy
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", message=r"\s*\*+\s*The torch.Tensor.cuda")  # the list of what it replaces
import torch_npu  # noqa: F401
from torch_npu.contrib import transfer_to_npu  # noqa: F401

script = Path(__file__).with_name(sys.argv[1])
sys.argv = [str(script), *sys.argv[2:]]
runpy.run_path(str(script), run_name="__main__")
