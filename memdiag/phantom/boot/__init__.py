"""Code for the program on a simulated device: a quiet exit, and a simulated world for a single rank.

``environment`` is memdiag's side. ``site`` is on the program's PYTHONPATH. ``world`` is loaded from there by its path,
in a Python that may lack memdiag, so it uses only the standard library, and torch once the program has imported it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from memdiag.errors import MemdiagError

WORLD = "MEMDIAG_PHANTOM_WORLD"

_SITE = str(Path(__file__).with_name("site"))


def environment(base: Mapping[str, str], as_rank: int | None = None, world: int | None = None) -> dict[str, str]:
    """Returns ``base`` with the variables that a program needs on a simulated device.

    Args:
        base: The environment so far.
        as_rank: Rank of the process, from 0, or None if it runs alone.
        world: Number of ranks.

    Raises:
        MemdiagError: The rank is not in the world.
    """
    others = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != _SITE]
    changed = {**base, "PYTHONPATH": os.pathsep.join([_SITE, *others])}
    if as_rank is None and world is None:
        return changed
    rank, size = as_rank or 0, world or 0
    if not 0 <= rank < size:
        from memdiag.text import phrase  # programs on a simulated device import this module, and do not come here

        raise MemdiagError(phrase("phantom.rank", rank=str(rank), world=size), phrase("phantom.rank.hint"))
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCH_NCCL_ENABLE_MONITORING": "0",  # threads that would wait for answers from the other ranks
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
        **changed,
        # the only process of its node: it sees one device, its own
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(rank),
        WORLD: "1",
    }
