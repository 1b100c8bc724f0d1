"""Tries the phantom NPU with several versions of torch_npu, and writes the section NPU of reports/phantom-versions.md.

    python bench/phantom_npu_versions.py [--only pressure] PYTHON…      # each of an environment with a torch_npu and
    its torch

For each: the recorded rows of the allocator (tests/phantom/npu_rows.py; with --only those of some programs), tests of
tests/phantom/test_npu.py (values, failures, models of many kinds, DDP and FSDP2 as one rank of 1,024), a GPT recorded
twice, and what its own out-of-memory error says. Rows of versions that are not measured stay.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measuring import markdown_table

from memdiag.phantom.installed import installed_for

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "phantom"
REPORT = ROOT / "reports" / "phantom-versions.md"
BEGIN, END = "<!-- npu -->", "<!-- npu ends -->"
HEAD = ("torch_npu", "torch", "recorded rows", "tests", "GPT: events, twice the same", "out of memory")
DEVICE = "npu:910b-64g"
CHOSEN = "host_wrote or operators_compute or freed or costs or failure or kinds or one_rank"


def rows_of(python: str, only: str) -> str:
    """How many of the allocator's recorded rows come out, of the programs whose name holds ``only``."""
    command = [sys.executable, "-m", "tests.phantom.npu_rows", "--python", python, f"--only={only}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return (done.stderr.strip().splitlines() or ["not here"])[-1]


def tests_of(python: str) -> str:
    """What the tests say; the names of those that fail."""
    environment = {**os.environ, "MEMDIAG_TEST_NPU_PYTHON": python}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--tb=no",
        "-rf",
        "-k",
        CHOSEN,
        str(TESTS / "test_npu.py"),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT).stdout
    failed = re.findall(r"^FAILED \S+::(\S+)", said, re.MULTILINE)
    progress = "".join(re.findall(r"^[.FEsx]+(?= +\[)", said, re.MULTILINE))
    counts = [
        f"{progress.count(mark)} {word}"
        for mark, word in ((".", "passed"), ("F", "failed"), ("E", "errors"))
        if mark in progress
    ]
    return ", ".join(counts) + (f": {', '.join(failed)}" if failed else "")


def record(python: str, device: str, words: Sequence[str], folder: Path) -> tuple[str, list[tuple[object, ...]]]:
    """Records the training on a device; returns its output and the allocator's events."""
    command = [
        sys.executable,
        "-m",
        "memdiag",
        "record",
        "--quiet",
        "--phantom",
        device,
        "-o",
        str(folder),
        "--",
        python,
    ]
    done = subprocess.run(
        [*command, str(TESTS / "programs" / "train.py"), *words], capture_output=True, text=True, check=False, cwd=ROOT
    )
    found: list[tuple[object, ...]] = []
    for path in sorted(folder.glob("rank*.pkl")):
        with path.open("rb") as file:
            traces = pickle.load(file)["device_traces"]  # written a moment ago, by memdiag
        found += [
            (entry["action"], entry["size"], entry.get("addr"), entry.get("stream"))
            for trace in traces
            for entry in trace
        ]
    return done.stderr, found


def measure(python: str, only: str) -> list[str]:
    """One row of the table."""
    installed = installed_for([python], os.environ)
    with tempfile.TemporaryDirectory() as scratch:
        runs = [record(python, DEVICE, (), Path(scratch) / str(number)) for number in range(2)]
        said, _ = record(python, f"{DEVICE},capacity=1GiB", ("alone", "2048", "8", "1000"), Path(scratch) / "oom")
    hashes = {hashlib.sha256(repr(events).encode()).hexdigest() for _, events in runs}
    trained = (
        f"{len(runs[0][1]):,}, {'yes' if len(hashes) == 1 else 'no'}"
        if runs[0][1]
        else runs[0][0].strip().rpartition("\n")[2]
    )
    failure = re.search(r"NPU out of memory\. Tried to allocate [^(]*\([^)]*\)", said)
    texts = [
        installed.version_of("torch_npu"),
        installed.version_of("torch"),
        rows_of(python, only),
        tests_of(python),
        trained,
    ]
    return [text.replace("|", "/") for text in (*texts, failure[0] if failure else "no error came")]


def _order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def main() -> None:
    """Runs the chosen measurements, and adds or replaces their rows in the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("python", nargs="+")
    parser.add_argument("--only", default="", help="recorded programs whose name holds this")
    given = parser.parse_args()
    for python in given.python:
        row = measure(python, given.only)
        print(" | ".join(row), flush=True)
        before, _, rest = REPORT.read_text(encoding="utf-8").partition(BEGIN)
        kept, _, after = rest.partition(END)
        lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in kept.strip().splitlines()[2:]]
        rows = sorted([line for line in lines if line[0] != row[0]] + [row], key=lambda line: _order(line[0]))
        REPORT.write_text(f"{before}{BEGIN}\n\n{markdown_table(HEAD, rows)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
