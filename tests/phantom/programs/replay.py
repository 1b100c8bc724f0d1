"""Makes the allocations and frees of a .npz file (op, id, size) with torch_npu's allocator; writes the results as .npz.

``replay.py GIVEN OUT`` runs one program. Without arguments, each JSON line on stdin is one program (given, out, conf).
Each program runs in a child process that is forked after the slow import and before the device is initialized.
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
    # An unknown setting raises here; after such an error, any other call may end the process.
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
            except RuntimeError as error:  # older versions raise a plain RuntimeError
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
    """Runs one program in a forked child; returns its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.environ["PYTORCH_NPU_ALLOC_CONF"] = conf
            main(given, out)
            status = 0
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
