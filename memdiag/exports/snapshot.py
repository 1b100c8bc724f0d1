"""A PyTorch memory snapshot of any trace with addresses.

It works in PyTorch's own viewer (https://pytorch.org/memory_viz) and other tools.

It is a genuine snapshot: a pickle of builtin containers. memdiag's own data (phases, names) are under one extra key, as
in a recording.
"""

from __future__ import annotations

import gc
import pickle
from pathlib import Path

from memdiag.allocator.as_snapshot import as_pytorch_has_it
from memdiag.errors import MemdiagError
from memdiag.exports.model import Wanted, whole_file
from memdiag.text import phrase
from memdiag.trace.model import Trace

SUFFIXES = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz")


def write(trace: Trace, path: Path, wanted: Wanted) -> list[Path]:
    """Writes the snapshot; returns the file.

    Raises:
        MemdiagError: The trace has no addresses.
    """
    devices = wanted.devices(trace)
    found = [device for device in devices if device.has_addresses]
    if not found:
        raise MemdiagError(
            phrase("errors.no-addresses", path=str(trace.path), format=str(trace.format)),
            phrase("errors.no-addresses.hint"),
        )
    # Nothing created here is freed before the end: garbage collection over millions of entries would take longer than
    # the rest.
    was_on = gc.isenabled()
    gc.disable()
    try:
        content = as_pytorch_has_it(
            trace, found, torch_version=trace.torch_version, own_facts={"exported": {"from": trace.format}}
        )
        with whole_file(path) as file:
            pickle.dump(content, file, protocol=4)
    finally:
        if was_on:
            gc.enable()
    return [path]
