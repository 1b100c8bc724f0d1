"""``memdiag devices``: the devices that ``memdiag record --phantom`` can stand in for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.phantom.profiles import Profile


def devices(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="DEVICE", help="Show everything known about this device, with sources.", show_default=False),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """List the simulated devices that a program can be recorded on.

    Exit status: 0 success, 2 error.
    """
    import json
    import sys

    from memdiag.cli.talk import look_of, write_out
    from memdiag.phantom.profiles import choose, profiles

    chosen = [choose(name) for name in names or ()] or list(profiles())
    if as_json:
        shown = {"schema_version": 1, "devices": [_as_dict(profile) for profile in chosen]}
        write_out(json.dumps(shown, indent=2) + "\n")
        return
    from memdiag.render.support.text import in_ascii

    text = (
        "\n".join(line for profile in chosen for line in _page(profile)) if names else "\n".join(_table(chosen, look_of(sys.stdout).width))
    )
    write_out((text if look_of(sys.stdout).unicode else in_ascii(text)) + "\n")


def _as_dict(profile: Profile) -> dict[str, Any]:
    return {
        "name": profile.full_name,
        "backend": profile.backend,
        "product": profile.product,
        "total_bytes": profile.total_bytes,
        "context_bytes": profile.context_bytes,
        "capacity_bytes": profile.capacity_bytes,
        "figures": dict(profile.figures),
        "sources": dict(profile.sources),
        "estimates": dict(profile.estimates),
    }


def _table(chosen: list[Profile], width: int) -> list[str]:
    """One line a device; ~ before a figure that is an estimate."""
    from memdiag.units import format_bytes

    rows: list[tuple[str, ...]] = [tuple(phrase(f"devices.head.{head}") for head in ("device", "room", "total", "product"))]
    for profile in chosen:
        mark = "~" if "total" in profile.estimates or "context" in profile.estimates else ""
        total = "~" if "total" in profile.estimates else ""
        rows.append(
            (profile.full_name, mark + format_bytes(profile.capacity_bytes), total + format_bytes(profile.total_bytes), profile.product)
        )
    from memdiag.render.support.lightpage import LightPage
    from memdiag.render.support.look import Look

    page = LightPage(Look(width=width))
    page.grid("lrrw", rows, indent=0)
    return [
        *page.finish().splitlines(),
        "",
        phrase("devices.estimate", command="memdiag devices DEVICE"),
        phrase("devices.use", command="memdiag record --phantom npu:910b-64g -- python train.py"),
        phrase("devices.capacity", option="--phantom npu:910b-64g,capacity=30GiB"),
    ]


def _page(profile: Profile) -> list[str]:
    """Everything about one device."""
    from memdiag.units import format_bytes

    figures: dict[str, str] = {"total": format_bytes(profile.total_bytes), "context": format_bytes(profile.context_bytes)}
    figures |= {name: str(value) for name, value in profile.figures.items()}
    facts = {"name": profile.full_name, "product": profile.product, "bytes": format_bytes(profile.capacity_bytes)}
    lines: list[str] = [phrase("devices.title", **facts)]
    for name, value in figures.items():
        lines.append(f"  {name} {phrase('devices.estimated', value=value) if name in profile.estimates else value}")
    lines += [f"  {phrase('devices.source', name=name, text=text)}" for name, text in profile.sources.items()]
    lines += [f"  {phrase('devices.why', name=name, text=text)}" for name, text in profile.estimates.items()]
    return [*lines, ""]
