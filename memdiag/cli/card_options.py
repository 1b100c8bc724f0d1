"""The options that describe a card, for every command that predicts whether a run fits on it."""

from __future__ import annotations

from typing import Annotated

import typer

Capacity = Annotated[
    str | None,
    typer.Option(
        "--capacity",
        metavar="SIZE",
        help="Total memory of the device, for example 64GiB. Default: as recorded.",
        show_default=False,
    ),
]
Outside = Annotated[
    str | None,
    typer.Option(
        "--outside",
        metavar="SIZE",
        help="Device memory used outside the allocator: context, NCCL or HCCL, other processes. Default: as recorded.",
        show_default=False,
    ),
]
