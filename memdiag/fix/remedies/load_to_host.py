"""Loads checkpoints to host memory (finding MD127)."""

from __future__ import annotations

from collections.abc import Iterable

from memdiag.analyzers.loaded_twice import find_copies, loaders_of
from memdiag.fix.base import Proposal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit
from memdiag.text import phrase
from memdiag.units import MIB

NAME = "load-to-host"
_FLOOR = 64 * MIB


def propose(case: FixCase) -> Iterable[Proposal]:
    """Yields the remedy if a loaded checkpoint stays on the device next to the model."""
    loaders = loaders_of(case.trace)
    if loaders is None:
        return
    rows = find_copies(case.view, loaders)
    if int(case.device.tensors.block_bytes[rows].sum()) < _FLOOR:
        return
    lines = case.callers(rows)
    yield Proposal(
        NAME,
        phrase("fix.load-to-host"),
        tuple(frame.label for frame in lines[-1:]),
        Edit(dropped=frozenset(rows.tolist())),
        'torch.load(path, map_location="cpu")',
        phrase("fix.load-to-host.caveat"),
        phrase("fix.load-to-host.cost"),
        "load_to_host",
    )
