"""``memdiag record`` writes the files of a run and a summary, and explains empty recordings."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from memdiag.cli.main import main
from memdiag.cli.run_summary import print_summary
from memdiag.recorder import private, reach, run_folder
from memdiag.runs import summary
from memdiag.runs.finishing import FinishedRun
from tests.cli.conftest import MEMDIAG

PYTHON = sys.executable
TRAIN = "import torch; torch.empty(1000); torch.step(); torch.empty(2000); "


def the_run(folder):
    (run,) = Path(folder).glob("memdiag-*")
    return run


def test_files_of_a_run(record, tmp_path):
    secrets = {"HF_TOKEN": "abc", "NCCL_API_KEY": "abc"}
    done = record(PYTHON, "-c", TRAIN + "print(1)", "--hf-token", "abc", CUDA_MODULE_LOADING="LAZY", **secrets)
    assert (done.stdout, done.returncode) == ("1\n", 0)
    run = the_run(tmp_path)
    assert sorted(path.name for path in run.iterdir() if not path.name.startswith(".")) == [
        "manifest.json",
        "rank0.json",
        "rank0.pkl",
    ]
    assert (tmp_path / "trace.pkl").samefile(run / "rank0.pkl")
    text = (run / "manifest.json").read_text()
    manifest = json.loads(text)
    assert "abc" not in text
    assert b"abc" not in (run / "rank0.pkl").read_bytes()
    assert manifest["environment"]["CUDA_MODULE_LOADING"] == "LAZY"
    assert manifest["argv"][-2:] == ["--hf-token", "(hidden)"]
    assert manifest["status"] == "ended"
    assert manifest["exit_status"] == 0
    assert manifest["versions"]["torch_version"] == "2.9.0+fake"
    assert [rank["steps"] for rank in manifest["ranks"]] == [1]
    assert manifest["end"] >= manifest["start"]


def test_a_run_without_an_optimizer_is_not_said_to_have_no_training_steps(record):
    assert (
        "recorded 1 process, no optimizer step, in" in record(PYTHON, "-c", TRAIN.replace("torch.step(); ", "")).stderr
    )


def test_what_is_said(record, tmp_path):
    said = record(PYTHON, "-c", TRAIN).stderr
    assert "recorded 1 process, 1 training step, in" in said
    assert "peak       2.93 KiB reserved, 2.93 KiB allocated (cpu:0" in said
    assert "file       trace.pkl (a copy of the trace)" in said
    assert "next       memdiag analyze trace.pkl" in said
    assert len(said.splitlines()) < 24
    assert record(PYTHON, "-c", TRAIN, options=["-q"]).stderr == ""
    assert len(list(tmp_path.glob("memdiag-*"))) == 2


def test_analyze_takes_it_from_there(record, tmp_path, monkeypatch, capsys):
    record(PYTHON, "-c", TRAIN, options=["-o", "runs/first"])
    monkeypatch.chdir(tmp_path)
    for given in ([], ["runs/first"], ["trace.pkl"]):
        assert main(["analyze", "--json", *given]) == 0
        assert json.loads(capsys.readouterr().out)["source"]["num_events"]
    record(PYTHON, "-c", TRAIN, options=["-o", "runs"])
    assert main(["analyze", "--json", "runs"]) == 0
    assert "memdiag-" in capsys.readouterr().err


def test_a_file_that_is_not_ours_stays(record, tmp_path):
    (tmp_path / "trace.pkl").write_bytes(pickle.dumps({"segments": [], "memdiag": "no"}))
    before = (tmp_path / "trace.pkl").read_bytes()
    done = record(PYTHON, "-c", TRAIN)
    assert (tmp_path / "trace.pkl").read_bytes() == before
    assert "trace-2.pkl (a copy of the trace), because memdiag keeps the existing trace.pkl" in done.stderr
    assert (tmp_path / "trace-2.pkl").samefile(the_run(tmp_path) / "rank0.pkl")
    record(PYTHON, "-c", TRAIN)
    assert not (tmp_path / "trace-3.pkl").exists()  # trace-2.pkl is the file of this run


def test_output_to_a_file(record, tmp_path):
    record(PYTHON, "-c", TRAIN, options=["-o", "out/mine.pkl"])
    assert (tmp_path / "out" / "mine.pkl").samefile(the_run(tmp_path / "out") / "rank0.pkl")
    assert not (tmp_path / "trace.pkl").exists()


def test_output_to_a_folder_that_holds_something(record, tmp_path):
    for _ in range(2):
        record(PYTHON, "-c", TRAIN, options=["-o", "out"])
    assert (tmp_path / "out" / "rank0.pkl").exists()
    assert (the_run(tmp_path / "out") / "rank0.pkl").exists()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_said_before_anything_runs(record, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    done = record(PYTHON, "-c", "print(1)", options=["-o", "locked/run"])
    assert (done.returncode, done.stdout) == (2, "")


def test_a_file_in_the_way_is_said_before_anything_runs(record, tmp_path):
    (tmp_path / "file").write_text("")
    done = record(PYTHON, "-c", "print(1)", options=["-o", "file/run"])
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: " in done.stderr
    assert "memdiag record -o DIR" in done.stderr


def test_names_of_runs_sort_by_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_folder.time, "gmtime", lambda: (2026, 1, 2, 3, 4, 5, 0, 0, 0))
    names = [Path(run_folder.make(None).path).name for _ in range(12)]
    assert names == sorted(names)
    assert names[:2] == ["memdiag-20260102-030405", "memdiag-20260102-030405-002"]


def test_several_processes(record, tmp_path):
    (tmp_path / "launch.py").write_text(
        textwrap.dedent(f"""
        import os, subprocess, sys
        children = [subprocess.Popen([sys.executable, "-c", {TRAIN!r}], env={{**os.environ, "RANK": str(rank)}}) for \
rank in (1, 0)]
        sys.exit(max(child.wait() for child in children))
        """)
    )
    done = record(PYTHON, "launch.py")
    assert "recorded 2 processes" in done.stderr
    assert "memory     the lines below are about rank0.pkl" in done.stderr
    assert not (tmp_path / "trace.pkl").exists()
    manifest = json.loads((the_run(tmp_path) / "manifest.json").read_text())
    assert [rank["trace"] for rank in manifest["ranks"]] == ["rank0.pkl", "rank1.pkl"]


@pytest.mark.parametrize("who", ["parent", "child"])
def test_of_processes_without_ranks_the_one_that_did_most_is_told(record, tmp_path, who):
    more = "[torch.empty(100) for _ in range(50)]; torch.step(); "
    parent, child = (TRAIN + more * (name == who) for name in ("parent", "child"))
    (tmp_path / "two.py").write_text(
        f"import subprocess, sys\n{parent}\nsys.exit(subprocess.call([sys.executable, '-c', {child!r}]))\n"
    )
    done = record(PYTHON, "two.py")
    statuses = {path.stem: json.loads(path.read_text()) for path in the_run(tmp_path).glob("rank*.json")}
    assert {status["rank"] for status in statuses.values()} == {None}
    events = {name: status["files"]["cpu"]["events"] for name, status in statuses.items()}
    assert max(events.values()) > min(events.values())
    assert f"memory     the lines below are about {max(events, key=events.get)}.pkl" in done.stderr


def test_a_shell_script(record, tmp_path):
    (tmp_path / "go.sh").write_text(f"#!/bin/sh\ncd /\nexec {PYTHON} -u -c '{TRAIN} print(input())'\n")
    (tmp_path / "go.sh").chmod(0o755)
    assert "recorded 1 process" in record("./go.sh", options=["--every", "1"]).stderr


def test_a_recording_inside_a_recording(record, tmp_path):
    """An inner ``memdiag record`` records the processes below it, and the outer one reports this."""
    inner = [*MEMDIAG, "record", "-q", "-o", "inner", "--", PYTHON, "-c", TRAIN]
    done = record(*inner, options=["-o", "outer"])
    assert done.returncode == 0
    assert "another memdiag record inside the command made the recording: see inner" in done.stderr
    assert (tmp_path / "inner" / "rank0.pkl").exists()
    assert not (tmp_path / "outer" / "rank0.pkl").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([PYTHON, "-c", "pass"], "no Python process of the command imported torch"),
        (["true"], "no Python process of the command loaded the recorder"),
        ([PYTHON, "-I", "-c", "pass"], "python -I ignores PYTHONPATH"),
        ([PYTHON, "-sE", "-c", "pass"], "python -E ignores PYTHONPATH"),
        ([PYTHON, "-S", "-c", "pass"], "python -S loads no sitecustomize"),
        ([PYTHON, "-c", "import torch"], "imported torch, but used no device that memdiag can record"),
        ([PYTHON, "-c", TRAIN + "import os; os._exit(0)"], "ended abnormally (os._exit, a signal, a crash)"),
    ],
)
def test_why_nothing_was_recorded(record, tmp_path, command, said):
    done = record(*command)
    assert done.returncode == 0
    assert "memdiag: nothing was recorded: " in done.stderr
    assert said in done.stderr
    assert not (tmp_path / "trace.pkl").exists()
    assert (the_run(tmp_path) / "manifest.json").exists()


def test_an_exception_before_any_allocation_is_named(record):
    done = record(PYTHON, "-c", "import torch; import missing_package")
    assert done.returncode == 1
    assert "memdiag: nothing was recorded: ModuleNotFoundError ended process " in done.stderr


def test_a_python_that_starts_isolated_ones_is_told_apart(record):
    done = record("sh", "-c", f"{PYTHON} -I -c pass")
    assert "loaded the recorder" in done.stderr


def test_a_broken_trace_changes_nothing_but_the_summary(record):
    program = TRAIN + (
        "import os, atexit; atexit._run_exitfuncs(); folder = [f for f in os.listdir('.') if "
        "f.startswith('memdiag-')][0]; "
    )
    program += "open(folder + '/rank0.pkl', 'wb').write(b'broken'); os._exit(4)"
    done = record(PYTHON, "-c", program)
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    assert "next       memdiag analyze" in done.stderr


def test_large_traces_are_left_alone(record, tmp_path, monkeypatch, capsys):
    record(PYTHON, "-c", TRAIN)
    run = the_run(tmp_path)
    folder = run_folder.RunFolder(str(run), str(tmp_path / "trace.pkl"))
    monkeypatch.setattr(summary, "LARGEST", 10)
    found = FinishedRun(folder, tuple(run_folder.statuses(str(run))), (), None, (), True)
    print_summary(found, _ended(), "")
    assert "memdiag did not analyze the trace, because it has" in capsys.readouterr().err


def test_a_program_that_fails_on_a_phantom_device_is_told_which_values_nobody_computed(record, tmp_path, capsys):
    record(PYTHON, "-c", TRAIN)
    run = the_run(tmp_path)
    snapshot = pickle.loads((run / "rank0.pkl").read_bytes())
    read = {"count": 2, "places": [{"where": "router.py:7", "count": 2}]}
    snapshot["memdiag"] |= {
        "phantom": True,
        "phantom_device": {
            "device": "npu:910b-64g",
            "read_backs": read,
            "values": "zeros",
            "assumed_sizes": {"fraction": 1, "count": 3, "places": [{"where": "nms.py:7", "count": 3}]},
        },
    }
    (run / "rank0.pkl").write_bytes(pickle.dumps(snapshot))
    folder = run_folder.RunFolder(str(run), str(tmp_path / "trace.pkl"))
    (status,) = run_folder.statuses(str(run))
    found = FinishedRun(
        folder, ({**status, "exception": "RuntimeError: sizes do not match"},), (), None, (), True, phantom=True
    )
    print_summary(found, _ended(1), "")
    told = capsys.readouterr().err
    assert "The program failed on the simulated device: the program read 2 values" in told
    assert told.count("The program failed on the simulated device") == 1
    assert "router.py:7 (2 times); they read as zeros" in told
    assert "--compute small" in told
    assert told.count("nms.py:7") == 1  # as a reason for the failure, and not in the card as well
    print_summary(found, _ended(), "")
    told = capsys.readouterr().err
    assert "failed on the simulated device" not in told
    assert told.count("nms.py:7") == 1
    of_code = ({**found.recorded[0], "exception": "builtins.NameError: name 'x' is not defined"},)
    print_summary(replace(found, recorded=of_code), _ended(1), "")
    assert "failed on the simulated device" not in capsys.readouterr().err
    timeouts = ({"reason": "signal"}, _ended(124))  # SIGTERM that does not go through memdiag
    interrupted = ({"exception": "builtins.KeyboardInterrupt: "}, _ended(124))  # the same with SIGINT
    for facts, end in (({}, _ended(130, [signal.SIGINT])), timeouts, interrupted):
        for steps, is_told in ((7, False), (0, True)):  # in a training, and in a loop that waits for a value
            print_summary(replace(found, recorded=({**found.recorded[0], **facts, "steps": steps},)), end, "")
            assert ("failed on the simulated device" in capsys.readouterr().err) == is_told


def _ended(status=0, signals=()):
    from memdiag.recorder.launch import ProgramEnd

    return ProgramEnd(status, 1.0, list(signals))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--steps", "3"], "--steps 3: not a range of steps"),
        (["--steps", "5:3"], "--steps 5:3: not a range of steps"),
        (["--backend", "tpu"], "--backend tpu: memdiag does not know this backend"),
    ],
)
def test_options_that_make_no_sense(record, tmp_path, options, said):
    done = record("true", options=options)
    assert done.returncode == 2
    assert f"error: {said}" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_options_reach_the_recorder(record, tmp_path):
    given = ["--steps", "3:6", "--every", "2", "--max-events", "10", "--no-names", "--samples", "0.5"]
    given += ["--backend", "cpu,cuda", "--backend", "npu"]
    record("true", options=given)
    settings = json.loads((the_run(tmp_path) / "manifest.json").read_text())["settings"]
    del settings["folder"], settings["holders"]
    assert settings == {
        "file": "",
        "backends": ["cpu", "cuda", "npu"],
        "max_events": 10,
        "every": 2,
        "first_step": 3,
        "last_step": 6,
        "names": False,
        "sample_interval": 0.5,
    }


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["python", "train.py", "-I"], ""),
        (["python3.11", "-W", "ignore", "-X", "dev", "-I", "train.py"], "-I"),
        (["python", "-c", "-I"], ""),
        (["python", "-m", "x", "-S"], ""),
        (["python", "-Wignore", "-uE", "x.py"], "-E"),
        (["env", "A=1", "python", "-S", "x.py"], "-S"),
        (["nohup", "nice", "-n", "5", "python", "-I", "x.py"], "-I"),
        (["sudo", "python", "x.py"], "sudo does not hand on the environment"),
        (["sudo", "-E", "python", "x.py"], ""),
        (["docker", "run", "x"], "container"),
        (["torchrun", "train.py"], ""),
        ([], ""),
    ],
)
def test_commands_out_of_reach(command, said):
    found = reach.out_of_reach(command)
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize("line", ["#!/usr/bin/python3 -Es", "#!/usr/bin/env -S python3 -I", "#! /usr/bin/python3 -I"])
def test_scripts_whose_first_line_isolates_them(tmp_path, line):
    script = tmp_path / "tool"
    script.write_text(line + "\n")
    assert "begins with #!" in reach.out_of_reach([str(script)])


def test_secrets_are_hidden():
    given = [
        "--api-key",
        "x",
        "--token=x",
        "--tokens-per-step",
        "5",
        "--auth-file=x",
        "--lr",
        "1",
        "HF_TOKEN=x",
        "--secret",
        "--next",
        "s3://a:b@c/d",
    ]
    assert private.arguments(given) == [
        "--api-key",
        "(hidden)",
        "--token=(hidden)",
        "--tokens-per-step",
        "5",
        "--auth-file=(hidden)",
        "--lr",
        "1",
        "HF_TOKEN=(hidden)",
        "--secret",
        "--next",
        "s3://(hidden)@c/d",
    ]
    kept = private.environment(
        {"CUDA_VISIBLE_DEVICES": "0", "AWS_X": "s", "NCCL_TOKEN": "s", "RANK": "1", "HOME": "/", "PYTHONPATH": "p"}
    )
    assert kept == {"CUDA_VISIBLE_DEVICES": "0", "PYTHONPATH": "p", "RANK": "1"}


# ----------------------------------------------------------------------------------------------------------- real torch
