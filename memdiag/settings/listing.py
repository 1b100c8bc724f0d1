"""The table of all settings, for ``memdiag conf --list``."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.settings.model import Key, Version, version_text
from memdiag.settings.tables import KEYS, VARIABLE, backend_words, known
from memdiag.settings.variables import VARIABLES, Variable


@dataclass(frozen=True, slots=True)
class ListedBackend:
    """The settings of one backend.

    Attributes:
        backend: "cuda", "hip", "npu" or "mindspeed".
        name: The backend in words.
        variable: The environment variable that holds the settings.
        keys: The settings, in order.
    """

    backend: str
    name: str
    variable: str
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """The table of all settings.

    Attributes:
        backends: Settings by backend.
        variables: Other environment variables that affect memory.
        torch_version: Version whose settings are listed; null: all versions.
    """

    backends: tuple[ListedBackend, ...]
    variables: tuple[Variable, ...]
    torch_version: str | None


def listing(backends: tuple[str, ...], version: Version | None) -> Listing:
    """Returns the table of ``backends``, for one ``version`` or for all."""
    rows = []
    for backend in backends:
        keys = KEYS[backend] if version is None else tuple(known(backend, version).values())
        rows.append(ListedBackend(backend, backend_words(backend), VARIABLE[backend], keys))
    variables = tuple(variable for variable in VARIABLES if set(variable.backends) & set(backends))
    return Listing(tuple(rows), variables, None if version is None else version_text(version))
