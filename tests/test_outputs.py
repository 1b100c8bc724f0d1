"""The console examples of README and docs show the current output; other code blocks are checked by their kind."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import textwrap
import tomllib
from pathlib import Path

import pytest
import typer

from memdiag.cli import main
from tests.forking import memdiag_command, python_with_torch
from tests.pythons import NO_NPU, npu_command

ROOT = Path(__file__).parents[1]
_SPEC = importlib.util.spec_from_file_location("outputs", ROOT / "docs" / "outputs.py")
outputs = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(outputs)
outputs.MEMDIAG = memdiag_command()

DOCUMENTS = [ROOT / "README.md", ROOT / "README.zh.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^(?P<indent> *)```(?P<kind>[\w-]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}\S.*\n)+", re.MULTILINE)
COMMAND = re.compile(rf"memdiag (?:--redact |--lang zh )*(?:{'|'.join(main.COMMANDS)})\b")


def name(path):
    return path.relative_to(ROOT).as_posix()


def blocks(kind):
    """Yields the page and the text of each fenced block of a kind."""
    for path in DOCUMENTS:
        for found in FENCED.finditer(path.read_text(encoding="utf-8")):
            if found["kind"] == kind:
                yield path, textwrap.dedent(found["text"])


def test_the_readme_has_examples():
    assert {"README.md", "README.zh.md", "docs/oom.md"} <= {name(path) for path in outputs.PAGES}


@pytest.mark.parametrize("path", outputs.PAGES, ids=name)
def test_examples_show_the_current_output(path):
    assert outputs.page(path) == path.read_text(encoding="utf-8"), "the output has changed: run `make readme`"


RECORDED = [
    pytest.param(recorded, id=name(path))
    for path in outputs.PAGES
    if (
        recorded := [
            (found["command"], found["shown"])
            for found in outputs.BLOCK.finditer(path.read_text(encoding="utf-8"))
            if found["recorded"]
        ]
    )
]


@pytest.mark.skipif(not npu_command(), reason=NO_NPU)
@pytest.mark.parametrize("blocks_of_page", RECORDED)
def test_recordings_print_the_lines_that_a_page_shows(blocks_of_page, tmp_path):
    """They run in order in one folder, and print the lines shown in their order."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for command, shown in blocks_of_page:
        arguments = command.replace(".venv-npu/bin/python", npu_command())
        arguments = arguments.replace(".venv/bin/python", python_with_torch())
        done = subprocess.run(
            [*memdiag_command(), *arguments.split()],
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=600,
            check=False,
        )
        printed = iter(done.stdout.splitlines())
        for line in shown.splitlines():
            beginning = line.rstrip("…").rstrip() if line.endswith("…") else None
            if beginning == "" or not line:
                continue
            assert any(each.startswith(beginning) if beginning else each.rstrip() == line for each in printed), (
                f"{line}\nis not printed after the lines before it:\n{done.stdout}"
            )


def test_no_block_is_without_a_kind():
    kinds = {(name(path), found["kind"]) for path in DOCUMENTS for found in FENCED.finditer(path.read_text("utf-8"))}
    known = {"console", "text", "python", "bash", "sh", "yaml", "toml", "json", "notation"}
    assert {each for each in kinds if each[1] not in known} == set()


def test_console_blocks_begin_with_a_command_of_memdiag():
    """Console blocks begin with a memdiag command, so that other tests can run them.

    See test_examples_show_the_current_output and tests/test_tutorial.py.
    """
    assert [name(path) for path, text in blocks("console") if not text.startswith("$ memdiag ")] == []


def test_python_is_python():
    for path, text in blocks("python"):
        ast.parse(text, name(path))


def test_python_imports_names_of_memdiag_that_exist():
    for path, text in blocks("python"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("memdiag"):
                try:
                    exec(compile(ast.Module([node], []), name(path), "exec"), {})  # noqa: S102 - code of memdiag's pages
                except ModuleNotFoundError as error:  # memdiag.integrations needs the packages that it is for
                    if (error.name or "").startswith("memdiag") or "integrations" not in node.module:
                        raise


@pytest.mark.parametrize(
    "text", [pytest.param(text, id=name(path)) for path, text in blocks("python") if '"examples/' in text]
)
def test_python_that_reads_an_example_runs(text, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(compile(text, "page", "exec"), {})  # noqa: S102 - code of memdiag's own pages
    assert capsys.readouterr().out


def test_toml_is_toml():
    for _, text in blocks("toml"):
        tomllib.loads(text)


def test_yaml_is_yaml():
    yaml = pytest.importorskip("yaml", reason="needs PyYAML (make docs installs it)")
    for _, text in blocks("yaml"):
        assert yaml.safe_load(text)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("kind", ["bash", "sh"])
def test_shell_lines_are_shell(kind):
    for path, text in blocks(kind):
        done = subprocess.run(
            [shutil.which("bash"), "-n"], input=text, capture_output=True, encoding="utf-8", check=False
        )
        assert done.returncode == 0, f"{name(path)}: {done.stderr}"


def commands(*, workflows=True):
    """Yields every line of memdiag in a shell block, an indented block or a workflow of CI, with its page."""
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        shell = [found["text"] for found in FENCED.finditer(text) if found["kind"] in {"bash", "sh"}]
        shell += [
            re.sub(r"^ *- (?:run: )?", "", found["text"], flags=re.MULTILINE)
            for found in FENCED.finditer(text)
            if found["kind"] == "yaml" and workflows
        ]
        for block in (*shell, *INDENTED.findall(FENCED.sub("", text))):
            for line in textwrap.dedent(block).splitlines():
                if COMMAND.match(line):
                    yield path, line


def test_shown_commands_can_be_typed():
    """Shown commands are valid: their options accept the shown values, and no argument is superfluous."""
    group = typer.main.get_command(main.app_of())
    wrong, seen = [], 0
    for path, line in commands():
        words = shlex.split(line.replace(" … ", " "), comments=True)
        words = words[: next((at for at, word in enumerate(words) if word in {"|", ">", "2>&1", "&&", "…"}), None)]
        redact_and_language, command, *rest = _split(words)
        seen += 1
        try:
            group.commands[command].make_context(command, list(rest), resilient_parsing=False)
        except Exception as error:  # noqa: BLE001 - click raises its own, callbacks MemdiagError
            if "no such file" not in str(error):
                wrong.append(f"{name(path)}: {line}: {error}")
        assert redact_and_language is not None
    assert wrong == []
    assert seen > 100


def _split(words):
    """Returns the options that every command takes, the command, and the rest."""
    common = {"--redact"}
    first = next(at for at, word in enumerate(words) if word in main.COMMANDS)
    kept, rest = words[1:first], []
    left = iter(words[first + 1 :])
    for word in left:
        if word == "--":
            return [kept, words[first], *rest, word, *left]
        if word == "--lang":
            next(left)
        elif word not in common:
            rest.append(word)
    return [kept, words[first], *rest]
