"""What a phantom device needs inside the program: a quiet exit, and for one rank of a world that does not exist, the rest of that world.

``environment`` is memdiag's side. ``site`` stands on the program's PYTHONPATH; ``world`` is loaded from there, by its
place, in a Python
that need not have memdiag: only the standard library, and torch once the program has imported it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from memdiag.errors import MemdiagError

WORLD = "MEMDIAG_PHANTOM_WORLD"

_SITE = str(Path(__file__).with_name("site"))


def environment(base: Mapping[str, str], as_rank: int | None = None, world: int | None = None) -> dict[str, str]:
    """Returns ``base`` with what a program needs on a phantom device.

    Args:
        base: The environment so far.
        as_rank: Which rank the process is to be, from 0; None: it is alone.
        world: How many ranks there are.

    Raises:
        MemdiagError: There is no such rank.
    """
    others = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != _SITE]
    changed = {**base, "PYTHONPATH": os.pathsep.join([_SITE, *others])}
    if as_rank is None and world is None:
        return changed
    rank, size = as_rank or 0, world or 0
    if not 0 <= rank < size:
        raise MemdiagError(
            f"rank {rank} of a world of {size} is none", "--as-rank 517 --world 1024: ranks are counted from 0"
        )
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCH_NCCL_ENABLE_MONITORING": "0",  # threads that would ask the other ranks why they are silent
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
        **changed,
        # the one process of its node: it sees one device, which is its own
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(rank),
        WORLD: "1",
    }
