"""The command ``memdiag``: the list of commands, and the handling of errors.

Exit status: 0 success; 1 a condition (``--fail-on``) matched; 2 error; 130 interrupted. Data goes to stdout, everything
else to stderr. ``MEMDIAG_DEBUG=1`` shows the traceback of an error as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

from memdiag.cli.examples import SUMMARIES, TASKS, epilog
from memdiag.cli.quick import QuickCommand, QuickGroup, TextCommand
from memdiag.cli.talk import do_without_unicode, say_error
from memdiag.errors import COULD_NOT, DONE, MemdiagError

INTERRUPTED = 130
_REDACT, _LANG = "--redact", "--lang"

COMMANDS = tuple(TASKS)  # in the order of the help; each is a module of this package with a function of that name
_IN_PYTHON = {"try": "try_run", "serve-fit": "serve_fit"}  # names that Python does not allow


def app_of(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Returns the command line with the given commands only, because typer needs 50 ms to describe all of them."""
    app = _app()
    for name in names:
        called = _IN_PYTHON.get(name, name)
        function = getattr(import_module(f"memdiag.cli.{called}"), called)
        settings = {"allow_interspersed_args": False} if name == "record" else None
        kind = TextCommand if name == "oom" else QuickCommand
        app.command(name, cls=kind, context_settings=settings, epilog=epilog(name), rich_help_panel=TASKS[name])(
            function
        )
    return app


def _list_of_commands() -> typer.Typer:
    """Returns a command line that can show its own help only: the commands have summaries, but no options."""
    app = _app()
    for name in COMMANDS:
        app.command(name, help=SUMMARIES[name], rich_help_panel=TASKS[name])(_listed)
    return app


def _listed() -> None:
    """Stands for every command in the list of commands."""


def _app() -> typer.Typer:
    app = typer.Typer(
        name="memdiag",
        cls=QuickGroup,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    return app


def _app_for(arguments: list[str]) -> typer.Typer:
    """Returns the command line with the commands that these arguments need: the called one, or all if it is unknown."""
    first = next(iter(arguments), "--help")
    if first in {"-h", "--help"}:
        return _list_of_commands()
    return app_of(() if first == "--version" else (first,) if first in COMMANDS else COMMANDS)


def _show_version(wanted: bool) -> None:
    if wanted:
        from memdiag.version import __version__

        typer.echo(f"memdiag {__version__}")
        raise typer.Exit


def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    *,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact",
            help="Strip paths, user names, command lines and environment from all output; details: memdiag "
            "explain redact.",
        ),
    ] = False,
    _lang: Annotated[  # main() reads it, since it may follow the name of the command
        str,
        typer.Option(
            "--lang",
            metavar="en|zh",
            help="Language of reports. Default: the environment variable MEMDIAG_LANG, else the locale.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Find out why an accelerator (CUDA, Ascend NPU) ran out of memory, and how to prevent it."""
    if redact:
        from memdiag.redaction import turn_on

        turn_on()


def _common(arguments: list[str]) -> tuple[bool, str, list[str]]:
    """Returns ``--redact``, the value of ``--lang`` ("": not given) and all other arguments.

    Every command accepts these two options in any position. Arguments after ``record`` or ``--`` belong to another
    program.
    """
    redact, lang, rest = False, "", []
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    left = iter(ours)
    for each in left:
        if each == "record":
            rest += [each, *left]
        elif each == _REDACT:
            redact = True
        elif each == _LANG:
            lang = next(left, "") or "?"
        elif each.startswith(f"{_LANG}="):
            lang = each.removeprefix(f"{_LANG}=") or "?"
        else:
            rest.append(each)
    return redact, lang, rest + arguments[len(ours) :]


def _choose_language(arguments: list[str], lang: str) -> None:
    """Chooses the language of the output: that of ``--lang``, else English for JSON, else that of the environment.

    Raises:
        MemdiagError: memdiag does not support the language.
    """
    from memdiag import text

    to_json = "--json" in arguments or any(each.endswith(".json") for each in arguments)
    text.set_language(text.checked(lang) if lang else "en" if to_json else text.from_environment())


def _trace_back() -> None:
    if os.environ.get("MEMDIAG_DEBUG", "") not in {"", "0"}:
        import traceback

        traceback.print_exc()


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status.

    Args:
        arguments: The arguments without the name of the program; None: those of the process.
    """
    given = sys.argv[1:] if arguments is None else arguments
    do_without_unicode()
    try:
        if _REDACT in given or "MEMDIAG_REDACT" in os.environ:
            from memdiag.redaction import note_given

            note_given(given)
        redact, lang, rest = _common(given)
        _choose_language(rest, lang)
        _app_for(rest)([*([_REDACT] if redact else []), *rest], prog_name="memdiag")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else DONE if done.code is None else COULD_NOT
    except KeyboardInterrupt:
        return INTERRUPTED
    except MemdiagError as error:
        _trace_back()
        say_error(error.message, error.hint)
        return error.exit_code
    except MemoryError:
        _trace_back()
        say_error(
            "there is not enough memory to read this file",
            "use a machine with more memory, or record fewer events (max_entries)",
        )
        return COULD_NOT
    except OSError as error:
        _trace_back()
        where = f"{error.filename}: " if error.filename else ""
        say_error(
            where + (error.strerror or str(error)), "check the path, its permissions, and the free space on the disk"
        )
        return COULD_NOT
    except Exception as error:  # noqa: BLE001 - the last resort, so that users do not see a traceback
        if isinstance(error.__cause__, KeyboardInterrupt):  # Ctrl-C in a compiled loop arrives as a SystemError
            return INTERRUPTED
        _trace_back()
        say_error(
            f"internal: {type(error).__name__}: {error}",
            "this is a bug in memdiag: set MEMDIAG_DEBUG=1 for a traceback to report",
        )
        return COULD_NOT
    return DONE
