"""PyTorch's caching allocator on Intel GPUs: clauses in brackets before 2.6, sentences since.

Some releases print no free memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from memdiag.oom.caching import bare, bare_heads, messages
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase

FORMATS = ("torch_xpu",)
ANCHORS = (
    "xpuoutofmemory",
    "(xpu",
    "allocatememoryblockwithsizelarger",
    "error_out_of_device_memory",
    "error_out_of_resources",
    "error_out_of_host_memory",
    "mem_object_allocation_failure",
    "cl_out_of_",
)
_OLD = "XPU out of memory. Tried to allocate 96.00 MiB (GPU 0; 15.56 GiB total capacity; 14.80 GiB already allocated; "
_NEW = (
    "XPU out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 15.11 GiB of which 310.00 "
    "MiB is free. "
)
_POOL = (
    "Of the allocated memory 14.40 GiB is allocated by PyTorch, and 401.00 MiB is reserved by PyTorch but unallocated. "
)
_HINT = "Please use `empty_cache` to release all unoccupied cached memory."
WORDS = ("out_of_resources",)
EXAMPLES = (
    ("torch_xpu", f"RuntimeError: {_OLD}15.10 GiB reserved in total by PyTorch)"),
    ("torch_xpu", f"torch.OutOfMemoryError: {_NEW}{_POOL}{_HINT}"),
    ("torch_xpu", "RuntimeError: Native API failed. Native API returns: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)"),
)

# The same failure has a different name in each layer: Unified Runtime, its predecessor (PI), Level Zero, OpenCL.
_CODE = (
    r"(?:(?:UR_RESULT|PI|ZE_RESULT)_ERROR_OUT_OF_(?P<what{0}>DEVICE_MEMORY|RESOURCES|HOST_MEMORY)"
    r" | PI_ERROR_MEM_OBJECT_ALLOCATION_FAILURE "
    r"| CL_(?:MEM_OBJECT_ALLOCATION_FAILURE|OUT_OF_RESOURCES|OUT_OF_HOST_MEMORY))"
)
_DRIVER = pattern(
    r"(?: (?:\w{1,20} backend failed with error | Native API failed \. Native API returns) : (?:-?\d{1,10})? [(\[]? "
    + _CODE.format("")
    + r" [)\]]? (?: -?\d{1,10} \( "
    + _CODE.format("_again")
    + r" \) )? | (?: Error\w{0,30} \( | (?<=error)|(?<=failed)|(?<=error:)|(?<=failed:)|(?<=exception:)|(?<=code:)"
    r"|(?<=returned)"
    r" | (?<=[\s:]\d\()|(?<=\d\d\())" + _CODE.format("_bare") + r" \)? )"
)


def _refused() -> Judgement:
    return Judgement(
        "unknown",
        "low",
        ("capacity", "limit"),
        (phrase("oom_torch.why.refused"),),
    )


def _resources() -> Judgement:
    return Judgement(
        "unknown",
        "low",
        ("capacity", "workspace_or_comm"),
        (phrase("oom_torch.why.resources"),),
    )


# without these words, the message may come from any program, such as llama.cpp
_PYTHON = re.compile(r"torch|ipex|RuntimeError|Native API|\.py", re.IGNORECASE)
_OPENCL = re.compile("CL_MEM_OBJECT", re.IGNORECASE)
_WHO = LazyFix("oom_torch.xpu.who", "flag", "xpu-smi ps")
_RELAXED = LazyFix("oom_torch.relaxed", "env", "export UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1")


def _host() -> Judgement:
    return Judgement("host", "medium", ("unknown",), (phrase("oom_torch.why.driver-host"),))


def _one_piece() -> Judgement:
    return Judgement(
        "limit",
        "high",
        ("capacity",),
        (phrase("oom_torch.why.one-piece"),),
    )


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for gathered, found in messages(text, "xpu"):
        yield replace(found, dialect="torch_xpu", judgement=_one_piece() if gathered.has("piece") else None)
    for start, end in bare_heads(text, "xpu"):
        yield Found(start, end, "torch_xpu", "pytorch", "xpu", judgement=bare())
    for match in _DRIVER.finditer(text.text):
        what = (match["what"] or match["what_bare"] or match[0]).upper()
        judgement = _host() if "HOST" in what else _resources() if "RESOURCES" in what else _refused()
        around = text.text[max(match.start() - 1500, 0) : match.end() + 500]
        framework = "pytorch" if _PYTHON.search(around) else "level_zero"
        if framework != "pytorch" and _OPENCL.match(match[0].strip("(")):
            continue  # a program of OpenCL
        fixes = () if "RESOURCES" in what or "HOST" in what else (_WHO, _RELAXED)
        yield Found(match.start(), match.end(), "torch_xpu", framework, "xpu", judgement=judgement, fixes=fixes)
