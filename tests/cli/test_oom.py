"""``memdiag oom`` reads every kind of input, and writes every form of output."""

from __future__ import annotations

import gzip
import io
import json
import os
import pty
import sys
from pathlib import Path

import pytest

from memdiag.cli.main import main
from memdiag.oom import inputs

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 47.41 GiB "
    "of which 270.69 MiB is free. Including non-PyTorch memory, this process has 47.13 GiB memory in use. Of the "
    "allocated memory 33.30 GiB is allocated by PyTorch, and 13.19 GiB is reserved by PyTorch but unallocated."
)


def found(capsys) -> list[dict]:
    return json.loads(capsys.readouterr().out)["messages"]


@pytest.fixture
def log(tmp_path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(f"step 1\nstep 2\n[rank3]: {MESSAGE}\n", encoding="utf-8")
    return path


@pytest.fixture
def stdin(monkeypatch):
    """Provides text on standard input, as a pipe would."""

    def put(text: str) -> None:
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode())), encoding="utf-8")
        )

    return put


# ------------------------------------------------------------------------------------------------------------ input


def test_a_message(capsys):
    assert main(["oom", MESSAGE]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("FRAGMENTATION")
    assert shown.err == ""


def test_a_message_without_quotes(capsys, tmp_path, monkeypatch):
    """The words of a message may be names of files and folders, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "memory.").touch()
    assert main(["oom", "--json", *MESSAGE.split()]) == 0
    assert found(capsys)[0]["fields"]["requested_bytes"] == 3 << 29


@pytest.mark.parametrize("before", ["- ", "---- ", "-\t"])
def test_a_message_that_begins_with_a_dash(before, capsys):
    assert main(["oom", before + MESSAGE, "--json"]) == 0
    assert len(found(capsys)) == 1


def test_a_file(log, capsys):
    assert main(["oom", str(log), "--json"]) == 0
    (message,) = found(capsys)
    assert (message["rank"], message["line"], message["source"]) == (3, 3, str(log))


def test_files_text_and_standard_input_together(log, stdin, capsys):
    stdin(MESSAGE)
    assert main(["oom", "--json", str(log), "-", MESSAGE]) == 0
    assert [message["source"] for message in found(capsys)] == [str(log), "-", "text"]


def test_a_file_named_twice_is_read_once(log, capsys):
    assert main(["oom", "--json", str(log), str(log)]) == 0
    assert [message["count"] for message in found(capsys)] == [1]


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_standard_input(stdin, capsys, arguments):
    stdin(f"a\n{MESSAGE}\n")
    assert main(["oom", "--json", *arguments]) == 0
    assert found(capsys)[0]["line"] == 2


def test_a_folder_holds_logs_and_other_things(log, capsys):
    inner = log.parent / "rank1" / "deep"
    inner.mkdir(parents=True)
    (inner / "stderr").write_text(MESSAGE)
    (inner / "old.log.gz").write_bytes(gzip.compress(MESSAGE.encode() * 50))
    (inner / "weights.bin").write_bytes(b"\0" * 5000)
    (inner / "empty.log").touch()
    (log.parent / ".git").mkdir()
    (log.parent / ".git" / "x.log").write_text(MESSAGE)
    assert main(["oom", "--json", str(log.parent)]) == 0
    shown = capsys.readouterr()
    sources = json.loads(shown.out)["sources"]
    assert [Path(name).name for name in sources] == ["train.log", "old.log.gz", "stderr"]
    assert shown.err == f"{log.parent}: memdiag skipped 1 file that is not text\n"
    assert {message["source"] for message in json.loads(shown.out)["messages"]} == set(sources)


def test_a_folder_without_logs(tmp_path, capsys):
    (tmp_path / "a.bin").write_bytes(b"\0\1")
    assert main(["oom", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(
        f"error: {tmp_path}: no logs in this folder (1 file that is not text)\nhint: "
    )


@pytest.mark.parametrize(
    "name", ["train.log", "logs/x", "/no/such/file", "*.log", "out.txt", "slurm-1.out", "my logs/train.log"]
)
def test_a_name_that_does_not_exist_is_no_message(name, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for arguments in ([name], [MESSAGE, name]):
        assert main(["oom", *arguments]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith(f"error: {name}: no such file\nhint: ")


@pytest.mark.parametrize("text", ["hello", "", " ", "all is well, loss 0.1", "x" * 5000, "a\0b"])
def test_no_message(text, capsys):
    assert main(["oom", text]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("No out-of-memory message was found.")
    assert shown.err == ""


def test_no_message_in_a_file(tmp_path, capsys):
    path = tmp_path / "a.log"
    path.write_text("fine\n" * 3)
    assert main(["oom", str(path)]) == 0
    assert "(3 lines, 15 B)" in capsys.readouterr().out.replace("\n", " ")
    path.write_text("")
    assert main(["oom", str(path)]) == 0
    assert "The input is empty." in capsys.readouterr().out
    assert main(["oom", "--json", str(path)]) == 0
    assert found(capsys) == []


def test_a_binary_file(tmp_path, capsys):
    path = tmp_path / "core.1234"
    path.write_bytes(b"\x7fELF\0\0" * 100)
    assert main(["oom", str(path)]) == 2
    hint = "for a memory trace: memdiag analyze FILE, or memdiag oom --from-trace FILE"
    assert capsys.readouterr().err.startswith(f"error: {path} is not a text file\nhint: {hint}")
    path.write_bytes(b"\0" * 50 + b"\n" + MESSAGE.encode() + b"\n")
    assert main(["oom", str(path), "--json"]) == 0
    assert len(found(capsys)) == 1


def test_a_trace_or_the_folder_of_a_recording_needs_no_option(tmp_path, capsys, goldens):
    trace = goldens / "cuda-2.13.0-oom" / "snapshot.pickle"
    (tmp_path / "rank0.pkl").write_bytes(trace.read_bytes())
    (tmp_path / "manifest.json").write_text("{}")
    for given in (str(trace), str(tmp_path)):
        assert main(["oom", given, "--json"]) == 0
        assert [message["dialect"] for message in found(capsys)] == ["trace"]
    assert main(["oom", MESSAGE, str(trace), "--json"]) == 0
    assert [message["dialect"] for message in found(capsys)] != ["trace"]


def test_windows_text(tmp_path, capsys):
    path = tmp_path / "log.txt"
    path.write_bytes(MESSAGE.encode("utf-16"))
    assert main(["oom", str(path), "--json"]) == 0
    assert len(found(capsys)) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file(log, capsys):
    log.chmod(0)
    assert main(["oom", str(log)]) == 2
    assert "Permission denied" in capsys.readouterr().err


def test_nothing_given_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(inputs, "_is_terminal", lambda: True)
    assert main(["oom"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert 'memdiag oom "CUDA out of memory.' in shown.err


def test_a_trace_alone(goldens, capsys):
    path = goldens / "cuda-2.13.0-oom" / "snapshot.pickle"
    assert main(["oom", "--from-trace", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["trace"], shown["messages"][0]["dialect"]) == (str(path), "trace")
    assert main(["oom", "--from-trace", str(path)]) == 0
    assert "Memory of GPU 0 (" in capsys.readouterr().out
    assert main(["oom", "--from-trace", str(path), "-o", str(path)]) == 2
    capsys.readouterr()
    assert main(["oom", "--from-trace", str(goldens / "cuda-2.13.0-train" / "snapshot.pickle")]) == 0
    assert "No allocation failed in the trace" in capsys.readouterr().out


def test_a_message_and_a_trace_of_another_run(goldens, log, capsys):
    assert main(["oom", str(log), "--from-trace", str(goldens / "cuda-2.13.0-oom" / "snapshot.pickle")]) == 0
    assert "The message was explained without the trace:" in " ".join(capsys.readouterr().out.split())
    assert main(["oom", str(log), "--from-trace", "no-such.pkl"]) == 2


# --------------------------------------------------------------------------------------------------------- output


@pytest.mark.parametrize(
    ("name", "options", "start"),
    [("a.json", [], "{"), ("a.md", [], "## "), ("a.txt", [], "FRAGMENTATION"), ("a.txt", ["--md"], "## ")],
)
def test_output(tmp_path, capsys, name, options, start):
    target = tmp_path / name
    assert main(["oom", MESSAGE, "-o", str(target), *options]) == 0
    assert target.read_text(encoding="utf-8").startswith(start)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"wrote {target}\n")


def test_a_log_is_never_overwritten(log, capsys):
    assert main(["oom", str(log), "-o", str(log)]) == 2
    assert "would overwrite the input file" in capsys.readouterr().err
    assert MESSAGE in log.read_text()


def test_json_and_markdown_exclude_each_other(capsys):
    assert main(["oom", MESSAGE, "--json", "--md"]) == 2
    assert capsys.readouterr().err.startswith("error: give either --json or --md")


@pytest.mark.parametrize(
    ("text", "budgets", "code", "said"),
    [
        (MESSAGE, ["any"], 1, "any"),
        (MESSAGE, ["fragmentation"], 1, "fragmentation"),
        (MESSAGE, ["Capacity,FRAGMENTATION"], 1, "fragmentation"),
        (MESSAGE, ["capacity", "other-process"], 0, ""),
        (MESSAGE, ["MD999"], 0, ""),
        ("fine", ["any"], 0, ""),
    ],
)
def test_fail_on(text, budgets, code, said, capsys):
    assert main(["oom", text, *(part for budget in budgets for part in ("--fail-on", budget))]) == code
    shown = capsys.readouterr()
    assert shown.out
    assert shown.err == (f"--fail-on: {said}\n" if said else "")


def test_fail_on_a_finding(capsys):
    main(["oom", MESSAGE, "--json"])
    code = found(capsys)[0]["findings"][0]["code"]
    assert main(["oom", MESSAGE, "--fail-on", code.lower()]) == 1


@pytest.mark.parametrize("value", ["every", "MD7", ""])
def test_fail_on_something_else(value, capsys):
    assert main(["oom", MESSAGE, "--fail-on", value]) == 2
    assert capsys.readouterr().err.startswith(
        f"error: --fail-on {value}: this is neither any, a cause nor a finding code\nhint: causes are fragmentation"
    )


@pytest.mark.parametrize("options", [["--top", "0"], ["--top", "x"], ["--bogus"]])
def test_usage_errors(options, capsys):
    assert main(["oom", MESSAGE, *options]) == 2
    assert capsys.readouterr().out == ""


def test_all_and_top(tmp_path, capsys):
    path = tmp_path / "a.log"
    path.write_text("".join(f"[rank{rank}]: {MESSAGE}\n" for rank in range(20)))
    main(["oom", str(path)])
    assert "FRAGMENTATION (confidence high)  GPU 0, 20 ranks, first: rank 0," in capsys.readouterr().out
    main(["oom", str(path), "--all", "--top", "3"])
    assert sum(line.split()[2:3] == ["fragmentation"] for line in capsys.readouterr().out.splitlines()) == 20


# -------------------------------------------------------------------------------- in a separate process


def test_a_terminal_shows_how_far_it_is_and_wipes_it(monkeypatch):
    from memdiag.cli import progress

    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal, os.fdopen(master, "rb", buffering=0) as screen:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(progress, "_WAIT", 0)
        monkeypatch.setenv("TERM", "xterm")
        with progress.Progress() as bar:
            bar("a\x1b.log", 1 << 20, 4 << 20)
        shown = ""
        while not shown.endswith("\r\x1b[K") or "%" not in shown:
            shown += screen.read(500).decode()
    assert "[#####...............]  25% of 4.00 MiB a\\x1b.log" in shown


def test_no_bar_where_there_is_no_terminal(monkeypatch, capsys):
    from memdiag.cli import progress

    monkeypatch.setattr(progress, "_WAIT", 0)
    with progress.Progress() as bar:
        bar("a.log", 1, None)
    assert capsys.readouterr().err == ""


def test_inputs_are_chosen_from_python(tmp_path, capsys):
    (tmp_path / "train.log").write_text(MESSAGE)
    (tmp_path / "model.bin").write_bytes(b"\0")
    heard = []
    assert inputs.choose([str(tmp_path)], has_message=bool, say=heard.append) == [
        inputs.OomInput(str(tmp_path / "train.log"), tmp_path / "train.log")
    ]
    assert "memdiag skipped 1 file that is not text" in heard[0]
    assert capsys.readouterr().err == ""


def test_a_compressed_trace_is_a_trace_whatever_its_name(tmp_path, capsys):
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress((Path(__file__).parents[2] / "examples" / "gpt-train.pickle").read_bytes()))
    assert main(["oom", str(path)]) == 0
    assert "No allocation failed in the trace" in capsys.readouterr().out


def test_a_link_to_nothing_is_an_error(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("loop", "none"):
        (tmp_path / name).symlink_to(tmp_path / name if name == "loop" else tmp_path / "x")
        assert main(["oom", name]) == 2
        assert f"cannot read {name}" in capsys.readouterr().err
