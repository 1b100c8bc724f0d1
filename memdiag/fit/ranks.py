"""Which ranks of a distributed run are recorded to find the one that needs most memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memdiag.errors import MemdiagError
from memdiag.fit.grid import STAGES
from memdiag.text import phrase

NEARLY_HEAVIEST = 0.75  # of the heaviest peak; lighter ranks are not recorded again for other values of a growing axis


def probing_ranks(world: int, values: Mapping[str, str], chosen: Sequence[int] | None = None) -> tuple[int, ...]:
    """Returns the ranks to record: the given ones, else the first and the last rank, and one in the second stage.

    Pipeline stages are consecutive parts of the world in Megatron-LM, torchtitan and nanotron: rank 0 is in the first
    stage (embedding, most micro-batches in flight), the last rank in the last one (logits). The stages between are like
    the second. If no placeholder has the number of stages, a rank in the middle takes the place of the second stage.

    Args:
        world: Number of ranks.
        values: Value of each placeholder.
        chosen: Given ranks; those outside a smaller world are omitted.

    Raises:
        MemdiagError: None of the given ranks is in the world.
    """
    if chosen is not None:
        known = tuple(sorted({rank for rank in chosen if 0 <= rank < world}))
        if not known:
            raise MemdiagError(phrase("fit.error.ranks", world=world), phrase("fit.error.ranks.hint"))
        return known
    named = next((text for name, text in values.items() if name.lower() in STAGES and text.isdigit()), "2")
    stages = min(max(int(named), 1), world)
    second = {world // stages} if stages > 1 else set()
    return tuple(sorted({0, world - 1} | second))


def read_ranks(text: str) -> tuple[int, ...]:
    """Reads ``0,7,63``.

    Raises:
        MemdiagError: It is not a list of ranks.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise MemdiagError(phrase("fit.error.rank-list", text=text), phrase("fit.error.ranks.hint"))
    return tuple(int(part) for part in parts)
