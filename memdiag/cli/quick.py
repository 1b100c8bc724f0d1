"""Commands that are there at once: typer loads pydantic (60 ms) to check each value, also of options that nobody gave.

Newer versions of typer build that check on first use and keep it with the parameter. Here a stand-in takes its place that knows
"not given", texts, paths and flags, and asks typer for all else. With versions that do not work like this, nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup

_UNKNOWN = object()


class QuickCommand(TyperCommand):
    """A typer command that loads what checks values only when there is one to check."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads its part of the command line."""
        _quicken(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Shows the help: an option that is given or not takes no value, and none is shown for it."""
        _without_types(self.get_params(ctx))
        super().format_help(ctx, formatter)


class TextCommand(QuickCommand):
    """One whose arguments may be text: dashes with a blank behind them ("---- CUDA out of memory") are no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads its part of the command line."""
        return super().parse_args(
            ctx, [f" {arg}" if arg.lstrip("-")[:1].isspace() and arg[0] == "-" else arg for arg in args]
        )


class QuickGroup(TyperGroup):
    """The same for the options before the name of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads its part of the command line."""
        _quicken(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Shows the help, as above."""
        _without_types(self.get_params(ctx))
        super().format_help(ctx, formatter)


class _WhenGiven:
    """Stands in for typer's check of a value. Whatever it does not know, it leaves to that check.

    Args:
        param: The parameter whose check it replaces.
    """

    def __init__(self, param: Any) -> None:
        self._param = param

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of typer's check, which takes its place again."""
        return getattr(self._check(), name)

    def coerce(self, *args: Any, **others: Any) -> Any:
        """Returns the value as the command takes it."""
        value = args[0] if args else others.get("value", _UNKNOWN)
        try:
            known = _as_it_is(value, self._param)
        except (AttributeError, TypeError):
            known = _UNKNOWN
        return self._check().coerce(*args, **others) if known is _UNKNOWN else known

    def _check(self) -> Any:
        self._param._runtime_param = None  # noqa: SLF001 - as below
        return self._param.get_runtime_param()


def _as_it_is(value: Any, param: Any) -> Any:
    """Returns the value of a text, a path of which nothing is asked, a flag, or nothing; _UNKNOWN: typer has to look at it."""
    if value is None:
        return () if param.multiple or param.nargs == -1 else None
    wanted = param.type_descriptor.annotation
    if wanted is bool and isinstance(value, bool):
        return value
    if wanted is str and isinstance(value, str):
        return value
    if wanted is Path and isinstance(value, str) and not _asks(param.type_descriptor.parameter_info):
        return Path(value)
    if (
        wanted in (list[str], list[Path])
        and isinstance(value, list | tuple)
        and all(isinstance(each, str) for each in value)
    ):
        return [Path(each) for each in value] if wanted == list[Path] else list(value)
    return _UNKNOWN


def _asks(info: Any) -> bool:
    return any(getattr(info, name, False) for name in ("exists", "writable", "resolve_path", "allow_dash", "path_type"))


def _quicken(params: Iterable[Any]) -> None:
    for param in params:
        is_unbuilt = getattr(param, "_runtime_param", param) is None
        if is_unbuilt and callable(getattr(param, "get_runtime_param", None)) and hasattr(param, "type_descriptor"):
            param._runtime_param = _WhenGiven(param)  # noqa: SLF001 - there is no public place for it


def _without_types(params: Iterable[Any]) -> None:
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
