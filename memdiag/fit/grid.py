"""The grid of configurations: ``tp=1,2,4 mbs=1..8 ckpt=none,full``, and which of them are possible (``--where``)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memdiag.errors import MemdiagError
from memdiag.fit.expressions import Expression, number
from memdiag.results.fit import GridAxis
from memdiag.text import phrase

# Placeholders with these names are assumed to need at least as much memory with a larger value.
BATCHES = frozenset(
    {
        "batch",
        "batch_size",
        "bs",
        "mbs",
        "micro_batch",
        "micro_batch_size",
        "microbatch",
        "per_device_train_batch_size",
    }
)
LENGTHS = frozenset({"context", "max_length", "seq", "seq_len", "seq_length", "seqlen", "sequence_length", "tokens"})
GROWING = (
    BATCHES | LENGTHS | frozenset({"depth", "hidden", "hidden_size", "layers", "num_layers", "resolution", "width"})
)
# Placeholders with these names are assumed to need at most as much memory per rank with a larger value: tensor
# parallelism divides weights and activations of each layer among ranks. Pipeline stages are not here, since the first
# stage has more micro-batches in flight.
SHRINKING = frozenset(
    {
        "tp",
        "tp_size",
        "tensor_parallel",
        "tensor_parallel_size",
        "tensor_parallel_degree",
        "tensor_model_parallel_size",
    }
)
# Placeholders with these names are the number of pipeline stages.
STAGES = frozenset({"pp", "pp_size", "pipeline", "pipeline_parallel", "pipeline_parallel_size", "stages", "num_stages"})
# Placeholders with these names are the number of ranks among which experts are divided.
EXPERTS = frozenset({"ep", "ep_size", "expert_parallel", "expert_parallel_size", "expert_model_parallel_size"})
AXIS = re.compile(r"([A-Za-z_]\w*)=(.+)", re.DOTALL)
WORLD = "world"
Cell = tuple[int, ...]  # a configuration: an index into the values of each axis
MOST_CELLS = 100_000
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?::(\d+)|\*(\d+))?")


@dataclass(frozen=True)
class Grid:
    """The configurations to judge.

    Attributes:
        axes: The placeholders.
        cells: Indices into the values of each axis, one tuple for each possible configuration.
        num_excluded: Combinations that a condition excludes.
    """

    axes: tuple[GridAxis, ...]
    cells: tuple[tuple[int, ...], ...]
    num_excluded: int

    def values(self, cell: tuple[int, ...]) -> dict[str, str]:
        """Returns the value of each placeholder in a configuration."""
        return {axis.name: axis.values[at] for axis, at in zip(self.axes, cell, strict=True)}


def read_axes(
    texts: Sequence[str], growing: Iterable[str] | None = None, shrinking: Iterable[str] | None = None
) -> tuple[GridAxis, ...]:
    """Reads axes, each NAME=VALUE,VALUE,… with ranges LOW..HIGH, LOW..HIGH:STEP or LOW..HIGH*FACTOR among the values.

    Args:
        texts: One text for each axis, or several separated by spaces.
        growing: Names whose larger values need at least as much memory; None: by their usual names.
        shrinking: Names whose larger values (for words: later ones) need at most as much memory; None: by their usual
            names.

    Raises:
        MemdiagError: A text is not an axis, an axis has no values, or a name occurs twice.
    """
    words = [word for text in texts for word in text.split()]
    axes = []
    for word in words:
        match = AXIS.fullmatch(word)
        values = _values(word, match[2]) if match else ()
        if match is None or not values:
            raise MemdiagError(phrase("fit.error.axis", text=word), phrase("fit.error.axis.hint"))
        axes.append(_axis(match[1], values, growing, shrinking))
    names = [axis.name for axis in axes]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise MemdiagError(phrase("fit.error.twice", name=twice), phrase("fit.error.twice.hint", name=twice))
    for name in growing or ():
        axis = next((axis for axis in axes if axis.name == name), None)
        if axis is None or not axis.is_growing:
            raise MemdiagError(phrase("fit.error.growing", name=name), phrase("fit.error.growing.hint"))
    for name in shrinking or ():
        if name not in names:
            raise MemdiagError(phrase("fit.error.shrinking", name=name), phrase("fit.error.shrinking.hint"))
        if name in (growing or ()):
            raise MemdiagError(phrase("fit.error.both", name=name), phrase("fit.error.both.hint"))
    return tuple(axes)


def _axis(
    name: str, values: tuple[str, ...], growing: Iterable[str] | None, shrinking: Iterable[str] | None
) -> GridAxis:
    is_numeric = all(isinstance(number(value), int | float) for value in values)
    if is_numeric:
        values = tuple(sorted(values, key=lambda value: float(number(value))))
    is_growing = is_numeric and (name.lower() in GROWING if growing is None else name in growing)
    is_shrinking = is_numeric and name.lower() in SHRINKING if shrinking is None else name in shrinking
    is_chosen = shrinking is not None and is_shrinking  # wins against a usual name of the other kind
    is_growing, is_shrinking = is_growing and not is_chosen, is_shrinking and (is_chosen or not is_growing)
    # Like an order, this is given up where the user names the axes that shrink.
    is_bracketed = is_numeric and name.lower() in STAGES and shrinking is None and not is_growing
    return GridAxis(name, values, is_growing, is_shrinking, is_bracketed)


def _values(word: str, text: str) -> tuple[str, ...]:
    values: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            values += [part] if part else []
            continue
        low, high, step, factor = int(match[1]), int(match[2]), int(match[3] or 1), int(match[4] or 0)
        if low > high or not step or (match[4] and (factor < 2 or low < 1)) or (high - low) // step > MOST_CELLS:
            raise MemdiagError(phrase("fit.error.range", text=word), phrase("fit.error.axis.hint"))
        while low <= high:
            values.append(str(low))
            low = low * factor if factor else low + step
    return tuple(dict.fromkeys(values))


def make_grid(axes: tuple[GridAxis, ...], where: Sequence[str] = (), world: str | None = None) -> Grid:
    """Returns the possible configurations.

    Args:
        axes: The placeholders.
        where: Conditions that a configuration must meet, such as "tp*pp<=world".
        world: Number of ranks, as a number or an expression, or None.

    Raises:
        MemdiagError: A condition is not an expression, or no configuration meets all of them.
    """
    names = frozenset(axis.name for axis in axes)
    if WORLD in names and world is not None:
        raise MemdiagError(phrase("fit.error.world-axis"), phrase("fit.error.world-axis.hint"))
    size = None if world is None else Expression(world, names)
    conditions = [Expression(text, names | ({WORLD} if world is not None else set())) for text in where]
    total = 1
    for axis in axes:
        total *= len(axis.values)
    if total > MOST_CELLS:
        raise MemdiagError(phrase("fit.error.large", count=total, most=MOST_CELLS), phrase("fit.error.large.hint"))
    cells = []
    for cell in itertools.product(*(range(len(axis.values)) for axis in axes)):
        values = {axis.name: axis.values[at] for axis, at in zip(axes, cell, strict=True)}
        known = values if size is None else {**values, WORLD: str(size.value(values))}
        if all(condition.value(known) for condition in conditions):
            cells.append(cell)
    if not cells:
        raise MemdiagError(phrase("fit.error.empty", count=total), phrase("fit.error.empty.hint"))
    return Grid(axes, tuple(cells), total - len(cells))
