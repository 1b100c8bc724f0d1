"""Lets a program for GPUs run on the CPU, so that live_storages.py can count its tensors.

PyTorch then says that there are GPUs, each call with such a device gets the CPU, collectives run on gloo, and streams,
events and pinned memory do nothing. Attention runs without dropout, since with it, the CPU has no kernel that computes
the attention weights in parts, as those of GPUs do. Autocast to float16 is one to bfloat16, which has the same size
and is faster. A program that profiles itself gets a profiler that does nothing.
"""

from __future__ import annotations

import functools
import operator
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, Self

import torch
import torch.distributed as dist
from torch.distributed import device_mesh, distributed_c10d
from torch.distributed.tensor import DTensor
from torch.nn import parallel
from torch.overrides import TorchFunctionMode, _pop_mode_temporarily
from torch.utils import _device

CPU = torch.device("cpu")
DEVICE = re.compile(r"cuda(:\d+)?")
ATTENTION = torch.nn.functional.scaled_dot_product_attention
CAPABILITY = (9, 0)
MEMORY = 80 << 30
GROUPS: list[Any] = []  # of processes, which are kept, because the destructor of gloo can wait for ever
REPLACED: dict[tuple[Any, str], tuple[Any, Any]] = {}


def on_cpu(value: Any) -> Any:
    """Returns the CPU for a GPU, and any other value as it is."""
    if isinstance(value, torch.device):
        return CPU if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and DEVICE.fullmatch(value) else value


def device_on_cpu(value: Any) -> Any:
    """As ``on_cpu``, for an argument that is a device, in which an integer is the number of a GPU."""
    return CPU if isinstance(value, int) and not isinstance(value, bool) else on_cpu(value)


class OnCPU(TorchFunctionMode):
    """Replaces GPUs by the CPU in calls of PyTorch's functions.

    Args:
        place: Called with what a function returns that would put it on a GPU.
    """

    def __init__(self, place: Callable[[Any], None]) -> None:
        super().__init__()
        self.place = place

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        if function is torch.Tensor.cuda:
            self.place(args[0])
            return args[0]
        changed = list(map(on_cpu, args))
        named = {key: on_cpu(value) for key, value in kwargs.items()}
        if "device" in named:
            named["device"] = device_on_cpu(named["device"])
        if function is torch.Tensor.to and len(args) > 1:
            changed[1] = device_on_cpu(args[1])
        result = function(*changed, **named)
        is_same = all(map(operator.is_, changed, args)) and all(named[key] is kwargs[key] for key in kwargs)
        if not is_same:
            self.place(result)
        return result


def attend(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *others: Any, **given: Any
) -> Any:
    """Computes attention without dropout; on DTensors, which lack the kernel of the CPU, for the heads of this rank."""
    del dropout_p
    if not isinstance(query, DTensor):
        return ATTENTION(query, key, value, attn_mask, 0.0, *others, **given)
    result = ATTENTION(*(each.to_local() for each in (query, key, value)), attn_mask, 0.0, *others, **given)
    return DTensor.from_local(result, query.device_mesh, query.placements, run_check=False)


class Stream(torch.cpu.Stream):
    """A stream that does nothing."""

    def is_capturing(self) -> bool:
        return False


class Event(torch.cpu.Event):
    """An event that has always happened."""


class NoProfiler:
    """A profiler that does nothing: only one can run in a thread."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def with_cpu(function: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    """Returns a function that replaces GPUs in its arguments; ``fixed`` are arguments that it gets in any case."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(on_cpu, args))
        return function(*args, **{**{key: on_cpu(value) for key, value in kwargs.items()}, **fixed})

    return call


def constant(value: Any) -> Callable[..., Any]:
    """Returns a new function that returns a value; torch._dynamo expects another one for each name."""
    return lambda *_, **__: value


def replace(module: Any, name: str, value: Any) -> None:
    """Replaces an attribute of a module, except while ``paused``."""
    REPLACED[module, name] = (getattr(module, name), value)
    setattr(module, name, value)


@contextmanager
def paused() -> Iterator[None]:
    """Makes PyTorch say how many GPUs there are: it compiles programs for those."""
    for (module, name), (original, _) in REPLACED.items():
        setattr(module, name, original)
    with _pop_mode_temporarily() if REPLACED else nullcontext():
        try:
            yield
        finally:
            for (module, name), (_, value) in REPLACED.items():
                setattr(module, name, value)


def imitate(count: int) -> None:
    """Makes PyTorch say that there are GPUs.

    Args:
        count: How many.
    """
    current = [0]

    def select(device: Any = 0) -> None:
        index = torch.device(device).index if isinstance(device, str | torch.device) else device
        current[0] = index or 0

    properties = SimpleNamespace(
        name="CPU", major=CAPABILITY[0], minor=CAPABILITY[1], total_memory=MEMORY, multi_processor_count=132
    )
    told: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "device_count": count,
        "is_bf16_supported": True,
        "is_current_stream_capturing": False,
        "get_device_name": properties.name,
        "get_device_capability": CAPABILITY,
        "get_device_properties": properties,
        "mem_get_info": (MEMORY, MEMORY),
        "device": nullcontext(),
        "stream": nullcontext(),
        **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), 0),
        **dict.fromkeys(("synchronize", "empty_cache", "manual_seed", "manual_seed_all", "init"), None),
        **dict.fromkeys(("reset_peak_memory_stats", "ipc_collect", "set_rng_state"), None),
        "get_rng_state": torch.empty(0, dtype=torch.uint8),
    }
    accelerator = {name: told[name] for name in ("is_available", "device_count", "synchronize", "empty_cache")}
    accelerator |= {"current_accelerator": torch.device("cuda"), "device_index": nullcontext()}
    for module, answers in ((torch.cuda, told), (torch.accelerator, accelerator)):
        for name, value in {**answers, "current_stream": Stream()}.items():
            replace(module, name, constant(value))
    for module, suffix in ((torch.cuda, ""), (torch.accelerator, "_index")):
        replace(module, f"current_device{suffix}", lambda *_: current[0])
        replace(module, f"set_device{suffix}", lambda device=0: select(device))
    for name in ("FloatTensor", "LongTensor", "BoolTensor"):
        replace(torch.cuda, name, getattr(torch, name))
    replace(torch.cuda, "Stream", Stream)
    replace(torch.cuda, "Event", Event)
    torch._C._get_accelerator = lambda *_: CPU  # type: ignore[attr-defined]  # noqa: SLF001 - for the default mesh of FSDP2
    torch.nn.functional.scaled_dot_product_attention = attend
    torch.Tensor.pin_memory = lambda self, *_: self  # type: ignore[assignment]
    torch.profiler.profile = NoProfiler  # type: ignore[assignment,misc]
    imitate_calls()


def imitate_calls() -> None:
    """Replaces GPUs in calls that a TorchFunctionMode does not see."""
    parse = torch._C._nn._parse_to  # type: ignore[attr-defined]  # noqa: SLF001 - Module.to
    torch._C._nn._parse_to = lambda *args, **kwargs: parse(  # type: ignore[attr-defined]  # noqa: SLF001
        *map(device_on_cpu, args), **{key: device_on_cpu(value) for key, value in kwargs.items()}
    )
    cast = torch.autocast.__init__

    @functools.wraps(cast)
    def cast_on_cpu(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        cast(self, on_cpu(device_type), torch.bfloat16 if dtype is torch.float16 else dtype, *args, **kwargs)

    torch.autocast.__init__ = cast_on_cpu  # type: ignore[method-assign]
    for kind in (torch.amp.GradScaler, _device.DeviceContext, device_mesh.DeviceMesh):
        kind.__init__ = with_cpu(kind.__init__)  # type: ignore[misc]
    replicate = parallel.DistributedDataParallel
    replicate.__init__ = with_cpu(replicate.__init__, device_ids=None, output_device=None)  # type: ignore[method-assign]
    sys.modules[parallel.DataParallel.__module__]._get_available_device_type = lambda: None  # type: ignore[attr-defined]  # noqa: SLF001
    torch.load = torch.serialization.load = with_cpu(torch.load)
    new_group = distributed_c10d._new_process_group_helper  # noqa: SLF001 - of all ways to make a group

    @functools.wraps(new_group)
    def on_gloo(size: int, rank: int, ranks: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
        del backend
        made = new_group(size, rank, ranks, dist.Backend("gloo"), *args, **{**kwargs, "device_id": None})
        GROUPS.append(made)
        return made

    distributed_c10d._new_process_group_helper = on_gloo  # noqa: SLF001
