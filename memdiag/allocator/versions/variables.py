"""Environment variables of an allocator, written before its settings: ``ALR_MAX=60000000000,max_split_size_mb:64``.

Keys of settings are followed by a colon, variables by an equals sign, as in a shell.
"""

from __future__ import annotations

from collections.abc import Collection

from memdiag.errors import MemdiagError
from memdiag.settings.written import entries
from memdiag.text import phrase


def split(text: str) -> tuple[dict[str, str], str]:
    """Returns the variables in a settings text, and the text without them."""
    found = entries(text)
    variables = {entry.key: entry.value or "" for entry in found if entry.oddity == "equals"}
    settings = [entry.text for entry in found if entry.oddity != "equals"]
    return variables, ",".join(settings) if variables else text


def settings_of(text: str) -> str:
    """Returns a settings text without the variables in it."""
    return split(text)[1]


def written(variables: dict[str, str], settings: str) -> str:
    """Returns the text that ``split`` separates into these variables and settings."""
    items = [f"{name}={value}" for name, value in variables.items()]
    return ",".join([*items, settings] if settings else items)


def known(variables: dict[str, str], names: Collection[str], whose: str) -> None:
    """Checks that all ``variables`` are among ``names``.

    Raises:
        MemdiagError: A variable is not among them.
    """
    for name in variables:
        if name not in names:
            have = phrase("errors.variable.hint", names=", ".join(names)) if names else phrase("errors.variable.none")
            raise MemdiagError(phrase("errors.variable", policy=whose, name=name), have)


def number(name: str, text: str, lowest: int = 0) -> int:
    """Returns a whole number of at least ``lowest``.

    Raises:
        MemdiagError: The text is not such a number.
    """
    if not text.isdigit() or not lowest <= int(text) < 1 << 62:
        raise MemdiagError(
            phrase("errors.whole-number", name=str(name), text=str(text), lowest=str(lowest)),
            phrase("errors.budget.example", name=str(name), value=str(max(lowest, 1))),
        )
    return int(text)
