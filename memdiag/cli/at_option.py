"""The option ``--at`` of every command that looks at one moment of a trace."""

from __future__ import annotations

from typing import Annotated

import typer

At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="MOMENT",
        help="Moment to report: oom, peak, allocated, reserved, end, or an event such as 1204. "
        "Default: oom (the last failed allocation) if the trace has one, else peak.",
        show_default=False,
    ),
]


def read_moment(at: str | None) -> str | int:
    """Returns the moment that ``--at`` names, see ``memdiag.trace.moments``; without the option the default one.

    Raises:
        MemdiagError: It names none.
    """
    from memdiag.trace.moments import DEFAULT, parse_moment  # --help loads nothing of the trace

    return DEFAULT if at is None else parse_moment(at)
