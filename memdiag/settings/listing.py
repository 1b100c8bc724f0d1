"""The table of all settings, for ``memdiag conf --list``."""

from __future__ import annotations

from dataclasses import dataclass, field

from memdiag.results.finding import SCHEMA_VERSION
from memdiag.settings.model import Key, Version, version_text
from memdiag.settings.tables import KEYS, VARIABLE, backend_words, known
from memdiag.settings.variables import VARIABLES, Variable


@dataclass(frozen=True, slots=True)
class Listing:
    """The table of all settings.

    Attributes:
        backends: Backend, its name in words, its variable and its keys, in order.
        variables: The environment variables beside them.
        torch_version: Only keys of this version are listed; None: all.
    """

    backends: tuple[tuple[str, str, str, tuple[Key, ...]], ...]
    variables: tuple[Variable, ...]
    torch_version: str | None
    schema_version: int = field(default=SCHEMA_VERSION)


def listing(backends: tuple[str, ...], version: Version | None) -> Listing:
    """Returns the table of ``backends``; of one ``version``, or of all."""
    rows = []
    for backend in backends:
        keys = KEYS[backend] if version is None else tuple(known(backend, version).values())
        rows.append((backend, backend_words(backend), VARIABLE[backend], keys))
    variables = tuple(variable for variable in VARIABLES if set(variable.backends) & set(backends))
    return Listing(tuple(rows), variables, None if version is None else version_text(version))
