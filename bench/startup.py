"""Times ``memdiag --help``, ``--version`` and ``memdiag oom`` against a minimal typer app, and the first ``analyze``.

    python bench/startup.py

The hello app is written to a temporary folder: a module (compiled to bytecode like an installed one) with as many
commands as memdiag has, each with a docstring and two options, ``rich_markup_mode="rich"`` and an eager ``--version``,
started by a script like the ones that pip makes. What ``oom`` is measured against is a command of it that prints a rich
table of three rows. Both run in the interpreter of this script, in turns.

The first run of ``memdiag analyze examples/gpt-train.pickle`` is measured with an empty cache of compiled code, before
and after the process that it starts in the background has filled the cache.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from measuring import Contender, Machine, markdown_table, measure, write_report

TARGET = 1.3
FIRST_RUN_TARGET = 5.0  # seconds
EXAMPLE = Path(__file__).parents[1] / "examples" / "gpt-train.pickle"
_MOST_SECONDS = 600.0  # in which a background process fills the cache

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
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version \
and exit.")] = False,
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

TABLE = '''

@app.command()
def table(name: Annotated[str, typer.Argument(help="Whom to greet.")]) -> None:
    """Say hello in a table."""
    from rich.console import Console
    from rich.table import Table

    shown = Table("who", "what", title="hello")
    for number in range(3):
        shown.add_row(name, f"hello {number}")
    Console().print(shown)
'''

# As PyTorch 2.5 prints it.
MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 3 has a total capacity of 47.41 GiB "
    "of which 270.69 MiB is free. Including non-PyTorch memory, this process has 47.13 GiB memory in use. Of the "
    "allocated memory 33.30 GiB is allocated by PyTorch, and 13.19 GiB is reserved by PyTorch but unallocated. If "
    "reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation."
)

SCRIPT = "import sys\nfrom hello_app import app\nif __name__ == '__main__':\n    sys.exit(app())\n"


def num_commands() -> int:
    """Commands that memdiag has."""
    from memdiag.cli.main import COMMANDS

    return len(COMMANDS)


def write_hello(folder: Path, commands: int) -> Path:
    """Writes the hello app and returns the script that starts it."""
    # A callback keeps typer from turning a single command into the program itself, so one command is a fair case too.
    (folder / "hello_app.py").write_text(
        HEAD + "".join(COMMAND.format(number=number) for number in range(1, commands)) + TABLE
    )
    script = folder / "hello.py"
    script.write_text(SCRIPT)
    return script


def wait_for_notes(folder: Path) -> None:
    """Waits until no background process compiles: until its notes in this folder for temporary files are gone."""
    began = time.monotonic()
    while list(folder.glob("memdiag-*/compiling-*")):
        if time.monotonic() - began > _MOST_SECONDS:
            raise SystemExit("no background process has filled the cache")
        time.sleep(0.5)


def first_runs(memdiag: Path, runs: int, scratch: Path) -> list[Contender]:
    """Measures ``memdiag analyze`` with an empty cache, a filled one, and an empty one while it waits to compile."""
    cache, temporary = scratch / "cache", scratch / "tmp"
    temporary.mkdir()
    command = [str(memdiag), "analyze", str(EXAMPLE)]
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "TMPDIR": str(temporary)}
    at_once = {name: value for name, value in env.items() if name != "MEMDIAG_COMPILE"}

    def forget() -> None:
        wait_for_notes(temporary)
        shutil.rmtree(cache, ignore_errors=True)

    first = Contender("first run", command, env=at_once, prepare=forget)
    later = Contender("later run", command, env=at_once, prepare=lambda: wait_for_notes(temporary))
    waiting = Contender("first run, MEMDIAG_COMPILE=now", command, env=env, prepare=forget)
    for _ in range(runs):
        for runner in (first, later, waiting):
            runner.run(scratch)
    return [first, later, waiting]


def first_run_text(runners: list[Contender]) -> str:
    """Returns the section on first runs."""
    rows = [
        [r.name, f"{r.best:.1f}", f"{r.median:.1f}", f"{r.best_cpu:.1f}", f"{r.peak_bytes / 1e6:.0f}"] for r in runners
    ]
    verdict = "met" if runners[0].best <= FIRST_RUN_TARGET else "MISSED"
    return (
        "## First run\n\n"
        f"`memdiag analyze examples/gpt-train.pickle`, {len(runners[0].walls)} runs each, with an empty cache of "
        "compiled code. The first run reads the trace uncompiled and starts a process in the background; the later "
        "run comes after that one. With MEMDIAG_COMPILE=now it waits for the compiler, as every first run did "
        "before.\n\n"
        f"{markdown_table(['', 'best s', 'median s', 'best CPU s', 'peak MB'], rows)}\n"
        f"First run: at most {FIRST_RUN_TARGET:.0f} s, {verdict}.\n"
    )


def main() -> None:
    """Measures and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=25, help="measured runs of each (default 25)")
    parser.add_argument("--first-runs", type=int, default=3, help="measured first runs (default 3)")
    parser.add_argument("--memdiag", type=Path, default=Path(sys.executable).with_name("memdiag"))
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(__file__).parents[1] / "reports" / "bench-startup",
        help="report, without suffix",
    )
    args = parser.parse_args()
    here = Machine.here()
    commands = num_commands()
    with tempfile.TemporaryDirectory() as folder:
        script = write_hello(Path(folder), commands)
        ours, theirs = [str(args.memdiag)], [sys.executable, str(script)]
        pairs = (
            ("--help", ["--help"], ["--help"]),
            ("--version", ["--version"], ["--version"]),
            ('oom "…"', ["oom", MESSAGE], ["table", "world"]),
            ('oom --json "…"', ["oom", "--json", MESSAGE], ["table", "world"]),
        )
        runners = [
            runner
            for name, mine, other in pairs
            for runner in (
                Contender(f"memdiag {name}", [*ours, *mine]),
                Contender(f"hello {other[0]}", [*theirs, *other]),
            )
        ]
        measure(runners, args.runs, Path(folder))
        first = first_runs(args.memdiag, args.first_runs, Path(folder))
    found = [
        {
            "option": mine.name.removeprefix("memdiag "),
            "best": round(mine.best / other.best, 3),
            "median": round(mine.median / other.median, 3),
            "target": TARGET,
        }
        for mine, other in zip(runners[::2], runners[1::2], strict=True)
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
        f"Made by bench/startup.py: whole processes, in turns, {args.runs} runs each after one that is not counted. "
        f"`hello` is a typer app with {commands} command{'s' * (commands != 1)}, as many as memdiag has, and rich "
        "help; `hello table` prints a rich table of three rows.\n\n"
        f"{markdown_table(['', 'best ms', 'median ms', 'peak MB'], times)}\n"
        f"{markdown_table(['', 'best', 'median', 'at most', ''], verdicts)}\n"
        f"{first_run_text(first)}\n{here.sentence()}\n"
    )
    data: dict[str, object] = {
        "machine": asdict(here),
        "commands": commands,
        "contenders": [runner.as_dict() for runner in runners],
        "ratios": found,
        "first_run": [runner.as_dict() for runner in first],
    }
    write_report(args.output, text, data)
    print(text)


if __name__ == "__main__":
    main()
