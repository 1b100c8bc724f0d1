"""Names of environment variables, tools and functions on each backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class System:
    """Names of one backend.

    Attributes:
        variable: Environment variable with the settings of PyTorch's allocator; "" if there is none.
        module: PyTorch's module for the device; "" if there is none.
        processes: Command that lists the processes on the devices.
        visible: Environment variable that chooses devices.
        freest: Value of ``visible`` that picks the device with the most free memory; "" if there is no such value.
        comm: Memory use of its communication library, in words.
    """

    variable: str
    module: str
    processes: str
    visible: str
    freest: str = ""
    comm: str = "NCCL"


_NVIDIA = "nvidia-smi --query-gpu=memory.free,index --format=csv,noheader,nounits"
SYSTEMS = {
    "cuda": System(
        "PYTORCH_CUDA_ALLOC_CONF",
        "torch.cuda",
        "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
        "CUDA_VISIBLE_DEVICES",
        f"$({_NVIDIA} | sort -rn | head -n 1 | cut -d, -f2 | tr -d ' ')",
    ),
    "hip": System("PYTORCH_HIP_ALLOC_CONF", "torch.cuda", "rocm-smi --showpids", "HIP_VISIBLE_DEVICES", comm="RCCL"),
    "npu": System("PYTORCH_NPU_ALLOC_CONF", "torch_npu.npu", "npu-smi info", "ASCEND_RT_VISIBLE_DEVICES", comm="HCCL"),
    "musa": System("PYTORCH_MUSA_ALLOC_CONF", "torch.musa", "mthreads-gmi", "MUSA_VISIBLE_DEVICES", comm="MCCL"),
    "mlu": System("PYTORCH_MLU_ALLOC_CONF", "torch.mlu", "cnmon", "MLU_VISIBLE_DEVICES", comm="CNCL"),
    "xpu": System("", "torch.xpu", "xpu-smi ps", "ZE_AFFINITY_MASK", comm="oneCCL"),
    "mps": System("", "torch.mps", "top -o mem", ""),
    "hpu": System("", "", "hl-smi", "HABANA_VISIBLE_MODULES", comm="HCCL"),
    "metal": System("", "", "top -o mem", ""),
    "tpu": System("", "", "sudo lsof -w /dev/accel*", ""),
    "cpu": System("", "", "ps aux --sort=-rss | head", ""),
}
NOTHING = System("", "", "", "")
UNSHARED = frozenset({"mps", "metal"})  # Macs, where no containers hide processes
