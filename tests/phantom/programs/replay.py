"""Allocates and frees as told, with torch_npu's own allocator: a .npz with op, id and size in, one with what happened out.

``replay.py GIVEN OUT`` does one program; without arguments, one JSON line on stdin is one program (given, out, and the
settings), each in a process of its own, made by fork after the slow import and before the device is touched.
"""

import json
import os
import sys
import traceback

import numpy as np
import torch
import torch_npu  # noqa: F401 - for torch.npu

ALLOC, FREE = 0, 1


def main(given, out):
    events = np.load(given)
    # where the version does not know a setting it fails here; what is asked of it after that may end the process
    torch.npu.init()
    live, rows = {}, np.full((len(events["op"]), 4), -1, np.int64)
    for number, (op, key, size) in enumerate(
        zip(events["op"].tolist(), events["id"].tolist(), events["size"].tolist(), strict=True)
    ):
        failed, address = 0, -1
        if op == ALLOC:
            try:
                live[key] = torch.empty(size, dtype=torch.uint8, device="npu")
                address = live[key].data_ptr()
            except RuntimeError as error:  # a plain one in older versions
                if "out of memory" not in str(error):
                    raise
                failed = 1
        elif op == FREE:
            live.pop(key, None)
        else:
            torch.npu.empty_cache()
        rows[number] = failed, address, torch.npu.memory_reserved(), torch.npu.memory_allocated()
    np.savez(out, rows=rows)


def in_a_child(given, out, conf):
    """How it ended: 0, the exit status, or minus a signal; its last words are on stderr."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.environ["PYTORCH_NPU_ALLOC_CONF"] = conf
            main(given, out)
            status = 0
        except BaseException:  # noqa: BLE001 - the parent goes on with the next
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
