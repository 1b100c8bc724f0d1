"""Names on each backend (environment variables, tools, functions), and the settings each version supports."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from memdiag.diagnosis import remedies
from memdiag.diagnosis.remedies.lazy_fix import LazyFix
from memdiag.oom.advice.case import Case
from memdiag.results.finding import Fix
from memdiag.text import phrase
from memdiag.units import MIB


@dataclass(frozen=True, slots=True)
class System:
    """Names of one backend.

    Attributes:
        variable: Environment variable with the settings of PyTorch's allocator, or "" if there is none.
        module: PyTorch's module for the device, or "" if there is none.
        processes: Command that lists the processes on the devices.
        visible: Environment variable that chooses devices.
        freest: Its value that selects the device with the most free memory, or "" if that requires inspection.
        comm: Memory of its communication library, in words.
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
    "xpu": System("", "torch.xpu", "xpu-smi ps", "ZE_AFFINITY_MASK", comm="oneCCL"),
    "mps": System("", "torch.mps", "top -o mem", ""),
    "hpu": System("", "", "hl-smi", "HABANA_VISIBLE_MODULES", comm="HCCL"),
    "metal": System("", "", "top -o mem", ""),
    "tpu": System("", "", "sudo lsof -w /dev/accel*", ""),
    "cpu": System("", "", "ps aux --sort=-rss | head", ""),
}
_NOTHING = System("", "", "", "")

# Wordings of releases without a setting. Releases that are not listed or unknown support everything.
_BEFORE_SETTINGS = frozenset({"0.4", "1.4", "npu-1.8"})
_BEFORE_EXPANDABLE = _BEFORE_SETTINGS | {"1.10"}

# How serving programs are usually started.
_STARTED_AS = {
    "vllm": "vllm serve MODEL …",
    "sglang": "python -m sglang.launch_server …",
    "comfyui": "python main.py …",
    "webui": "python launch.py …",
    "diffusers": "python generate.py",
    "transformers": "python generate.py",
}

_SMALLEST_SPLIT_MB = 21  # early versions refuse 20, and all versions refuse less


def system(case: Case) -> System:
    """Returns the names of a case's backend."""
    return SYSTEMS.get(case.backend, _NOTHING)


def variable(case: Case) -> str:
    """Returns the environment variable of the allocator's settings: the one in the message, else the backend's."""
    named = sorted(mark.removeprefix("conf-name:") for mark in case.found.marks if mark.startswith("conf-name:"))
    if not case.on_torch or not SYSTEMS.get(case.backend, _NOTHING).variable:
        return ""
    if named:
        return "PYTORCH_ALLOC_CONF" if "PYTORCH_ALLOC_CONF" in named else named[0]
    return "PYTORCH_ALLOC_CONF" if case.generation == "2.9" else system(case).variable


def setting(case: Case, key: str, value: object) -> str:
    """Returns the line that sets a key of the allocator."""
    return f"export {variable(case)}={key}:{value}"


def for_windows(fix: Fix) -> Fix | None:
    """Returns a remedy for the Windows command prompt, or None if it only applies to Unix."""
    if re.search(r"/dev/|/proc/|\$\(|\bps aux\b|\bdmesg\b|\bulimit\b|^while ", fix.change):
        return None
    change = re.sub(r"^export (?=\w+=)", "set ", fix.change, flags=re.MULTILINE)
    if re.match(r"[A-Z_]+=\S+ \w", change):  # a variable before a command
        change = f"set {change.replace(' ', ' && ', 1)}"
    return replace(fix, change=re.sub(r"num_workers=\d+", "num_workers=0", change))


def has_settings(case: Case) -> bool:
    """Returns whether the allocator that printed the message has settings."""
    return bool(variable(case)) and case.generation not in _BEFORE_SETTINGS


def expandable(case: Case) -> Fix | None:
    """Returns how to enable expandable segments, or None if the version does not support them."""
    if (
        not has_settings(case)
        or case.generation in _BEFORE_EXPANDABLE
        or case.windows
        or case.is_set("expandable_segments")
    ):
        return None
    backend = case.backend if case.backend in {"npu", "hip"} else "cuda"
    return remedies.expandable_segments(setting(case, "expandable_segments", "True"), backend)


def max_split(case: Case) -> Fix | None:
    """Returns how to keep blocks that could serve the request from being split, or None if no allowed value would."""
    requested = case.numbers.requested
    if not has_settings(case) or requested is None or case.is_set("expandable_segments"):
        return None
    # The segment is the request rounded up to 2 MiB, so the limit has to be below the request itself.
    size = requested // MIB - 2
    if size < _SMALLEST_SPLIT_MB:
        return None
    limit = min(size, 1 << 20)
    when = phrase("oom_systems.split.when") if expandable(case) is not None else ""
    return remedies.max_split_size(setting(case, "max_split_size_mb", limit), limit, when)


def newer(case: Case) -> Fix | None:
    """Returns the upgrade that adds expandable segments, or None if they are supported."""
    if case.generation not in _BEFORE_EXPANDABLE or not case.on_torch or not system(case).variable or case.windows:
        return None
    then = "\n" + setting(case, "expandable_segments", "True")
    if case.backend == "npu":
        return LazyFix("oom_systems.upgrade.npu", "version", "pip install --upgrade torch torch_npu" + then).fix()
    if case.backend == "hip":
        return LazyFix("oom_systems.upgrade.hip", "version", then.strip()).fix()
    return LazyFix("oom_systems.upgrade.cuda", "version", 'pip install --upgrade "torch>=2.1"' + then).fix()


def recording(case: Case) -> str:
    """Returns the command that records the failed program."""
    return f"memdiag record -- {_STARTED_AS.get(case.engine, 'python train.py')}"


def snapshot(case: Case) -> Fix | None:
    """Returns how to record the allocations for ``memdiag analyze``."""
    module = system(case).module
    if not case.on_torch or case.backend not in {"cuda", "hip", "npu", "xpu"}:
        return None
    if case.backend == "xpu" or (case.generation in _BEFORE_EXPANDABLE and case.backend != "npu"):
        return LazyFix("oom_systems.stats", "record", f"print({module}.memory_stats())").fix()
    if case.windows:
        return LazyFix(
            "oom_systems.record",
            "record",
            f"{module}.memory._record_memory_history(max_entries=1_000_000)  # before the model is made\n"
            f'{module}.memory._dump_snapshot("trace.pkl")  # where the error is caught; then: memdiag analyze trace.pkl',
            when="oom_systems.record.by-hand.when",
        ).fix()
    return LazyFix("oom_systems.record", "record", f"{recording(case)}\nmemdiag analyze").fix()
