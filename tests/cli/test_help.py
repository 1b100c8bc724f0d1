"""The help groups commands by task, has valid examples and self-contained options, and words exit status uniformly."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest
from typer.main import get_command

from memdiag.cli.examples import EXAMPLES, SUMMARIES, TASKS
from memdiag.cli.main import COMMANDS, app_of, main
from memdiag.cli.quick import _without_types

GROUP = get_command(app_of())
RIDDLES = re.compile(
    r"^(Of|What|Where|Which|How many|Whose|As|With|Without|There|Not|Or|At most|Left out|In place)\b|left out|"
    r"\bthere[.;]"
)


def named(command):
    return GROUP.commands[command]


def test_every_command_has_a_task_and_examples():
    assert set(COMMANDS) == set(TASKS) == set(EXAMPLES)
    assert all(named(command).rich_help_panel == task for command, task in TASKS.items())


def test_the_list_of_commands_has_the_first_sentence_of_each_help():
    assert {name: named(name).help.split("\n\n")[0].replace("\n", " ") for name in COMMANDS} == SUMMARIES


@pytest.mark.parametrize("width", ["60", "80", "120"])
def test_the_list_of_commands_is_the_same_without_their_options(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    assert main(["--help"]) == 0
    quick = capsys.readouterr().out
    with pytest.raises(SystemExit):
        GROUP(["--help"], prog_name="memdiag")
    assert capsys.readouterr().out == quick


def test_the_list_of_commands_imports_no_command():
    code = (
        "import sys; from memdiag.cli.main import main; main(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stderr
    assert "'memdiag.cli.analyze'" not in loaded


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_name_options_that_exist(command):
    options = {name for param in named(command).params for name in (*param.opts, *param.secondary_opts)}
    for example in EXAMPLES[command]:
        name, *words = shlex.split(example)
        assert name == command
        ours = words[: words.index("--")] if "--" in words else words
        assert {word for word in ours if word.startswith("-")} <= options, example
        assert example in named(command).epilog


@pytest.mark.parametrize("command", COMMANDS)
def test_options_are_understood_on_their_own(command):
    _without_types(named(command).params)
    for param in named(command).params:
        assert param.help, param.name
        assert param.help[0].isupper() or param.help.startswith("torch"), param.help
        assert param.help.endswith("."), param.help
        assert not RIDDLES.search(param.help), param.help


@pytest.mark.parametrize("command", COMMANDS)
def test_text_above_the_options_fits_80_columns(command):
    """Help keeps line breaks within paragraphs, so longer lines would be broken a second time."""
    _, *lines = named(command).help.splitlines()
    assert [line for line in lines if len(line) > 76] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_exit_status_is_said_in_one_way(command):
    assert re.search(r"Exit status: (0 |the command's own)[^.]*2 error", " ".join(named(command).help.split()))


def test_help_is_grouped_by_task_in_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"─ {task} ─") for task in dict.fromkeys(TASKS.values())]
    assert places == sorted(places)
    assert max(map(len, shown.splitlines())) <= 80


def test_help_loads_neither_numpy_nor_pandas():
    code = (
        "import sys; from memdiag.cli.main import main; main(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stderr
    assert not [name for name in ("numpy", "pandas", "numba", "torch") if f"'{name}'" in loaded]
