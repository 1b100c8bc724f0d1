"""Requirements for running a command on a simulated device, and the errors if one is missing."""

import os
import shlex
import shutil
import sys
import threading

import pytest

from memdiag.errors import MemdiagError
from memdiag.phantom import ascend, build, launch
from memdiag.phantom.installed import Installed, installed_for
from memdiag.phantom.interpreter import find_python
from memdiag.phantom.profiles import choose

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="simulated devices (--phantom) work on Linux only"
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(build.CACHE, str(tmp_path / "cache"))


def script(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def python_of(command, environment):
    """Returns the words that start the Python of a command."""
    return find_python(command, environment).words


def test_the_python_of_a_command_is_found(tmp_path):
    path = {"PATH": str(tmp_path / "bin")}
    python = script(tmp_path / "bin/python3", "#!/bin/sh\n")
    torchrun = script(tmp_path / "bin/torchrun", f"#!{python}\n")
    by_env = script(tmp_path / "bin/accelerate", f"#!{python} -s\n")
    shell = script(tmp_path / "run.sh", "#!/bin/bash\npython3 train.py\n")
    assert python_of([python, "train.py"], path) == [python]
    assert python_of(["python3", "-m", "x"], path) == [python]
    assert python_of(["env", "A=b", "python3", "x.py"], path) == [python]
    assert python_of([torchrun, "x.py"], path) == [python]
    assert python_of([by_env, "x.py"], path) == [python, "-s"]
    assert python_of([shell], path) == [python]
    with pytest.raises(MemdiagError, match="found no Python"):
        python_of(["nothing"], {"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["sh", "-c", "exec {python} train.py"], ""),
        (["bash", "-c", "cd data && '{python}' -m train; exit $?"], ""),
        (["sh", "-c", ". {folder}/activate && python train.py"], ""),
        (["bash", "run.sh"], "set -e\nsource {folder}/activate\npython train.py\n"),
        (["./run.sh"], "#!/usr/bin/env bash\n{python} train.py --lr 1\n"),
    ],
    ids=["-c", "-c in quotes", "activate", "script", "script with its own first line"],
)
def test_the_python_that_a_shell_script_names_is_found(words, script, tmp_path, monkeypatch):
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    python = folder / "python"
    for path, text in ((python, ""), (tmp_path / "run.sh", script)):
        path.write_text(text.format(python=python, folder=folder))
        path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    named = [word.format(python=python, folder=folder) for word in words]
    assert python_of(named, {"PATH": "/usr/bin:/bin"}) == [str(python)]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["python", "train.py"], ["run", "python"]),
        (["--with", "torch", "python3.12", "-m", "train"], ["run", "--with", "torch", "python3.12"]),
        (["--no-sync", "train.py"], ["run", "--no-sync", "python"]),
        (["torchrun", "train.py"], ["run", "python"]),
    ],
)
def test_uv_is_asked_for_its_python(words, found, tmp_path):
    uv = tmp_path / "uv"
    uv.write_text("")
    uv.chmod(0o755)
    assert python_of(["uv", "run", *words], {"PATH": str(tmp_path)}) == [str(uv), *found]


@pytest.mark.parametrize(
    "command",
    [
        "env -u HOME python",
        "env -i PATH={folder} A=b nice -n 5 python",
        "env PATH={folder}:/usr/bin python",
        "nice -n 5 {python}",
        "timeout 60 {python}",
        "timeout -k 5 60 env -u X {folder}/torchrun",
        "timeout 60 bash -lc '{python} train.py'",
        "nohup sh -c 'PATH={folder}:$PATH; torchrun train.py'",
        "bash -c 'echo $HOME && OMP_NUM_THREADS=1 nice {python} -u train.py > log 2>&1'",
        "my_wrapper --log out {python} -m train",
        "uv run --no-sync train.py",
    ],
)
def test_the_python_below_wrappers_is_found(command, tmp_path):
    python = script(tmp_path / "bin/python", "#!/bin/sh\n")
    script(tmp_path / "bin/torchrun", f"#!{python}\n")
    script(tmp_path / "other/my_wrapper", "#!/bin/sh\nexec $*\n")
    uv = script(tmp_path / "other/uv", "")
    words = shlex.split(command.format(python=python, folder=tmp_path / "bin"))
    first = "bin" if words[0] == "env" and "PATH" not in command else "none"
    path = os.pathsep.join([str(tmp_path / first), str(tmp_path / "other"), "/usr/bin", "/bin"])
    found = find_python([*words, "train.py"], {"PATH": path, "HOME": "/"})
    assert found.is_known
    assert found.words == ([uv, "run", "--no-sync", "python"] if words[0] == "uv" else [python])


def test_an_unknown_python_is_named_as_assumed(tmp_path):
    python = script(tmp_path / "bin/python3", '#!/bin/sh\nprintf \'{"python": "%s", "packages": {}}\' "$0"\n')
    program = script(tmp_path / "bin/my_training", "#!/bin/sh\nexec $PYTHON train.py\n")
    found = installed_for([program], {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    assert found.python == python
    assert found.hint("phantom.no-torch.hint").startswith(f"memdiag does not know which Python {program} runs")
    assert not installed_for([python, "train.py"], os.environ).program


def test_installed_packages_are_found_without_importing_them(tmp_path):
    package = tmp_path / "torch_npu"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    found = installed_for([sys.executable], {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert found.folder_of("torch_npu") == str(package)


def test_a_python_that_does_not_run_is_an_error(tmp_path):
    python = script(tmp_path / "bin/python3", "#!/bin/sh\nexit 1\n")
    with pytest.raises(MemdiagError, match="does not run"):
        installed_for([python], os.environ)


@pytest.mark.parametrize(
    ("packages", "says"),
    [
        ({}, "torch_npu is not installed"),
        ({"torch_npu": {"folder": "/x", "version": "2.1.0.post8"}}, "support 2.6 to 2.14"),
    ],
)
def test_missing_and_unsupported_versions_of_torch_npu_are_errors(packages, says):
    with pytest.raises(MemdiagError, match=says):
        ascend.stand_in(Installed("python", packages))


@pytest.mark.parametrize("is_for_cuda", [True, False])
def test_a_cuda_build_of_torch_that_crashes_torch_npu_is_an_error(is_for_cuda, tmp_path):
    for name, text in (
        ("torch_npu/lib/libtorch_npu.so", "… registerDeviceConfigParserHook …"),
        ("torch/lib/libc10.so", ""),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    if is_for_cuda:
        (tmp_path / "torch/lib/libc10_cuda.so").touch()
    packages = {name: {"folder": str(tmp_path / name), "version": "2.14.0"} for name in ("torch", "torch_npu")}
    if is_for_cuda:
        with pytest.raises(MemdiagError, match=r"is a CUDA build, and torch_npu 2\.14\.0 cannot be imported with it"):
            ascend.stand_in(Installed("python", packages))
    else:
        ascend._refuse_clash(Installed("python", packages), "2.14.0")


def test_a_simulated_device_inside_another_is_an_error():
    with pytest.raises(MemdiagError, match="already"):
        launch.environment_for(choose("npu:910b-64g"), [sys.executable], {launch.VARIABLE: "{}"})


def test_a_missing_compiler_is_an_error_with_a_hint(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(MemdiagError, match="needs a compiler") as refused:
        build.find_compiler("c")
    assert "apt-get install" in refused.value.hint
    monkeypatch.setenv("CC", "nothing-like-it -O2")
    with pytest.raises(MemdiagError, match="CC=nothing-like-it is not a program"):
        build.find_compiler("c")


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler")
def test_a_compile_error_is_reported_in_one_line(tmp_path):
    (tmp_path / "broken.c").write_text("int broken(\n")
    with pytest.raises(MemdiagError, match=r"could not compile the simulated device: .*broken\.c:1"):
        build.find_compiler("c").run(["-c", "-o", tmp_path / "broken.o", tmp_path / "broken.c"])


def test_concurrent_requests_share_one_build():
    made = []

    def make(folder):
        made.append(folder)
        (folder / "result").write_text("whole")

    folders = []
    threads = [threading.Thread(target=lambda: folders.append(build.cached("kind", ["a"], make))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert {folder.joinpath("result").read_text() for folder in folders} == {"whole"}
    assert build.cached("kind", ["b"], make) != folders[0]


def test_a_failed_build_leaves_no_folder(tmp_path):
    def fail(folder):
        (folder / "half").write_text("")
        raise MemdiagError("no")

    with pytest.raises(MemdiagError, match="no"):
        build.cached("kind", ["a"], fail)
    assert [path.name for path in (tmp_path / "cache/phantom").iterdir() if path.is_dir()] == []


def test_a_changed_source_file_causes_a_new_build(tmp_path):
    source = tmp_path / "source.c"
    source.write_text("one")
    first = build.cached("kind", [source], lambda _: None)
    source.write_text("two")
    assert build.cached("kind", [source], lambda _: None) != first


def test_an_unwritable_cache_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(build.CACHE, str(tmp_path / "file"))
    with pytest.raises(MemdiagError, match="cannot write the compiled libraries") as refused:
        build.cached("kind", ["a"], lambda _: None)
    assert build.CACHE in refused.value.hint


@pytest.mark.parametrize("device", ["cuda:h100-80g", "npu:910b-64g"])
def test_assumptions_about_values_are_limited_to_uncomputed_ones(device):
    profile = choose(device)
    plain, computing = launch.assumptions(profile), launch.assumptions(profile, computes=True)
    made_up = [text for text in plain if "read as zeros" in text or "selects all" in text]
    assert made_up
    assert not set(made_up) & set(computing)
    assert {f"where the CPU did not compute it: {text}" for text in made_up} <= set(computing)


def test_no_bytecode_is_written_where_torch_has_a_bytecode_cache(tmp_path, monkeypatch):
    torch = tmp_path / "torch"
    torch.mkdir()
    installed = Installed("python", {"torch": {"folder": str(torch), "version": "2.13.0"}})
    monkeypatch.setattr(launch, "installed_for", lambda *_: installed)
    monkeypatch.setattr(launch.ascend, "stand_in", lambda _: tmp_path)
    monkeypatch.setattr(launch, "_STAND_INS", {"npu": launch.ascend})
    device = choose("npu:910b-64g")
    assert "PYTHONDONTWRITEBYTECODE" not in launch.environment_for(device, ["python"], {})
    (torch / "__pycache__").mkdir()
    assert launch.environment_for(device, ["python"], {})["PYTHONDONTWRITEBYTECODE"] == "1"
