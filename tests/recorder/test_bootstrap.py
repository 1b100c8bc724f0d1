"""The recorder is loaded after torch, keeps the user's start-up files, and has no side effects, in any Python."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from memdiag.recorder.config import VARIABLE, Config, from_environment
from memdiag.recorder.launch import environment_for

FAKE_TORCH = str(Path(__file__).parent / "fake_torch")
TRAIN = "import torch; torch.empty(1000); torch.step(); torch.empty(2000); "


def pythons():
    """Returns other versions of Python: those named in MEMDIAG_TEST_PYTHONS, and those of pyenv."""
    named = [Path(path) for path in os.environ.get("MEMDIAG_TEST_PYTHONS", "").split(os.pathsep) if path]
    return named + sorted(Path.home().glob(".pyenv/versions/*/bin/python"))


@pytest.fixture
def run(tmp_path):
    """Returns a function that runs a program with the bootstrap, and returns the process and the recorded files."""

    def start(*command, python=sys.executable, path=(FAKE_TORCH,), settings=None, recorded=True, **more):
        folder = tmp_path / "run"
        base = {name: value for name, value in os.environ.items() if not name.startswith(("MEMDIAG", "PYTHON", "RANK"))}
        base.update(more, PYTHONDONTWRITEBYTECODE="1")
        if path:
            base["PYTHONPATH"] = os.pathsep.join(map(str, path))
        chosen = environment_for(Config(str(folder), **(settings or {})), base) if recorded else base
        done = subprocess.run(
            [str(python), *command], cwd=tmp_path, env=chosen, capture_output=True, text=True, timeout=100, check=False
        )
        return done, sorted(path.name for path in folder.glob("rank*.pkl")) if folder.is_dir() else []

    return start


def test_a_process_that_uses_torch_is_recorded(run, tmp_path):
    done, files = run("-c", TRAIN + "print(1)")
    assert (done.stdout, done.stderr, done.returncode, files) == ("1\n", "", 0, ["rank0.pkl"])
    content = pickle.loads((tmp_path / "run" / "rank0.pkl").read_bytes())
    assert [entry["size"] for entry in content["device_traces"][0] if entry["action"] == "alloc"] == [1000, 2000]
    assert content["memdiag"]["steps"] == 1


def test_without_torch_nothing_is_loaded(run):
    done, files = run(
        "-c", "import sys; print([name for name in sys.modules if 'memdiag' in name], 'json' in sys.modules)"
    )
    assert (done.stdout, done.stderr, files) == ("[] False\n", "", [])


def test_a_process_that_first_only_looks_for_torch_is_recorded(run):
    looks = "import importlib.util; importlib.util.find_spec('torch'); importlib.util.find_spec('torch'); "
    assert run("-c", looks + TRAIN)[1] == ["rank0.pkl"]


def test_the_import_hook_is_removed_after_use(run):
    code = TRAIN + (
        "import sys; print([type(f).__module__ for f in sys.meta_path if type(f).__name__ == '_Watch'], "
        "len(vars(torch.__loader__)))"
    )
    with_us = run("-c", code)[0].stdout
    without = run("-c", code, recorded=False)[0].stdout
    assert with_us.split("]")[1] == without.split("]")[1]


def test_sys_path_is_the_same_as_without_recording(run):
    code = "import sys; print(sys.path, sys.flags, sys.warnoptions)"
    assert run("-c", code)[0].stdout == run("-c", code, recorded=False)[0].stdout


@pytest.mark.parametrize("package", ["import nothing_of_the_sort", "a b c", "1 / 0"])
def test_a_failing_import_of_torch_prints_the_same_error(run, tmp_path, package):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(package)
    with_us = run("-c", "import torch", path=[tmp_path])[0]
    assert with_us.stderr == run("-c", "import torch", path=[tmp_path], recorded=False)[0].stderr
    assert with_us.returncode == 1


def test_the_users_sitecustomize_runs(run, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("import sys\nsys.mine = __file__\n")
    done, files = run(
        "-c", TRAIN + "import sys, sitecustomize; print(sys.mine == sitecustomize.__file__)", path=[mine, FAKE_TORCH]
    )
    assert (done.stdout, done.stderr, files) == ("True\n", "", ["rank0.pkl"])


def test_a_failing_sitecustomize_prints_the_same_error(run, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("import nothing_of_the_sort\n")
    done, files = run("-c", TRAIN, path=[mine, FAKE_TORCH])
    assert done.stderr == run("-c", TRAIN, path=[mine, FAKE_TORCH], recorded=False)[0].stderr
    assert files == ["rank0.pkl"]


def test_importing_a_missing_sitecustomize_still_fails(run):
    code = (
        "\ntry:\n    import sitecustomize\n    print(sitecustomize.__file__)\nexcept ImportError as error:\n    "
        "print(error)"
    )
    assert run("-c", code)[0].stdout == run("-c", code, recorded=False)[0].stdout


def test_usercustomize_runs(run, tmp_path):
    python = getattr(sys, "_base_executable", sys.executable)  # a virtual environment has no user site packages
    ask = [str(python), "-c", "import site; print(site.getusersitepackages())"]
    base = {**os.environ, "PYTHONUSERBASE": str(tmp_path / "base")}
    folder = Path(subprocess.run(ask, env=base, capture_output=True, text=True, check=True).stdout.strip())
    folder.mkdir(parents=True)
    (folder / "usercustomize.py").write_text("print('usercustomize')\n")
    done, files = run("-c", TRAIN, python=python, PYTHONUSERBASE=str(tmp_path / "base"))
    assert (done.stdout, files) == ("usercustomize\n", ["rank0.pkl"])


def test_torch_imported_before_sitecustomize_is_recorded(run, tmp_path):
    """A program is recorded even if a .pth file imports torch before any sitecustomize runs."""
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / "early.pth").write_text("import torch\n")
    python = environment / "bin" / "python"
    done, files = run("-c", TRAIN, python=python)
    assert (done.stderr, files) == ("", ["rank0.pkl"])
    assert run("-c", "import memdiag", python=python)[0].returncode == 1  # memdiag is not installed there


@pytest.mark.skipif(not pythons(), reason="no other Python: name some in MEMDIAG_TEST_PYTHONS, or install pyenv")
@pytest.mark.parametrize("python", pythons(), ids=lambda path: path.parents[1].name)
def test_every_supported_python_is_recorded(run, python):
    version = subprocess.run(
        [str(python), "-c", "import sys; print(sys.version_info[:2] >= (3, 9))"],
        capture_output=True,
        text=True,
        check=True,
    )
    done, files = run("-c", "import os; print(1)", python=python, path=())
    assert (done.stdout, done.stderr, files) == ("1\n", "", [])
    if version.stdout.strip() == "True":
        done, files = run("-c", TRAIN, python=python)
        assert (done.stderr, files) == ("", ["rank0.pkl"])


def test_python_options_that_disable_the_recorder_cause_no_error(run):
    for option in ("-I", "-E", "-S"):
        code = "import sys; sys.path.insert(0, %r); " % FAKE_TORCH + TRAIN  # noqa: UP031 - avoids doubled braces
        done, files = run(option, "-c", code)
        assert (done.stderr, done.returncode, files) == ("", 0, [])


def test_forked_children_are_not_recorded(run):
    code = TRAIN + "import os, sys; pid = os.fork()\nif pid == 0: torch.empty(9); sys.exit(0)\nos.waitpid(pid, 0)"
    done, files = run("-c", code)
    assert (done.stderr, files) == ("", ["rank0.pkl"])


def test_spawned_children_are_recorded(run, tmp_path):
    (tmp_path / "main.py").write_text(
        "import multiprocessing, torch\n"
        "def work(n): torch.empty(n)\n"
        "if __name__ == '__main__':\n"
        "    children = [multiprocessing.get_context('spawn').Process(target=work, args=(n,)) for n in (10, 20)]\n"
        "    [child.start() for child in children]; [child.join() for child in children]\n"
        "    torch.empty(5)\n"
    )
    done, files = run("main.py")
    assert (done.stderr, files) == ("", ["rank0.pkl", "rank1.pkl", "rank2.pkl"])


def test_ranks_are_those_of_the_environment(run):
    assert run("-c", TRAIN, RANK="3")[1] == ["rank3.pkl"]


def test_a_program_that_changes_its_directory_is_recorded(run):
    assert run("-c", "import os; os.chdir('/'); " + TRAIN)[1] == ["rank0.pkl"]


def test_a_process_that_calls_os_exit_is_noted_as_not_ended(run, tmp_path):
    done, files = run("-c", TRAIN + "import os; os._exit(3)")
    assert (done.returncode, files) == (3, [])
    (said,) = (tmp_path / "run" / ".processes").iterdir()
    assert json.loads(said.read_text())["ended"] is None


def test_an_unusable_recording_folder_gives_a_warning(run, tmp_path):
    (tmp_path / "run").write_text("a file in the way")
    done, _ = run("-c", TRAIN + "print(1)")
    assert (done.stdout, done.returncode) == ("1\n", 0)
    assert "memdiag: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_nested_recording_uses_its_own_folder():
    outer = environment_for(Config("/outer"), {"PYTHONPATH": "/mine"})
    inner = environment_for(Config("/in\\ner ü"), outer)
    assert inner["PYTHONPATH"] == outer["PYTHONPATH"]
    assert outer["PYTHONPATH"].endswith(os.pathsep + "/mine")
    assert from_environment(inner).folder == "/in\\ner ü"


def test_unknown_settings_of_another_version_are_ignored():
    given = json.loads(Config("/x").as_text())
    assert from_environment({VARIABLE: json.dumps({**given, "new_one": 1})}) == Config("/x")
