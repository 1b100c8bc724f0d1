"""Issues calls through torch_npu with MindSpeed's allocator plugged in: drive.py LIBRARY CALLS.npz LOG.

CALLS.npz has columns op, id, size, stream: the kinds of calls of process.h (0 alloc, 1 free, 2 empty_cache, 3 set_fraction in billionths,
then the starts and ends of the three hooks). A tensor is made by torch.empty on the current stream and freed by dropping it. What the
allocator decided comes out as LOG, rows of process.h. An allocation that fails is passed over, as is the free of its tensor.
"""

import sys

import numpy as np
import torch
from hooks import plug_in

FREE, EMPTY_CACHE, SET_FRACTION, FIRST_HOOK = 1, 2, 3, 4
HOOKS = (
    "precise_match_start", "precise_match_end", "memory_recorder_start", "memory_recorder_end", "malloc_recorder_start",
    "malloc_recorder_end",
)  # fmt: skip


def main() -> None:
    library, calls, log = sys.argv[1:]
    program = np.load(calls)
    feature = plug_in(library)
    streams = [torch.npu.current_stream()]
    streams += [torch.npu.Stream() for _ in range(int(program["stream"].max(initial=0)))]
    live, current = {}, 0
    hooks = [getattr(feature, name) for name in HOOKS]
    for op, tensor, size, stream in zip(*(program[name].tolist() for name in ("op", "id", "size", "stream")), strict=True):
        if op >= FIRST_HOOK:
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
    if feature.write_log(log.encode()):
        sys.exit(f"{log} could not be written")


if __name__ == "__main__":
    main()
