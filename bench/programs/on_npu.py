"""Runs a script for CUDA on an NPU, by torch_npu's own transfer_to_npu: on_npu.py SCRIPT ARGUMENTS.

Three things that torch_npu leaves to its user, on a device as here: it names a capability in CUDA's terms only where a
variable says which (Lightning asks for one), replaces classes for pipelines only where they were imported before it,
and names types of tensors its own way (Megatron-core's optimizer looks for CUDA's; there MindSpeed replaces that).
"""

import os
import runpy
import sys
import warnings
from pathlib import Path

import torch.distributed.pipelining

warnings.filterwarnings("ignore", message=r"\s*\*+\s*The torch.Tensor.cuda")  # it lists the functions that it replaces
os.environ.setdefault("TORCH_NPU_DEVICE_CAPABILITY", "8.0")
import torch_npu  # noqa: F401
from torch_npu.contrib import transfer_to_npu  # noqa: F401

script = Path(__file__).parent / sys.argv[1]  # an absolute path stays as it is
sys.path.insert(0, str(script.parent))
if script.name == "megatron_core.py":
    plain = torch.Tensor.type

    def type_as_cuda(self, *args, **kwargs):
        found = plain(self, *args, **kwargs)
        return found.replace("torch.npu.", "torch.cuda.") if isinstance(found, str) else found

    torch.Tensor.type = type_as_cuda
sys.argv = [str(script), *sys.argv[2:]]
runpy.run_path(str(script), run_name="__main__")
