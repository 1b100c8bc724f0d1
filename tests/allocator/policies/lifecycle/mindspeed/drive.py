"""Issues calls through torch_npu with MindSpeed's allocator plugged in.

Usage: drive.py LIBRARY CALLS.npz…

Each file has columns op, id, size, stream: the kinds of calls of process.h (0 alloc, 1 free, 2 empty_cache, 3
set_fraction in billionths, then the starts and ends of the three hooks, 10 memory of other processes from here on), and
``environment``, words NAME=VALUE. A tensor is made by torch.empty on the current stream and freed by dropping it. A
failing allocation is skipped, and so is the free of its tensor. The allocator's decisions are written to CALLS.npz.log,
rows of process.h. Each file has a separate process, forked after the slow import and before the device is used.
"""

import ctypes
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hooks import plug_in

ALLOC, FREE, EMPTY_CACHE, SET_FRACTION, FIRST_HOOK, EXTERNAL = 0, 1, 2, 3, 4, 10
HOOKS = (
    "precise_match_start",
    "precise_match_end",
    "memory_recorder_start",
    "memory_recorder_end",
    "malloc_recorder_start",
    "malloc_recorder_end",
)


class Others:
    """Other memory of the device: collectives, other processes."""

    def __init__(self) -> None:
        self.runtime = ctypes.CDLL("libascendcl.so")
        self.at = ctypes.c_void_p()

    def hold(self, size: int) -> None:
        """Holds this many bytes instead of the previous number."""
        torch.npu.init()
        if self.at:
            self.runtime.aclrtFree(self.at)
        self.at = ctypes.c_void_p()
        if size and self.runtime.aclrtMalloc(ctypes.byref(self.at), ctypes.c_size_t(size), 0):
            raise RuntimeError(f"the device has no {size} bytes for others")


def plugged(library: str) -> tuple[Any, Callable[[int, torch.Tensor | None], None]]:
    """Plugs the library in; returns its hooks, and what to call after each call."""
    if hasattr(ctypes.CDLL(library), "write_log"):
        return plug_in(library), lambda *_: None
    from original import Original

    original = Original(library)
    return original, original.note


def run(library: str, path: str) -> None:
    """Runs one file."""
    program = np.load(path)
    os.environ.update(word.split("=", 1) for word in program["environment"].tolist())
    feature, note = plugged(library)
    streams = [torch.npu.current_stream()]
    streams += [torch.npu.Stream() for _ in range(int(program["stream"].max(initial=0)))]
    live, current, others = {}, 0, Others()
    hooks = [getattr(feature, name) for name in HOOKS]
    for op, tensor, size, stream in zip(
        *(program[name].tolist() for name in ("op", "id", "size", "stream")), strict=True
    ):
        if op == EXTERNAL:
            others.hold(size)
        elif op >= FIRST_HOOK:
            hooks[op - FIRST_HOOK]()
        elif op == SET_FRACTION:
            torch.npu.set_per_process_memory_fraction(size / 1e9)
        elif op == EMPTY_CACHE:
            torch.npu.empty_cache()
        elif op == FREE:
            live.pop(tensor, None)
        else:
            if stream != current:
                torch.npu.set_stream(streams[stream])
                current = stream
            try:
                live[tensor] = torch.empty(size, dtype=torch.uint8, device="npu")
            except RuntimeError as error:
                if "NPU out of memory" not in str(error):
                    raise
        note(op, live.get(tensor) if op == ALLOC else None)
    if feature.write_log(f"{path}.log".encode()):
        raise OSError(f"{path}.log could not be written")


def main() -> None:
    """Runs each file in a separate process."""
    library, *paths = sys.argv[1:]
    failed = False
    for path in paths:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                run(library, path)
                status = 0
            except Exception:  # noqa: BLE001 - the traceback is for people
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        failed |= os.waitpid(child, 0)[1] != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
