"""The set-up of `make demo` and `make test` works with both builds of torch, and the demo has a fallback."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_SPEC = importlib.util.spec_from_file_location("install", ROOT / "tools" / "install.py")
install = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(install)

REQUIRED = [  # dependencies of torch 2.13 from PyPI (CUDA build)
    "filelock",
    "typing-extensions>=4.10.0",
    'cuda-toolkit[cublas,cudart]==13.0.3; platform_system == "Linux"',
    'cuda-bindings<14,>=13.0.3; platform_system == "Linux" and python_version < "3.15"',
    'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',
    'triton==3.7.1; platform_system == "Linux" and python_version < "3.15"',
    'optree>=0.13.0; extra == "optree"',
    'setuptools<82; python_version >= "3.12"',
]


def test_the_toolkit_is_left_out():
    assert install.without_toolkit(REQUIRED) == [
        "filelock",
        "typing-extensions>=4.10.0",
        'setuptools<82; python_version >= "3.12"',
    ]


@pytest.fixture
def installed(monkeypatch):
    """Replaces pip; returns a function that installs a build of torch and returns the arguments of each call of pip."""

    def with_build(*, cuda, placeholders="", imports=True):
        asked, has_toolkit = [], False

        def pip_install(*words):
            nonlocal has_toolkit
            asked.append(words)
            has_toolkit |= words == ("torch==2.13.0",)

        def why_no_import():
            return (
                ""
                if asked and (has_toolkit or (imports and not placeholders))
                else "ImportError: libcudart.so.13: not found"
            )

        compiled = subprocess.CompletedProcess([], bool(placeholders), stderr=placeholders)
        monkeypatch.setattr(install, "install", pip_install)
        monkeypatch.setattr(install, "torch_version", lambda: "2.13.0" if asked else "")
        monkeypatch.setattr(install, "is_cuda_build", lambda: cuda)
        monkeypatch.setattr(install, "why_no_import", why_no_import)
        monkeypatch.setattr(install.metadata, "requires", lambda _: REQUIRED)
        monkeypatch.setattr(install.subprocess, "run", lambda *_, **__: compiled)
        install.install_torch("torch==2.13.0")
        return asked

    return with_build


def test_a_build_for_the_cpu_brings_all_that_it_needs(installed):
    assert installed(cuda=False) == [("--no-deps", "torch==2.13.0"), ("torch==2.13.0",)]


def test_a_build_for_cuda_comes_without_the_toolkit(installed, capsys):
    without, rest = installed(cuda=True)
    assert without == ("--no-deps", "torch==2.13.0")
    assert not any("nvidia" in word or "cuda" in word or "triton" in word for word in rest)
    assert "placeholders" in capsys.readouterr().err


@pytest.mark.parametrize("failure", [{"placeholders": "there is no compiler"}, {"imports": False}])
def test_the_toolkit_is_installed_where_placeholders_do_not_help(installed, capsys, failure):
    assert installed(cuda=True, **failure)[-1] == ("torch==2.13.0",)
    assert "note: no placeholders: " + failure.get("placeholders", "ImportError") in capsys.readouterr().err


def test_torch_npu_is_not_installed_beside_a_build_for_cuda(tmp_path, monkeypatch):
    monkeypatch.setattr(install, "torch_version", lambda: "2.13.0")
    monkeypatch.setattr(install, "is_cuda_build", lambda: True)
    install.install_torch_npu(tmp_path / "npu")
    assert "is a build for CUDA" in (tmp_path / "npu" / "why").read_text()
    assert not (tmp_path / "npu" / "bin").exists()


# ------------------------------------------------------------------------------------------------------------- the demo

FAKE_MEMDIAG = """\
#!/bin/sh
echo "$*" >> {log}
case "$*" in
  *--find-max*) {find_max} ;;
  "record --phantom"*) {phantom} ;;
  record*) {cpu} ;;
esac
"""
MAKES_TRACE = "touch {out}/trace.pkl"


@pytest.fixture
def demo(tmp_path):
    """Runs examples/demo.sh with scripts instead of memdiag and Python; returns the process and memdiag's commands."""
    bin_, out, log = tmp_path / "bin", tmp_path / "out", tmp_path / "log"
    bin_.mkdir()

    def script(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(*, cuda="", npu=True, phantom=f"{MAKES_TRACE}; exit 1", cpu=MAKES_TRACE, find_max=":"):
        words = {
            name: text.format(out=out) for name, text in {"phantom": phantom, "cpu": cpu, "find_max": find_max}.items()
        }
        script(bin_ / "memdiag", FAKE_MEMDIAG.format(log=log, **words))
        script(bin_ / "python", f"#!/bin/sh\necho {cuda}\n")
        if npu:
            script(tmp_path / "npu" / "bin" / "python", "#!/bin/sh\n")
        else:
            (tmp_path / "npu").mkdir()
            (tmp_path / "npu" / "why").write_text("torch is not installed in .venv\n")
        done = subprocess.run(
            [
                shutil.which("bash"),
                *map(str, [ROOT / "examples" / "demo.sh", bin_ / "python", tmp_path / "npu" / "bin" / "python", out]),
            ],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"]},
        )
        return done, log.read_text().splitlines()

    return run


@pytest.mark.parametrize(
    ("has", "device"), [({"npu": True}, "npu:910b-64g"), ({"npu": False, "cuda": "13.0"}, "cuda:h100-80g")]
)
def test_the_demo_takes_the_device_that_the_build_allows(demo, has, device):
    done, commands = demo(**has)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in commands] == [
        "record",
        "analyze",
        "analyze",
        "analyze",
        "analyze",
        "tune",
        "try",
        "record",
    ]
    assert all(device in line for line in commands if line.startswith("record"))
    assert "note:" not in done.stderr


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ({"npu": False}, "torch is not installed in .venv"),
        ({"phantom": "printf 'starting\\nerror: no compiler\\nhint: get one\\n' >&2; exit 2"}, "no compiler"),
        ({"phantom": "echo 'Fatal Python error: Aborted' >&2; exit 134"}, "Fatal Python error: Aborted"),
        ({"phantom": MAKES_TRACE}, "the training was expected to run out of memory, and did not"),
        ({"phantom": "exit 1"}, "unknown"),
        ({"find_max": "echo 'error: no such batch' >&2; exit 2"}, "no such batch"),
    ],
)
def test_the_demo_records_on_the_cpu_if_the_device_fails(demo, failure, reason):
    done, commands = demo(**failure)
    assert done.returncode == 0, done.stderr
    assert f"note: no simulated device: {reason}\nnote: recording a small GPT on the CPU instead\n" in done.stderr
    assert any(line.startswith("record --quiet") for line in commands)
    assert commands[-1].endswith("report.html")


def test_the_demo_analyzes_a_committed_trace_if_nothing_can_be_recorded(demo):
    done, commands = demo(npu=False, cpu="echo 'error: torch is not installed' >&2; exit 2")
    assert done.returncode == 0, done.stderr
    assert "note: no recording: torch is not installed\n" in done.stderr
    assert "gpt-train.pickle" in commands[-1]
