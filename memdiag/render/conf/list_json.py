"""The table of all allocator settings for programs."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import Key, Layout, Shape
from memdiag.settings.listing import ListedBackend, Listing
from memdiag.settings.model import Key as Setting
from memdiag.settings.model import version_text
from memdiag.settings.variables import Variable

_SETTING = Shape(
    Setting,
    (
        Key("key", lambda key: key.name, str, "Name of the setting."),
        Key(
            "type",
            lambda key: key.kind,
            str,
            'Type of the value: "mib", "kib", "count", "fraction", "bool", "word" or "divisions".',
        ),
        Key("meaning", lambda key: key.meaning, str, "Effect of the setting."),
        Key("default", lambda key: key.default, str, "Value that applies if the setting is absent."),
        Key("range", lambda key: key.range, str, "Allowed values."),
        Key("since", lambda key: version_text(key.since), str, "First version that knows the setting."),
        Key(
            "until",
            lambda key: version_text(key.until) if key.until else None,
            str | None,
            "First version that no longer knows the setting; null: the newest version knows it.",
        ),
        "replaced_by",
    ),
    null_if_empty=frozenset({"replaced_by"}),
)

LAYOUT = Layout(
    name="conf-list",
    title="memdiag conf --list --json",
    meaning="All allocator settings and environment variables that memdiag knows.",
    version=1,
    root=Listing,
    shapes=(
        Shape(Listing, ("torch_version", "backends", "variables")),
        Shape(ListedBackend, ("backend", "variable", "keys")),
        _SETTING,
        Shape(Variable, ("name", "meaning", "range", "backends")),
    ),
    has_program_version=False,
)


def render(table: Listing, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the table as one JSON object."""
    return LAYOUT.text(table)
