"""The table of all settings, for ``memdiag conf --list``."""

from __future__ import annotations

from memdiag.results.conf import KnownSetting, KnownVariable, ListedBackend, Listing
from memdiag.settings.model import Key, Version, version_text
from memdiag.settings.tables import KEYS, VARIABLE, known
from memdiag.settings.variables import VARIABLES


def listing(backends: tuple[str, ...], version: Version | None) -> Listing:
    """Returns the table of ``backends``, for one ``version`` or for all."""
    rows = []
    for backend in backends:
        keys = KEYS[backend] if version is None else tuple(known(backend, version).values())
        rows.append(ListedBackend(backend, VARIABLE[backend], tuple(map(_setting, keys))))
    variables = tuple(
        KnownVariable(variable.name, variable.meaning, variable.range, variable.backends)
        for variable in VARIABLES
        if set(variable.backends) & set(backends)
    )
    return Listing(None if version is None else version_text(version), tuple(rows), variables)


def _setting(key: Key) -> KnownSetting:
    return KnownSetting(
        key=key.name,
        type=key.kind,
        meaning=key.meaning,
        default=key.default,
        range=key.range,
        since=version_text(key.since),
        until=version_text(key.until) if key.until else None,
        replaced_by=key.replaced_by or None,
    )
