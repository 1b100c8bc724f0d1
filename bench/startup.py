"""Times ``memdiag --help`` and ``memdiag --version`` against a hello-world typer app with as many commands and rich help.

    python bench/startup.py

The hello app is written to a temporary folder: a module (compiled to bytecode like an installed one) with as many commands as
memdiag has, each with a docstring and two options, ``rich_markup_mode="rich"`` and an eager ``--version``, started by a script like
the ones that pip makes. Both run in the interpreter of this script, in turns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from measuring import Contender, Machine, markdown_table, measure, write_report

TARGET = 1.3

HEAD = '''"""A hello-world app."""

from typing import Annotated

import typer

app = typer.Typer(name="hello", no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo("hello 0.1.0")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Say hello, in several ways."""
'''

COMMAND = '''

@app.command()
def hello{number}(
    name: Annotated[str, typer.Argument(help="Whom to greet.")],
    loud: Annotated[bool, typer.Option("--loud", help="Shout it.")] = False,
    times: Annotated[int, typer.Option("--times", min=1, help="How often.")] = 1,
) -> None:
    """Say hello in way {number}."""
    print(f"hello {{name}}")
'''

SCRIPT = "import sys\nfrom hello_app import app\nif __name__ == '__main__':\n    sys.exit(app())\n"


def num_commands() -> int:
    """Commands that memdiag has."""
    from memdiag.cli.main import app

    return len(app.registered_commands) + len(app.registered_groups)


def write_hello(folder: Path, commands: int) -> Path:
    """Writes the hello app and returns the script that starts it."""
    # A callback keeps typer from turning a single command into the program itself, so one command is a fair case too.
    (folder / "hello_app.py").write_text(HEAD + "".join(COMMAND.format(number=number) for number in range(1, commands + 1)))
    script = folder / "hello.py"
    script.write_text(SCRIPT)
    return script


def main() -> None:
    """Measures and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=25, help="measured runs of each (default 25)")
    parser.add_argument("--memdiag", type=Path, default=Path(sys.executable).with_name("memdiag"))
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parents[1] / "reports" / "bench-startup", help="report, without suffix"
    )
    args = parser.parse_args()
    here = Machine.here()
    commands = num_commands()
    with tempfile.TemporaryDirectory() as folder:
        script = write_hello(Path(folder), commands)
        runners = [
            Contender(f"{name} {option}", [*command, option])
            for option in ("--help", "--version")
            for name, command in (("memdiag", [str(args.memdiag)]), ("hello", [sys.executable, str(script)]))
        ]
        measure(runners, args.runs, Path(folder))
    found = [
        {
            "option": ours.command[-1],
            "best": round(ours.best / other.best, 3),
            "median": round(ours.median / other.median, 3),
            "target": TARGET,
        }
        for ours, other in (runners[:2], runners[2:])
    ]
    times = [[r.name, f"{r.best * 1000:.0f}", f"{r.median * 1000:.0f}", f"{r.peak_bytes / 1e6:.0f}"] for r in runners]
    verdicts = [
        [
            f"memdiag / hello: {row['option']}",
            f"{row['best']:.2f}",
            f"{row['median']:.2f}",
            f"{TARGET}",
            "met" if row["median"] <= TARGET else "MISSED",
        ]
        for row in found
    ]
    text = (
        "# Start-up, measured\n\n"
        f"Made by bench/startup.py: whole processes, in turns, {args.runs} runs each after one that is not counted. `hello` is a typer "
        f"app with {commands} command{'s' * (commands != 1)}, as many as memdiag has, and rich help.\n\n"
        f"{markdown_table(['', 'best ms', 'median ms', 'peak MB'], times)}\n"
        f"{markdown_table(['', 'best', 'median', 'at most', ''], verdicts)}\n"
        f"{here.sentence()}\n"
    )
    data: dict[str, object] = {
        "machine": asdict(here),
        "commands": commands,
        "contenders": [runner.as_dict() for runner in runners],
        "ratios": found,
    }
    write_report(args.output, text, data)
    print(text)


if __name__ == "__main__":
    main()
