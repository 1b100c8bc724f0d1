"""Which ranks of a distributed run are recorded to find the one that needs most memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memdiag.errors import MemdiagError
from memdiag.fit.grid import EXPERTS, SHRINKING, STAGES
from memdiag.text import phrase

NEARLY_HEAVIEST = 0.75  # of the heaviest peak; lighter ranks are not recorded again for other values of a growing axis


def probing_ranks(
    world: int, values: Mapping[str, str], chosen: Sequence[int] | None = None, loads: Sequence[float] = ()
) -> tuple[int, ...]:
    """Returns the ranks to record: the given ones, else the first and the last rank, and one in the second stage.

    Pipeline stages are consecutive parts of the world in Megatron-LM, torchtitan and nanotron: rank 0 is in the first
    stage (embedding, most micro-batches in flight), the last rank in the last one (logits). The stages between are like
    the second. If no placeholder has the number of stages, a rank in the middle takes the place of the second stage.
    If experts are divided among ranks and have given loads, the ranks with the most loaded experts of each of these
    stages are recorded too.

    Args:
        world: Number of ranks.
        values: Value of each placeholder.
        chosen: Given ranks; those outside a smaller world are omitted.
        loads: Relative load of each expert, or none if the first experts have the most.

    Raises:
        MemdiagError: None of the given ranks is in the world.
    """
    if chosen is not None:
        known = tuple(sorted({rank for rank in chosen if 0 <= rank < world}))
        if not known:
            raise MemdiagError(phrase("fit.error.ranks", world=world), phrase("fit.error.ranks.hint"))
        return known
    stages = min(max(_size(values, STAGES, 2), 1), world)
    of_stage = world // stages
    second = {of_stage} if stages > 1 else set()
    starts = {0, world - of_stage} | second
    # The ranks of a tensor-parallel group are neighbours. They have the same experts (Megatron-LM) or not (torchtitan).
    group = _most_loaded(loads, _size(values, EXPERTS, 1))
    popular = {start + group * apart for start in starts for apart in {1, _size(values, SHRINKING, 1)} if group}
    return tuple(sorted({0, world - 1} | second | {rank for rank in popular if rank < world}))


def _size(values: Mapping[str, str], names: frozenset[str], default: int) -> int:
    """Returns the value of the first placeholder with one of these names."""
    return next((int(text) for name, text in values.items() if name.lower() in names and text.isdigit()), default)


def _most_loaded(loads: Sequence[float], num_groups: int) -> int:
    """Returns the number of the group of consecutive experts that has the largest sum of loads; 0 if it is unknown."""
    if not loads or num_groups < 2 or len(loads) % num_groups:
        return 0
    size = len(loads) // num_groups
    sums = [sum(loads[at * size : (at + 1) * size]) for at in range(num_groups)]
    return sums.index(max(sums))


def read_ranks(text: str) -> tuple[int, ...]:
    """Reads ``0,7,63``.

    Raises:
        MemdiagError: It is not a list of ranks.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise MemdiagError(phrase("fit.error.rank-list", text=text), phrase("fit.error.ranks.hint"))
    return tuple(int(part) for part in parts)
