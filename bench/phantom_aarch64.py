"""Compiles the simulated runtimes for aarch64, and trains with them under an emulator.

    python bench/phantom_aarch64.py --cuda VENV/bin/python --npu PACKAGES --emulated PYTHON --native VENV/bin/python

Writes a section of reports/phantom-versions.md. Needs g++ for aarch64 (Debian: g++-aarch64-linux-gnu). VENV has a CUDA
build of torch, from which the needed functions are read. PACKAGES is a folder with torch_npu for aarch64 (pip install
--target, --platform manylinux_2_28_aarch64). PYTHON is a script that starts a Python of that processor with torch and
torch_npu under qemu-aarch64; the same training runs on the native one, with the same versions. Rows of options that are
not given are kept.
"""

from __future__ import annotations

import argparse
import os
import pickle
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measuring import markdown_table

from memdiag.phantom import ascend
from memdiag.phantom.build import Compiler
from memdiag.phantom.cuda import standin
from memdiag.phantom.installed import installed_for

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "reports" / "phantom-versions.md"
TRAIN = ROOT / "tests" / "phantom" / "programs" / "train.py"
BEGIN, END = "<!-- aarch64 -->", "<!-- aarch64 ends -->"
HEAD = ("what", "with", "came out")
TARGET = "aarch64-linux-gnu-"
MACHINE = 183  # EM_AARCH64, in the head of each library
RANK = ("--as-rank", "517", "--world", "1024")
TRAININGS = (
    ("a training", "", ("alone",), ()),
    ("DDP, rank 517 of 1,024", "", ("ddp",), RANK),
    ("out of memory", ",capacity=1GiB", ("alone", "2048", "8", "1000"), ()),
)


def compiler_of(name: str) -> Compiler:
    """The cross compiler, as the product describes one of the system."""
    said = subprocess.run([TARGET + name, "--version"], capture_output=True, text=True, check=True).stdout
    return Compiler((TARGET + name,), said.partition("\n")[0])


def of_aarch64(folder: Path) -> str:
    """Returns the number of libraries in a folder, after a check that all are for aarch64."""
    libraries = [path for path in folder.glob("*.so*") if not path.is_symlink()]
    others = [path.name for path in libraries if int.from_bytes(path.read_bytes()[18:20], "little") != MACHINE]
    return f"{len(libraries)} libraries" + (f", not of aarch64: {', '.join(others)}" if others else "")


def cuda(python: str) -> list[str]:
    """Compiles the simulated CUDA runtime for the torch of a Python."""
    installed, compiler = installed_for([python], os.environ), compiler_of("g++")
    torch = standin.Torch(Path(installed.folder_of("torch")), installed.version_of("torch"))
    with tempfile.TemporaryDirectory() as scratch:
        standin.make(torch, compiler, Path(scratch))
        return ["compiled: CUDA", f"torch {torch.version}, {compiler.version}", of_aarch64(Path(scratch))]


def npu(packages: Path) -> list[str]:
    """Compiles the simulated Ascend runtime for a torch_npu that was built for aarch64."""
    compiler = compiler_of("gcc")
    libraries = sorted(
        path for path in (packages / "torch_npu").rglob("*.so") if path.parent.name in {"lib", "torch_npu"}
    )
    version = next(packages.glob("torch_npu-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    with tempfile.TemporaryDirectory() as scratch:
        # as the product does it, for libraries that nothing here can load
        ascend._compile(compiler, libraries, Path(scratch))  # noqa: SLF001
        return ["compiled: NPU", f"torch_npu {version}, {compiler.version}", of_aarch64(Path(scratch))]


def record(
    python: str, device: str, words: Sequence[str], options: Sequence[str], folder: Path, **more: str
) -> list[tuple[str, int]]:
    """Records a training; returns the allocator's events, each with its size in bytes."""
    command = [
        sys.executable,
        "-m",
        "memdiag",
        "record",
        "--quiet",
        "--phantom",
        device,
        *options,
        "-o",
        str(folder),
        "--",
        python,
    ]
    done = subprocess.run(
        [*command, str(TRAIN), *words], capture_output=True, text=True, check=False, env={**os.environ, **more}
    )
    path = next(iter(sorted(folder.glob("rank*.pkl"))), None)
    if path is None:
        sys.exit(f"{shlex.join(words)} left no recording: {done.stderr[-2000:]}")
    traces = pickle.loads(path.read_bytes())["device_traces"]  # written a moment ago, by memdiag
    return [(entry["action"], entry["size"]) for trace in traces for entry in trace]


def trained(emulated: str, native: str) -> list[list[str]]:
    """Trains on both processors; the rows of the table."""
    versions = installed_for([emulated], os.environ)
    about = f"torch {versions.version_of('torch')}, torch_npu {versions.version_of('torch_npu')}"
    rows = []
    for name, changed, words, options in TRAININGS:
        with tempfile.TemporaryDirectory() as scratch:
            device = f"npu:910b-64g{changed}"
            there = record(emulated, device, words, options, Path(scratch) / "there", CC=f"{TARGET}gcc")
            here = record(native, device, words, options, Path(scratch) / "here")
        outcome = (
            "the same on x86-64"
            if there == here
            else f"others on x86-64, from number {first_other(there, here)} of {len(here):,}"
        )
        rows.append([f"run: {name}", about, f"{len(there):,} events, {outcome}"])
        print(" | ".join(rows[-1]), flush=True)
    return rows


def first_other(one: Sequence[object], other: Sequence[object]) -> int:
    """The first place where two lists differ."""
    return next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )


def main() -> None:
    """Runs the chosen measurements and writes their rows; other rows are kept."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cuda", nargs="*", default=[])
    parser.add_argument("--npu", type=Path)
    parser.add_argument("--emulated")
    parser.add_argument("--native")
    given = parser.parse_args()
    rows = [cuda(python) for python in given.cuda] + ([npu(given.npu)] if given.npu else [])
    rows += trained(given.emulated, given.native) if given.emulated and given.native else []
    before, _, rest = REPORT.read_text(encoding="utf-8").partition(BEGIN)
    kept, _, after = rest.partition(END)
    old = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in kept.strip().splitlines()[2:]]
    new = {tuple(row[:2]) for row in rows}
    rows = sorted([row for row in old if tuple(row[:2]) not in new] + rows)
    REPORT.write_text(f"{before}{BEGIN}\n\n{markdown_table(HEAD, rows)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
