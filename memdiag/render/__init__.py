"""Results of commands as text: a folder per command, with a file per form.

``renderer("oom", "md")`` returns ``memdiag.render.oom.md:render``. Code that several commands share is in ``support``.

A renderer lays out the content of the report and computes nothing about memory. All text from a file (paths, frames,
names) goes through ``memdiag.text.plain`` first: a name in a trace must not be able to move the cursor, colour the
terminal or forge a line of the report.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

# The forms of each command. Most are ``render(report, look: Look = PLAIN) -> str``; those in PICTURES differ.
FORMS: dict[str, tuple[str, ...]] = {
    "analyze": ("terminal", "full", "json", "md", "html"),
    "bisect": ("terminal", "json"),
    "check": ("terminal", "json", "junit", "github"),
    "compare": ("terminal", "json", "md", "html"),
    "conf": ("terminal", "json", "list_terminal", "list_json"),
    "devices": ("terminal", "full", "json"),
    "doctor": ("terminal", "json"),
    "explain": ("terminal", "json", "list_terminal"),
    "export": ("json",),
    "find_max": ("terminal", "json"),  # record --find-max
    "fix": ("terminal", "json"),
    "fit": ("terminal", "json", "md", "html", "csv"),
    "fleet": ("terminal", "json", "md", "html", "picture"),
    "lint": ("terminal", "json", "github", "sarif"),
    "oom": ("terminal", "json", "md"),
    "plan": ("terminal", "json"),
    "plot": (
        "timeline",
        "fragmentation",
        "lifetimes",
        "policies",
        "map",
        "card",
        "json",
    ),  # the kinds of plots, and their list
    "record": ("terminal",),
    "serve_fit": ("terminal", "json", "md"),  # memdiag serve-fit
    "serving": ("terminal", "json", "md"),
    "simulate": ("terminal", "json"),
    "try_run": ("terminal", "json"),  # memdiag try: a keyword cannot name a package
    "tune": ("terminal", "json"),
    "watch": ("terminal", "json"),
}

# Forms that need the trace as well as the report, or that are not text; each documents its arguments.
PICTURES = {("analyze", "html"), ("fleet", "picture"), *(("plot", kind) for kind in FORMS["plot"] if kind != "json")}


def renderer(command: str, form: str) -> Callable[..., Any]:
    """Returns the renderer of a command's result in a form, importing it on demand.

    Raises:
        KeyError: The command does not have this form.
    """
    if form not in FORMS[command]:
        raise KeyError(f"memdiag {command} has no form {form}")
    render: Callable[..., Any] = import_module(f"memdiag.render.{command}.{form}").render
    return render
