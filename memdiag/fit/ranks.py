"""Which ranks of a distributed run are recorded to find the one that needs most memory."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.errors import MemdiagError
from memdiag.text import phrase

_PARTS = 4  # ranks at these parts of the world: usual numbers of pipeline stages are multiples of it
NEARLY_HEAVIEST = 0.75  # of the heaviest peak; lighter ranks are not recorded again for other values of a growing axis


def probing_ranks(world: int, chosen: Sequence[int] | None = None) -> tuple[int, ...]:
    """Returns the ranks to record: the given ones, else the first, the last, and some between.

    Pipeline stages are consecutive parts of the world in Megatron-LM, torchtitan and nanotron, so rank 0 is in the first
    stage, the last rank in the last one, and a rank at a quarter, a half and three quarters in those between.

    Args:
        world: Number of ranks.
        chosen: Given ranks; those outside a smaller world are omitted.

    Raises:
        MemdiagError: None of the given ranks is in the world.
    """
    if chosen is not None:
        known = tuple(sorted({rank for rank in chosen if 0 <= rank < world}))
        if not known:
            raise MemdiagError(phrase("fit.error.ranks", world=world), phrase("fit.error.ranks.hint"))
        return known
    return tuple(sorted({0, *(world * part // _PARTS for part in range(1, _PARTS)), world - 1}))


def read_ranks(text: str) -> tuple[int, ...]:
    """Reads ``0,7,63``.

    Raises:
        MemdiagError: It is not a list of ranks.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise MemdiagError(phrase("fit.error.rank-list", text=text), phrase("fit.error.ranks.hint"))
    return tuple(int(part) for part in parts)
