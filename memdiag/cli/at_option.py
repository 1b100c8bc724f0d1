"""The option ``--at`` of every command that looks at one moment of a trace."""

from __future__ import annotations

from typing import Annotated

import typer

At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="MOMENT",
        help="Moment to describe: oom (the last failed allocation), peak, allocated or reserved (the peak of that "
        "curve), end, or an event number such as 1204. Default: oom if the trace has one, else peak.",
        show_default=False,
    ),
]


def read_moment(at: str | None) -> str | int:
    """Returns the moment given with ``--at`` (see ``memdiag.trace.moments``), or the default moment.

    Raises:
        MemdiagError: The text does not name a moment.
    """
    from memdiag.trace.moments import DEFAULT, parse_moment  # deferred, so that --help does not load memdiag.trace

    return DEFAULT if at is None else parse_moment(at)
