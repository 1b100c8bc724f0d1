"""CUDA and ROCm: PyTorch's own history of its caching allocator."""

from __future__ import annotations

import ctypes
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from ..card_samples import card_identity, visible_card
from ..fx_nodes import name_fx_nodes
from ..guard import contained, warn
from ..marks import NOWHERE, Position
from ..texts import text_of
from .autocast_frees import AutocastFrees, is_simulated
from .lazy_modules import compiler_stays_unloaded

# Python frames only: unwinding C++ stacks makes snapshots a hundred times slower.
_STACKS = "python"
_RELAXED = 2  # cudaStreamCaptureModeRelaxed
# Options of newer versions that cost nothing until used. compile_context is not: it calls back on every operator.
_MORE = ("record_pinned_host_memory",)


class Cuda:
    """The history of torch.cuda. ``torch.cuda`` and ``torch.npu`` have the same functions, see ``npu``."""

    name = "cuda"
    has_times = True
    visible = "CUDA_VISIBLE_DEVICES"
    exchange_modes = ("cudaThreadExchangeStreamCaptureMode", "hipThreadExchangeStreamCaptureMode")

    def __init__(self) -> None:
        self.is_active = False
        # Changes made to the history by the program: "changed" its settings, "stopped" or "restarted" it.
        self.taken_over = ""
        self.max_events = 0
        self._torch: Any = None
        self._stats: Any = None
        self._busy = False
        self._theirs = 0  # entries of the history that the program started
        self._before_end: Callable[[], None] = lambda: None
        self._release: Callable[[], None] = lambda: None
        self._autocast_frees = AutocastFrees(self)

    def watch(self, torch: Any, started: Callable[[Any], None]) -> None:
        """Waits until the program initialises CUDA.

        Starting the history would initialise it, and break programs that fork.
        """
        self._torch = torch
        if torch.backends.cuda.is_built():
            self._follow()
            torch.cuda._lazy_call(contained(lambda: started(self)))

    @property
    def kind(self) -> str:
        """The backend that recordings name: "hip" for ROCm, whose PyTorch has the functions of torch.cuda."""
        return "hip" if self.name == "cuda" and getattr(self._torch.version, "hip", None) else self.name

    @property
    def _home(self) -> Any:
        return self._torch.cuda

    @property
    def _memory(self) -> Any:
        return self._home.memory

    def start(self, max_events: int) -> None:
        """Starts the history."""
        if not self._can_record():
            return
        self.max_events = min(max_events, self._theirs or max_events)
        if self._theirs:  # the program started it before memdiag
            self.taken_over = "changed"
        else:
            self._record(max_events)
        self._stats = self._memory.memory_stats_as_nested_dict
        self.is_active = True
        if is_simulated():
            self._autocast_frees.install(self._torch)

    def join(self, torch: Any) -> bool:
        """Uses the statistics of a program that has initialised the device already; ``start`` may follow.

        Returns whether its allocator has statistics.
        """
        self._torch = torch
        if not self._can_record():
            return False
        self._stats = self._memory.memory_stats_as_nested_dict
        self.is_active = True
        return True

    def has_history(self) -> bool:
        """Returns whether the program records a history already; where PyTorch does not say, whether it has events."""
        ask = getattr(self._torch._C, "_cuda_isHistoryEnabled", None) if self.name == "cuda" else None
        if ask is not None:
            return bool(ask())
        return any(self._pytorchs_snapshot().get("device_traces") or ())

    def _record(self, max_events: int) -> None:
        self._busy = True
        try:
            record = self._memory._record_memory_history
            known = inspect.signature(record).parameters
            more = {name: True for name in _MORE if name in known}
            record(enabled="all", context="all", stacks=_STACKS, max_entries=max_events, **more)
        finally:
            self._busy = False

    def _can_record(self) -> bool:
        backend = getattr(self._torch.cuda.memory, "get_allocator_backend", lambda: "native")()
        if backend != "native":
            warn(text_of("allocator.no-history", name=backend))
        return backend == "native"

    def follow(self, before_end: Callable[[], None]) -> None:
        """Calls ``before_end`` before the program does something that loses the history so far."""
        self._before_end = before_end

    def _follow(self) -> None:
        """Detects that the program starts, changes or stops the history, even in a call that initialises the device."""
        memory = self._memory
        original = memory._record_memory_history
        # If the function cannot keep earlier entries, every call loses them.
        settings = inspect.signature(getattr(memory, "_record_memory_history_impl", original)).parameters
        keeps = "clear_history" in settings

        def record_memory_history(enabled: Any = "all", *args: Any, **kwargs: Any) -> Any:
            if self._busy:
                return original(enabled, *args, **kwargs)
            if self.is_active:
                self._taken_over(
                    "stopped"
                    if not enabled
                    else "changed"
                    if keeps and not kwargs.get("clear_history")
                    else "restarted"
                )
            result = original(enabled, *args, **kwargs)
            if self.is_active and enabled:  # perhaps started within this very call, and changed at its end
                self.taken_over = self.taken_over or "changed"
                self.max_events = min(self.max_events, kwargs.get("max_entries", self.max_events))
            self._theirs = kwargs.get("max_entries", sys.maxsize) if enabled == "all" else 0
            return result

        for attribute in ("__doc__", "__name__", "__qualname__", "__module__", "__signature__"):
            if hasattr(original, attribute):
                setattr(record_memory_history, attribute, getattr(original, attribute))
        memory._record_memory_history = record_memory_history
        self._release = lambda: setattr(memory, "_record_memory_history", original)

    def _taken_over(self, how: str) -> None:
        self.taken_over = how if how != "changed" else self.taken_over or how
        if how != "changed":
            contained(self._before_end)()
            warn(text_of("history.stopped" if how == "stopped" else "history.restarted", name=self.name))

    def stop(self) -> None:
        """Stops the history, unless the program has taken it over."""
        self._release()
        self._autocast_frees.remove()
        if self.is_active and not self.taken_over:
            self._memory._record_memory_history(enabled=None)
        self.is_active = False

    def position(self) -> Position:
        """Returns the current device, and its numbers of allocated and freed blocks."""
        if not self.is_active:
            return NOWHERE
        allocation = self._stats()["allocation"]["all"]
        return self._device(), allocation["allocated"], allocation["freed"]

    def _device(self) -> int:
        return int(self._torch.cuda.current_device())

    def snapshot(self) -> dict[str, Any] | None:
        """Returns PyTorch's snapshot, or None without a recording."""
        if not self.is_active:
            return None
        content = self._pytorchs_snapshot()
        contained(name_fx_nodes)(content)
        self._autocast_frees.order(content)
        return content

    def _pytorchs_snapshot(self) -> dict[str, Any]:
        with compiler_stays_unloaded(self._torch):
            return dict(self._memory._snapshot())

    def num_events(self, content: dict[str, Any]) -> int:
        """Returns the number of events in a snapshot."""
        return sum(len(trace) for trace in content.get("device_traces") or ())

    def can_ask_driver(self) -> bool:
        """Returns whether the driver may be queried now, that is, the program is not capturing a graph."""
        is_capturing = getattr(self._home, "is_current_stream_capturing", None)
        return self.is_active and not (is_capturing is not None and is_capturing())

    def driver_memory(self, device: int) -> tuple[int, int]:
        """Returns free and total bytes of a device from its driver."""
        free, total = self._home.mem_get_info(device)
        return int(free), int(total)

    def allocator_state(self, device: int) -> tuple[int, int, int]:
        """Returns the bytes that the allocator has reserved on a device, and its allocated and freed blocks so far."""
        stats = self._memory.memory_stats_as_nested_dict(device)
        blocks = stats.get("allocation", {}).get("all", {})
        reserved = stats.get("reserved_bytes", {}).get("all", {}).get("current", 0)
        return int(reserved), int(blocks.get("allocated", -1)), int(blocks.get("freed", -1))

    def statistics(self, device: int) -> dict[str, Any]:
        """Returns PyTorch's statistics of a device; empty before its first use."""
        found: dict[str, Any] = self._memory.memory_stats_as_nested_dict(device)
        return found

    def num_devices(self) -> int:
        """Returns the number of visible devices."""
        return int(self._home.device_count())

    def properties(self, device: int) -> Any:
        """Returns PyTorch's properties of a device."""
        return self._home.get_device_properties(device)

    def driver_number(self, device: int) -> int | None:
        """Returns the number by which the driver's tools know a device, or None if it is unknown."""
        get = getattr(self._home, "_get_nvml_device_index", None)
        if get is not None:
            return int(get(device))
        card = visible_card(self.visible, device)
        return int(card) if card.isdigit() else None

    def card(self, device: int, properties: Any) -> str:
        """Returns the identity of the card behind a device, the same in every process of the machine."""
        return card_identity(self.visible, device, getattr(properties, "uuid", None))

    def leave_captures_alone(self) -> bool:
        """Lets this thread call the driver while another one captures a graph; returns whether that is possible.

        In the mode that threads begin with, such a call ends the capture with an error.
        """
        for name in self.exchange_modes:
            try:
                exchange = getattr(ctypes.CDLL(None), name)
            except (OSError, AttributeError):
                continue
            return bool(exchange(ctypes.byref(ctypes.c_int(_RELAXED))) == 0)
        return False

    def facts(self) -> dict[str, Any]:
        """Returns capacity and counters of each device in use."""
        home, capacity, counts, cards = self._home, {}, {}, {}
        for device in range(home.device_count()):
            stats = self._memory.memory_stats_as_nested_dict(device)
            if not stats or not stats.get("allocation", {}).get("all", {}).get("allocated"):
                continue
            properties = home.get_device_properties(device)
            capacity[device] = int(properties.total_memory)
            cards[device] = self.card(device, properties)
            allocation = stats["allocation"]["all"]
            counts[device] = {
                "allocs": allocation["allocated"],
                "frees": allocation["freed"],
                "retries": stats.get("num_alloc_retries", -1),
                "ooms": stats.get("num_ooms", -1),
            }
        return {
            "capacity_bytes": capacity,
            "counts": counts,
            "cards": cards,
            "fraction": self.fraction(),
            "settings": self._settings(),
        }

    def fraction(self) -> float | None:
        """Returns the part of the current device that the program may use, or None if it is unknown."""
        get = getattr(self._memory, "get_per_process_memory_fraction", None)
        try:
            return None if get is None else float(get())
        except (RuntimeError, AttributeError):
            return None

    def _settings(self) -> dict[str, str]:
        names = (
            "PYTORCH_CUDA_ALLOC_CONF",
            "PYTORCH_HIP_ALLOC_CONF",
            "PYTORCH_ALLOC_CONF",
            "PYTORCH_NO_CUDA_MEMORY_CACHING",
        )
        return {name: os.environ[name] for name in names if name in os.environ}

    def on_oom(self, callback: Callable[[int, int, int, int], None]) -> None:
        """Calls back (device, requested bytes, total bytes, free bytes) on a failed allocation, before it raises."""
        self._torch._C._cuda_attach_out_of_memory_observer(callback)
