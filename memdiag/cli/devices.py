"""``memdiag devices``: the devices that ``memdiag record --phantom`` can simulate."""

from __future__ import annotations

from typing import Annotated

import typer

from memdiag.cli.options import AsJson


def devices(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DEVICE", help="Show everything known about this device, with sources.", show_default=False
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the simulated devices that a program can be recorded on.

    Exit status: 0 success, 2 error.
    """
    import sys

    from memdiag.cli.talk import look_of, write_out
    from memdiag.render import renderer
    from memdiag.runs.devices import simulated_devices
    from memdiag.text import in_ascii

    found = simulated_devices(names or ())
    look = look_of(sys.stdout)
    text = renderer("devices", "json" if as_json else "full" if names else "terminal")(found, look)
    write_out(text if as_json or look.unicode else in_ascii(text))
