"""Commands that are there at once: typer loads pydantic (60 ms) to check each value, also of options that nobody gave.

Newer versions of typer build that check on first use and keep it with the parameter. Here a stand-in takes its place that knows two
answers, "not given" and "texts as they are", and asks typer for any other. With versions that do not work like this, nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup


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
        return super().parse_args(ctx, [f" {arg}" if arg.lstrip("-")[:1].isspace() and arg[0] == "-" else arg for arg in args])


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
    """Stands in for typer's check of a value."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        if param.nargs == -1 and param.type_descriptor.annotation == list[str]:
            return list(value)
        param._runtime_param = None  # noqa: SLF001 - as below
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _quicken(params: Iterable[Any]) -> None:
    for param in params:
        if getattr(param, "_runtime_param", params) is None:
            param._runtime_param = _WhenGiven()  # noqa: SLF001 - there is no public place for it


def _without_types(params: Iterable[Any]) -> None:
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
