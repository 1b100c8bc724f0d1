"""Training and inference programs that memdiag brings along, for ``memdiag fit --model CONFIG --recipe NAME``."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.results.fit import GridAxis
from memdiag.text import phrase

PROGRAM = Path(__file__).parents[1] / "recipes" / "huggingface.py"
# Recipes by name, and whether they need several ranks (--world).
RECIPES = {"train": False, "lora": False, "inference": False, "ddp": True, "zero1": True, "fsdp2": True}
# Options of the program that may be axes of the grid, under the same names.
AXES = ("mbs", "seq", "new", "ckpt", "precision", "optimizer", "attention", "lora-rank", "accumulate", "layers")
USUAL_GRID = ("mbs=1,2,4,8",)


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
    config = model / "config.json" if model.is_dir() else model
    if not config.is_file():
        raise MemdiagError(phrase("fit.error.model", path=str(config)), phrase("fit.error.model.hint"))
    if recipe not in RECIPES:
        raise MemdiagError(
            phrase("fit.error.recipe", name=recipe), phrase("fit.error.recipe.hint", names=", ".join(RECIPES))
        )
    if RECIPES[recipe] and world is None:
        raise MemdiagError(phrase("fit.error.recipe-world", name=recipe), phrase("fit.error.recipe-world.hint"))
    words = [python, str(PROGRAM), "--model", str(model.resolve()), "--recipe", recipe, "--backend", "{backend}"]
    for axis in axes:
        option = axis.name.replace("_", "-")
        if option not in AXES:
            close = difflib.get_close_matches(option, AXES, n=1)
            meant = phrase("errors.meant", name=close[0]) if close else ""
            raise MemdiagError(
                phrase("fit.error.recipe-axis", name=axis.name),
                phrase("fit.error.recipe-axis.hint", meant=meant, names=", ".join(AXES)),
            )
        words += [f"--{option}", f"{{{axis.name}}}"]
    return tuple(words)
