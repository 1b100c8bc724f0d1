"""The options ``--engine`` and ``--address``: this machine, or a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from memdiag.errors import MemdiagError
from memdiag.text import phrase

Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Address of the Ray cluster (requires --engine ray).",
        show_default=False,
    ),
]


def check_engine(engine: str, address: str | None) -> None:
    """Checks that an engine exists, and that an address is that of a cluster.

    Raises:
        MemdiagError: There is no such engine, or the local one has an address.
    """
    from memdiag.fleet.engines import FLEET_ENGINES

    if engine not in FLEET_ENGINES:
        raise MemdiagError(
            phrase("errors.engine", engine=engine, value=" nor ".join(FLEET_ENGINES)), phrase("errors.engine.hint")
        )
    if address is not None and engine != "ray":
        raise MemdiagError(phrase("errors.address"), phrase("errors.address.hint"))
