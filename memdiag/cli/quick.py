"""Commands that start faster: typer loads pydantic (60 ms) to check every value, even of options that were not given.

Newer versions of typer build this check on first use and store it in the parameter. This module stores a placeholder
instead. The placeholder handles missing values, texts, paths and flags itself, and delegates all other values to typer.
Older versions of typer are left unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup

_UNKNOWN = object()


class QuickCommand(TyperCommand):
    """A typer command that loads pydantic only if a value needs its check."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads its part of the command line."""
        _quicken(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Shows the help, without a value type for flags."""
        _without_types(self.get_params(ctx))
        super().format_help(ctx, formatter)


class TextCommand(QuickCommand):
    """A command whose arguments may be text.

    Dashes followed by a space ("---- CUDA out of memory") are not an option.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads its part of the command line."""
        return super().parse_args(
            ctx, [f" {arg}" if arg.lstrip("-")[:1].isspace() and arg[0] == "-" else arg for arg in args]
        )


class QuickGroup(TyperGroup):
    """A typer group that handles the options before the command name as ``QuickCommand`` does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads its part of the command line."""
        _quicken(self.get_params(ctx))
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Shows the help, without a value type for flags."""
        _without_types(self.get_params(ctx))
        super().format_help(ctx, formatter)


class _WhenGiven:
    """Placeholder for typer's check of a value; it delegates unknown types to that check.

    Args:
        param: The parameter whose check it replaces.
    """

    def __init__(self, param: Any) -> None:
        self._param = param

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of typer's check, which replaces the placeholder."""
        return getattr(self._check(), name)

    def coerce(self, *args: Any, **others: Any) -> Any:
        """Returns the value in the type of the command's parameter."""
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
    """Returns the converted value of a text, an unchecked path, a flag, a default number or a missing option.

    Returns _UNKNOWN if typer must check and convert the value.
    """
    if value is None:
        return () if param.multiple or param.nargs == -1 else None
    wanted = param.type_descriptor.annotation
    if wanted is bool and isinstance(value, bool):
        return value
    if wanted is str and isinstance(value, str):
        return value
    if wanted in (int, float) and type(value) is wanted:  # the default; the command line holds texts
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
            param._runtime_param = _WhenGiven(param)  # noqa: SLF001 - typer has no public interface for it


def _without_types(params: Iterable[Any]) -> None:
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
