"""Runs programs on torch_npu's own allocator; real_npu.py starts it with the interpreter that has torch_npu.

Reads one path per line: ``PATH.npz`` with columns op (0 alloc, 1 free, 2 empty_cache, 3 record_stream), id, size,
stream, and the settings. Each program runs in a separate process, forked after the slow import and before the device is
used. Writes ``PATH.out.npz``.
"""

import os
import sys
import traceback

import numpy as np
import torch
import torch_npu

CHECK_EVERY = 40
RAISED = 3
ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
)
COUNTERS = (
    "reserved_bytes.all.current",
    "allocated_bytes.all.current",
    "active_bytes.all.current",
    "requested_bytes.all.current",
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
)


def counters() -> list[int]:
    found = torch_npu._C._npu_memoryStats(0)
    numbers = []
    for name in COUNTERS:
        value = found
        for part in name.split("."):
            value = value.get(part, -1) if isinstance(value, dict) else -1
        numbers.append(value)
    return numbers


def run(path: str) -> None:
    program = np.load(path)
    os.environ.pop("PYTORCH_NPU_ALLOC_CONF", None)
    if conf := str(program["conf"]):
        os.environ["PYTORCH_NPU_ALLOC_CONF"] = conf
    torch.npu.init()
    memory = torch_npu.npu.memory
    memory._record_memory_history(enabled="all", context=None, max_entries=10_000_000)
    streams = [torch.npu.current_stream()]
    streams += [torch.npu.Stream() for _ in range(int(program["stream"].max(initial=0)))]
    live = {}
    status = np.zeros(len(program["op"]), np.int8)
    addr = np.full(len(status), -1, np.int64)
    checked, values = [], []
    empty, current, kind = torch.empty, 0, torch.uint8
    for i, (op, tensor, size, stream) in enumerate(
        zip(*(program[name].tolist() for name in ("op", "id", "size", "stream")), strict=True)
    ):
        if op == 0:
            if stream != current:
                torch.npu.set_stream(streams[stream])
                current = stream
            try:
                live[tensor] = made = empty(size, dtype=kind, device="npu")
                addr[i] = made.data_ptr()
                del made
            except torch.OutOfMemoryError:
                status[i] = 1
            except RuntimeError:  # the driver refused a release: the state after that is undefined
                status[i:] = RAISED
                break
        elif op == 1:
            status[i] = 0 if live.pop(tensor, None) is not None else 2
        elif op == 2:
            torch.npu.empty_cache()
        elif tensor in live:
            live[tensor].record_stream(streams[stream])
        else:
            status[i] = 2
        if i % CHECK_EVERY == 0 or status[i] == 1 or op == 2:
            checked.append(i)
            values.append(counters())
    trace = [t for t in memory._snapshot()["device_traces"][0] if t["action"] != "snapshot"]
    log = np.array([(ACTIONS.index(t["action"]), t.get("addr", 0), t["size"]) for t in trace], np.int64).reshape(-1, 3)
    np.savez(
        path + ".out.npz",
        status=status,
        addr=addr,
        checked=np.array(checked, np.int64),
        values=np.array(values, np.int64),
        log=log,
    )


for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            run(line.strip())
        except Exception:  # noqa: BLE001 - the parent notices the missing result; the traceback is for people
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    os.waitpid(child, 0)
    print("done", flush=True)
