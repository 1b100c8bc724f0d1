"""Every command printed by a report runs unchanged.

``memdiag record`` runs up to the start of the program. The tests replace the program by one that copies a committed
recording into the run directory. A command that needs a trace is printed only if a trace exists, or after the command
that records one.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer

from memdiag.cli.main import COMMANDS, app_of, main
from memdiag.oom.advice import advise
from memdiag.oom.model import Found
from memdiag.oom.read import read_text
from memdiag.phantom import launch as phantom
from memdiag.recorder import launch
from memdiag.results.oom import CAUSES, Judgement

RECORDED = "cuda-2.13.0-recorded"
_LINE = re.compile(rf"^\W*(memdiag (?:{'|'.join(COMMANDS)})\b[^\n`]*)", re.MULTILINE)


@pytest.fixture
def stand_in(goldens, monkeypatch, tmp_path):
    """Replaces the recorded program by a copy of a recording, in an empty current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    recorded = {"file": goldens / RECORDED / "snapshot.pickle", "commands": []}

    def run(command, environment):
        recorded["commands"].append(list(command))
        folder = json.loads(environment["MEMDIAG_RECORD"])["folder"]
        shutil.copy(recorded["file"], Path(folder, "rank0.pkl"))
        return launch.ProgramEnd(0, 0.0)

    monkeypatch.setattr(launch, "run", run)
    monkeypatch.setattr(phantom, "environment_for", lambda _profile, _command, own, **_: dict(own))
    return recorded


def printed(text: str) -> list[str]:
    """Returns the commands on their own line, in order."""
    return [line.strip() for line in _LINE.findall(text)]


def run_all(commands, capsys):
    """Runs the commands in order and returns those that fail."""
    failed = []
    for command in commands:
        code = main(shlex.split(command)[1:])
        shown = capsys.readouterr()
        if code:
            failed.append(f"{command}: exit {code}: {shown.err}")
    return failed


CORPUS = Path(__file__).parents[3] / "shared" / "data" / "oom" / "corpus.jsonl"


def texts() -> list[str]:
    """Returns the committed out-of-memory messages, and those of the shared corpus if it is present."""
    root = Path(__file__).parents[2]
    found = [path.read_text(encoding="utf-8") for path in sorted((root / "tests" / "goldens").glob("*/message.txt"))]
    found.append((root / "examples" / "oom.log").read_text(encoding="utf-8"))
    if CORPUS.exists():
        found += [json.loads(line)["text"] for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    return found


def shape(command: str) -> str:
    """Returns a command without its numbers; one command of each shape is run."""
    return re.sub(r"[0-9]+", "0", command)


def test_what_the_report_of_a_message_prints(stand_in, tmp_path, capsys):
    """The commands printed for a message run in their printed order."""
    seen, failed, num_commands = set(), [], 0
    for number, text in enumerate(texts()):
        here = tmp_path / str(number)
        here.mkdir()
        (here / "train.log").write_text(text, encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(here)
            assert main(["oom", "train.log", "--all"]) == 0
            commands = printed(capsys.readouterr().out)
            if not commands or tuple(map(shape, commands)) in seen:
                continue
            seen.add(tuple(map(shape, commands)))
            num_commands += len(commands)
            failed += run_all(commands, capsys)
        shutil.rmtree(here)
    assert failed == []
    assert num_commands >= (6 if CORPUS.exists() else 2)
    assert stand_in["commands"]


@pytest.mark.usefixtures("stand_in")
def test_what_is_in_the_remedies_of_every_cause(capsys):
    """The commands in the remedies of every cause run, including remedies that only JSON contains."""
    scripts = set()
    for cause in CAUSES:
        for framework, backend in (
            ("pytorch", "cuda"),
            ("torch_npu", "npu"),
            ("vllm", "cuda"),
            ("mindspore", "npu"),
            ("pytorch", "xpu"),
        ):
            for marks in (
                frozenset(),
                frozenset({"os:windows"}),
                frozenset({"generation:1.4"}),
                frozenset({"engine:vllm"}),
            ):
                fields = {
                    "requested_bytes": 3 << 30,
                    "total_bytes": 64 << 30,
                    "free_bytes": 1 << 30,
                    "allocated_bytes": 60 << 30,
                }
                found = Found(0, 1, "torch_cuda_21", framework, backend, fields, marks=marks)
                for finding in advise(found, Judgement(cause, "low")):
                    scripts |= {fix.change for fix in finding.fixes if fix.change.startswith("memdiag")}
    for text in texts():
        for message in read_text(text).messages:
            scripts |= {
                fix.change for finding in message.findings for fix in finding.fixes if fix.change.startswith("memdiag")
            }
    assert any("memdiag simulate" in script for script in scripts)
    failed = []
    for script in {shape(script): script for script in sorted(scripts)}.values():
        for path in Path().iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        Path("train.log").write_text("fine\n", encoding="utf-8")  # the placeholder for the user's log
        failed += run_all(script.splitlines(), capsys)
    assert failed == []


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    "name", ["cuda-2.13.0-oom", "cuda-2.13.0-oom-dump", "npu-2.13.0-oom", "cuda-2.13.0-two-devices", RECORDED]
)
def test_what_a_message_with_a_trace_prints(goldens, name, capsys):
    """The commands printed for a message with a trace run, even if the trace has no failure or is of another run."""
    trace = shlex.quote(str(goldens / name / "snapshot.pickle"))
    said = [path.read_text(encoding="utf-8") for path in sorted(goldens.glob("*-2.13.0-oom*/message.txt"))]
    for number, text in enumerate(said):
        Path(f"{number}.log").write_text(text, encoding="utf-8")
        assert main(["oom", f"{number}.log", "--from-trace", shlex.split(trace)[0]]) == 0
        commands = printed(capsys.readouterr().out)
        assert len(commands) == 1
        assert commands[0].startswith(f"memdiag analyze {trace}")
        assert run_all(commands, capsys) == []


@pytest.mark.usefixtures("stand_in")
def test_a_rank_of_the_newest_run(goldens, capsys):
    """``--from-trace .`` reads the trace of the rank that printed the message."""
    run = Path("memdiag-run")
    run.mkdir()
    for rank, name in enumerate((RECORDED, "cuda-2.13.0-oom")):
        shutil.copy(goldens / name / "snapshot.pickle", run / f"rank{rank}.pkl")
    text = (goldens / "cuda-2.13.0-oom" / "message.txt").read_text(encoding="utf-8")
    Path("train.log").write_text(f"[rank1]: {text}", encoding="utf-8")
    for given in (".", str(run)):
        assert main(["oom", "train.log", "--from-trace", given]) == 0
        shown = capsys.readouterr()
        assert f"reading {run / 'rank1.pkl'}" in shown.err
        assert "--at oom" in shown.out
        assert "explained without the trace" not in shown.out


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("name", ["examples", "goldens"])
def test_what_the_report_of_a_trace_prints(root, goldens, name, capsys):
    files = [root / "examples" / "gpt-train.pickle"]
    if name == "goldens":
        files = sorted(path / "snapshot.pickle" for path in goldens.iterdir() if path.is_dir())
    failed, num_commands = [], 0
    for file in files:
        assert main(["analyze", str(file)]) == 0
        commands = printed(capsys.readouterr().out)
        assert main(["analyze", str(file), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        commands += [
            finding["saving"]["repro"]
            for finding in report["findings"]
            if finding["saving"] and finding["saving"]["repro"]
        ]
        commands += [what_if["repro"] for what_if in report.get("what_if") or ()]
        commands += [
            line for finding in report["findings"] for fix in finding["fixes"] for line in printed(fix["change"])
        ]
        commands = list(dict.fromkeys(commands))
        if name == "goldens":  # the commands are the same for every golden
            commands = [command for command in commands if not command.endswith(("--json", "-o report.md"))]
        num_commands += len(commands)
        failed += run_all(commands, capsys)
    assert failed == []
    assert num_commands >= 2


def strings(root: Path):
    """Yields every string of the package with its file."""
    for path in sorted((root / "memdiag").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, node.value


def test_commands_in_hints_have_options_that_exist(root):
    """Every command in a hint or help text of the package has valid options."""
    known = typer.main.get_command(app_of()).commands
    options = {
        name: {one for each in known[name].params for one in (*each.opts, *each.secondary_opts)} for name in COMMANDS
    }
    wrong, seen = [], 0
    for path, text in strings(root):
        for name, rest in re.findall(rf"\bmemdiag ({'|'.join(COMMANDS)})\b([^\n`;,)]*)", text):
            seen += 1
            own = re.split(r" -- | \.\.\.|…|\.$", rest)[0]
            used = re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", own)
            allowed = {*options[name], "--help", "--redact"}
            wrong += [f"{path.relative_to(root)}: memdiag {name}{rest}: {each}" for each in used if each not in allowed]
    assert wrong == []
    assert seen > 100
