"""``memdiag doctor`` reports correctly whether each Python can record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memdiag.cli.main import main
from memdiag.runs import machine as command
from memdiag.settings.environment import check_builds

FAKE_TORCH = Path(__file__).parents[1] / "recorder" / "fake_torch"
ENVIRONMENT = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_NPU_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
)


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    for name in (*ENVIRONMENT, "PYTHONPATH", "MEMDIAG_RECORD"):
        monkeypatch.delenv(name, raising=False)


def asked(capsys, *options):
    assert main(["doctor", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def with_fake_torch(folder, python=sys.executable):
    """Creates a Python with only the fake torch, without memdiag."""
    subprocess.run([str(python), "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(Path(folder).glob("lib/python*/site-packages"))
    (packages / "torch").symlink_to(FAKE_TORCH / "torch", target_is_directory=True)
    return str(Path(folder) / "bin" / "python")


def test_a_python_with_torch_is_tried(tmp_path, capsys, monkeypatch):
    python = with_fake_torch(tmp_path / "env")
    monkeypatch.chdir(tmp_path)
    report = asked(capsys, "--python", str(tmp_path / "env"), "--python", python)
    (found,) = report["pythons"]
    assert found["facts"]["torch_version"] == "2.9.0+fake"
    by_name = {backend["name"]: backend for backend in found["backends"]}
    assert by_name["cpu"]["works"] is True
    assert by_name["cpu"]["num_events"] >= 1
    assert by_name["cuda"]["works"] is None
    assert "does not support CUDA or ROCm" in by_name["cuda"]["reason"]
    assert by_name["npu"]["works"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["env"]  # no other file remains


def test_a_python_without_torch(capsys, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    report = asked(capsys, "--python", str(tmp_path / "env"))
    assert report["pythons"][0]["reason"] == "torch is not installed"
    assert "pip install torch" in report["pythons"][0]["fix"]


def test_a_torch_that_is_broken(capsys, tmp_path):
    python = with_fake_torch(tmp_path / "env")
    packages = next((tmp_path / "env").glob("lib/python*/site-packages"))
    (packages / "torch").unlink()
    (packages / "torch.py").write_text("raise OSError('libcudart.so.12: cannot open shared object file')\n")
    report = asked(capsys, "--python", python)
    assert "libcudart.so.12" in report["pythons"][0]["reason"]


@pytest.mark.parametrize("width", [40, 80])
def test_it_fits_the_terminal(capsys, tmp_path, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:true")
    (tmp_path / "x").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "x").chmod(0o755)
    assert main(["doctor", "--python", str(tmp_path / "x"), "--python", sys.executable]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= width


def test_what_is_no_python(capsys, tmp_path):
    (tmp_path / "x").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "x").chmod(0o755)
    report = asked(capsys, "--python", str(tmp_path / "x"))
    assert "does not run" in report["pythons"][0]["reason"]
    assert main(["doctor", "--python", str(tmp_path / "nothing")]) == 2
    assert "error: --python" in capsys.readouterr().err


def facts(**more):
    return {
        "version": "3.11.0",
        "prefix": "/p",
        "torch_version": "2.6.0",
        "cuda_build": "12.4",
        "hip_build": None,
        "npu_build": None,
        "npu_error": None,
        "devices": {"cuda": ["H"], "npu": []},
        "errors": {},
        "cuda_allocator": "native",
        **more,
    }


@pytest.mark.parametrize(
    ("name", "given", "works", "why"),
    [
        ("cuda", {"cuda_allocator": "cudaMallocAsync"}, False, "the allocator cudaMallocAsync keeps no history"),
        ("cuda", {"devices": {"cuda": []}}, None, "torch sees no device"),
        (
            "cuda",
            {"devices": {"cuda": []}, "errors": {"cuda": "RuntimeError: old driver"}},
            None,
            "RuntimeError: old driver",
        ),
        (
            "npu",
            {"npu_error": "libhccl.so: cannot open"},
            None,
            "torch_npu cannot be imported: libhccl.so: cannot open",
        ),
        (
            "npu",
            {"npu_build": "2.6.0", "npu_allocator": "pluggable", "devices": {"npu": ["910"]}},
            False,
            "the allocator pluggable keeps",
        ),
    ],
)
def test_reasons(name, given, works, why):
    backend = command._accelerator("/no/python", facts(**given), name)
    assert backend.works is works
    assert why in backend.reason
    assert backend.fix


def test_devices_hidden_by_the_environment_are_named(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES=" in command._accelerator("/no/python", facts(devices={"cuda": []}), "cuda").reason


def test_settings_are_looked_at(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:true")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    report = asked(capsys, "--python", str(tmp_path / "env"))
    assert [report["variable"] for report in report["settings"]] == ["PYTORCH_CUDA_ALLOC_CONF"]
    assert report["settings"][0]["findings"][0]["code"].startswith("MD65")
    assert main(["doctor", "--python", str(tmp_path / "env")]) == 0
    shown = capsys.readouterr().out
    assert "expandable_segments:true" in shown
    assert "memdiag conf --env" in shown


@pytest.mark.parametrize("backend", ["cuda", "npu"])
def test_accelerators(capsys, backend):
    python = os.environ.get(f"MEMDIAG_TEST_{backend.upper()}_PYTHON")
    if not python:
        pytest.skip(f"needs a Python with {backend}: name it in MEMDIAG_TEST_{backend.upper()}_PYTHON")
    by_name = {found["name"]: found for found in asked(capsys, "--python", python)["pythons"][0]["backends"]}
    assert by_name[backend]["works"] is True
    assert by_name[backend]["devices"]


def test_a_machine_is_surveyed_from_python(tmp_path, capsys):
    python = with_fake_torch(tmp_path / "env")
    (found,) = command.survey([python, str(tmp_path / "env")])
    assert found.facts["torch_version"] == "2.9.0+fake"
    assert check_builds({}, [found.facts], "linux") == []
    (report,) = check_builds({"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}, [], "linux")
    assert report.backend == "npu"
    assert capsys.readouterr() == ("", "")
