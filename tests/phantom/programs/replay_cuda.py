"""Makes the allocator calls of a .npz file (op, id, size, stream) with torch's CUDA allocator; writes results as .npz.

``replay_cuda.py GIVEN OUT`` runs one program. Without arguments, each JSON line on stdin is one program (given, out,
and environment variables). Each program runs in a child process that is forked after the slow import and before the
device is initialized.
"""

import ctypes
import json
import os
import sys
import traceback

import numpy as np
import torch

COUNTS = {
    "reserved": "reserved_bytes",
    "allocated": "allocated_bytes",
    "active": "active_bytes",
    "requested": "requested_bytes",
}
TIMES = {
    "retries": "num_alloc_retries",
    "ooms": "num_ooms",
    "device_allocs": "num_device_alloc",
    "device_frees": "num_device_free",
}
NOT_FROM_PYTHON = "not from Python"
C = torch._C


class NotPossible(Exception):
    """Raised when this version lacks a function that the program needs; the rows end before that call."""


class Pools:
    """Private pools, through the functions that this version of torch has for them."""

    def __init__(self):
        self.made, self.end = (
            {},
            getattr(C, "_cuda_endAllocateToPool", None) or getattr(C, "_cuda_endAllocateCurrentStreamToPool", None),
        )
        self.begin = getattr(C, "_cuda_beginAllocateCurrentThreadToPool", None) or getattr(
            C, "_cuda_beginAllocateToPool", None
        )
        # Before torch 2.6, the first release of a pool destroys it.
        self.holds_itself = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)

    def perform(self, op, which, stream):
        if op == "pool_begin":
            if stream >= 0:
                sys.exit(f"{NOT_FROM_PYTHON}: a private pool of one stream")
            if not self.begin or not hasattr(torch.cuda, "MemPool"):
                sys.exit(f"{NOT_FROM_PYTHON}: a private pool of all streams")
            if which not in self.made:
                self.made[which] = torch.cuda.MemPool()
                if not self.holds_itself:
                    self.begin(0, self.made[which].id)
                    self.end(0, self.made[which].id)
            self.begin(0, self.made[which].id)
        elif which in self.made:
            if op == "pool_end":
                self.end(0, self.made[which].id)
                C._cuda_releasePool(0, self.made[which].id)
            else:
                if not self.holds_itself:
                    raise NotPossible
                del self.made[which]


class Program:
    """Tensors, streams and pools of one program, and one row of results per call."""

    def __init__(self, given):
        self.device = ctypes.CDLL("libcuda.so.1")
        torch.cuda.init()
        runtime = ctypes.CDLL(None)
        self.streams = [torch.cuda.default_stream()]
        for _ in range(int(given["stream"].max(initial=0))):
            handle = ctypes.c_void_p()
            assert runtime.cudaStreamCreateWithPriority(ctypes.byref(handle), 1, 0) == 0
            self.streams.append(torch.cuda.ExternalStream(handle.value))
        self.live, self.pools = {}, Pools()
        self.rows = {
            name: np.full(len(given["op"]), -1, np.int64) for name in ("status", "seg", "off", *COUNTS, *TIMES)
        }
        # begin, size, ordinal, kind
        self.place = (ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int64(), ctypes.c_int())

    def allocate(self, at, which, num_bytes, stream):
        with torch.cuda.stream(self.streams[stream]):
            self.live[which] = tensor = torch.empty(num_bytes, dtype=torch.uint8, device="cuda")
        place = tensor.untyped_storage().data_ptr()
        if place and self.device.memdiag_phantom_locate(ctypes.c_uint64(place), *map(ctypes.byref, self.place)):
            self.rows["seg"][at], self.rows["off"][at] = self.place[2].value, place - self.place[0].value

    def perform(self, at, op, which, num_bytes, stream):  # noqa: C901 - one case for each kind of call
        tensor = self.live.get(which)
        if op in {"free", "record_stream"} and (tensor is None or not tensor.numel()):
            self.live.pop(which, None) if op == "free" else None
            self.rows["status"][at] = 2
        elif op == "alloc":
            self.allocate(at, which, num_bytes, stream)
        elif op == "free":
            del self.live[which]
        elif op == "record_stream":
            tensor.record_stream(self.streams[stream])
        elif op == "empty_cache":
            torch.cuda.empty_cache()
        elif op == "complete":
            where = () if stream < 0 else (ctypes.c_void_p(self.streams[stream].cuda_stream),)
            (self.device.memdiag_phantom_complete if where else self.device.memdiag_phantom_complete_all)(*where)
        elif op == "sync":
            torch.cuda.synchronize()
        elif op == "set_fraction":
            torch.cuda.set_per_process_memory_fraction(num_bytes / 1e9)
        elif op.startswith("pool_"):
            self.pools.perform(op, which, stream)
        elif op == "reset_peak":
            torch.cuda.reset_peak_memory_stats()
        elif op == "external":
            self.device.memdiag_phantom_set_foreign(0, ctypes.c_uint64(num_bytes))
        elif op == "set_total":
            self.device.memdiag_phantom_set_total(ctypes.c_uint64(num_bytes))

    def run(self, given):
        names = [str(name) for name in given["ops"]]
        for at, (op, *arguments) in enumerate(
            zip(*(given[name].tolist() for name in ("op", "id", "size", "stream")), strict=True)
        ):
            self.rows["status"][at] = 0
            try:
                self.perform(at, names[op], *arguments)
            except torch.cuda.OutOfMemoryError:
                self.rows["status"][at] = 1
            stats = C._cuda_memoryStats(0)
            for field, name in COUNTS.items():
                self.rows[field][at] = stats[name]["all"]["current"]
            for field, name in TIMES.items():
                self.rows[field][at] = stats.get(name, -1)  # older versions do not count driver calls


def main(given, out):
    calls = np.load(given)
    program = Program(calls)
    try:
        program.run(calls)
    except NotPossible:
        program.rows = {
            name: row[: np.flatnonzero(program.rows["status"] >= 0)[-1]] for name, row in program.rows.items()
        }
    finally:
        np.savez(out, **program.rows)
    os._exit(0)


def in_a_child(given, out, environment):
    """Runs one program in a forked child; returns its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.environ.update(environment)
            main(given, out)
        except SystemExit as end:
            print(end, file=sys.stderr)
        except BaseException:  # noqa: BLE001 - the parent continues with the next program
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if len(sys.argv) > 1:
    main(*sys.argv[1:])
else:
    for line in sys.stdin:
        print(in_a_child(**json.loads(line)), flush=True)
