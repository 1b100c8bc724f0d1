"""Training and inference programs that memdiag brings along, for ``memdiag fit --model CONFIG --recipe NAME``."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.results.fit import GridAxis
from memdiag.text import phrase

_FOLDER = Path(__file__).parents[1] / "recipes"
PROGRAM, MEGATRON = _FOLDER / "huggingface.py", _FOLDER / "megatron_core.py"
# Options of the programs that may be axes of the grid, under the same names.
AXES = (
    *("mbs", "seq", "image", "new", "ckpt", "precision", "optimizer", "attention"),
    *("lora-rank", "accumulate", "layers"),
)
MEGATRON_AXES = (
    *("tp", "pp", "ep", "mbs", "micro", "seq", "ckpt", "attention", "optimizer"),
    *("capacity", "layers"),
)
USUAL_GRID = ("mbs=1,2,4,8",)
# Images are found by the tokens that stand for them: memdiag computes masks of tokens, but no activations.
IMAGE_COMPUTE = "masks"


@dataclass(frozen=True)
class Recipe:
    """A recipe.

    Attributes:
        has_ranks: Whether it needs several ranks (``--world``).
        program: Its program.
        axes: Options of the program that may be axes of the grid.
    """

    has_ranks: bool
    program: Path = PROGRAM
    axes: tuple[str, ...] = AXES


RECIPES = {
    **{name: Recipe(has_ranks=False) for name in ("train", "lora", "inference")},
    **{name: Recipe(has_ranks=True) for name in ("ddp", "zero1", "zero3", "fsdp2")},
    "megatron": Recipe(has_ranks=True, program=MEGATRON, axes=MEGATRON_AXES),
}


def command_of(python: str, model: Path, recipe: str, axes: Sequence[GridAxis], world: str | None) -> tuple[str, ...]:
    """Returns the command of a recipe, with a placeholder for each axis.

    Args:
        python: The Python with torch and transformers.
        model: A model's config.json, or a folder with it.
        recipe: Key of ``RECIPES``.
        axes: Axes of the grid: options of the program.
        world: Number of ranks, or None.

    Raises:
        MemdiagError: The model or the recipe does not exist, the recipe needs ranks, or an axis is no option of it.
    """
    _config(model)
    if recipe not in RECIPES:
        raise MemdiagError(
            phrase("fit.error.recipe", name=recipe), phrase("fit.error.recipe.hint", names=", ".join(RECIPES))
        )
    chosen = RECIPES[recipe]
    if chosen.has_ranks and world is None:
        raise MemdiagError(phrase("fit.error.recipe-world", name=recipe), phrase("fit.error.recipe-world.hint"))
    words = [python, str(chosen.program), "--model", str(model.resolve()), "--recipe", recipe, "--backend", "{backend}"]
    for axis in axes:
        option = axis.name.replace("_", "-")
        if option not in chosen.axes:
            close = difflib.get_close_matches(option, chosen.axes, n=1)
            meant = phrase("errors.meant", name=close[0]) if close else ""
            raise MemdiagError(
                phrase("fit.error.recipe-axis", name=axis.name),
                phrase("fit.error.recipe-axis.hint", meant=meant, names=", ".join(chosen.axes)),
            )
        words += [f"--{option}", f"{{{axis.name}}}"]
    return tuple(words)


def compute_for(model: Path) -> str | None:
    """Returns the option ``--compute`` that the recipes of a model need, or None: one for a model that sees images.

    Raises:
        MemdiagError: The model has no configuration, or it is not JSON.
    """
    config = _config(model)
    try:
        told = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MemdiagError(
            phrase("fit.error.model-json", path=str(config), error=str(error)), phrase("fit.error.model.hint")
        ) from None
    return IMAGE_COMPUTE if isinstance(told, dict) and "vision_config" in told else None


def _config(model: Path) -> Path:
    """Returns the file with the configuration of a model.

    Raises:
        MemdiagError: It does not exist.
    """
    config = model / "config.json" if model.is_dir() else model
    if not config.is_file():
        raise MemdiagError(phrase("fit.error.model", path=str(config)), phrase("fit.error.model.hint"))
    return config
