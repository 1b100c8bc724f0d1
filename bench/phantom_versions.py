"""Tries the phantom CUDA device with several versions of torch (section CUDA of reports/phantom-versions.md).

    python bench/phantom_versions.py PYTHON…      # each of an environment with a CUDA build of torch; rows of others
    stay
    python bench/phantom_versions.py --profiles PYTHON…      # only the operators on every profile

For each: the recorded rows of the allocator (tests/phantom/cuda_rows.py), programs of many kinds, what must be read
back, what must be refused by name, a GPT recorded twice and once with expandable segments, and what its own
out-of-memory error says. With ``--profiles``: the operators of tests/phantom/programs/operators_cuda.py on every
profile of a CUDA device. The wheels of the toolkit need not be there. The section NPU is that of
bench/phantom_npu_versions.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measuring import markdown_table

from memdiag.phantom import launch
from memdiag.phantom.cuda.standin import Torch
from memdiag.phantom.installed import installed_for
from memdiag.phantom.profiles import choose, profiles

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "phantom"
REPORT = ROOT / "reports" / "phantom-versions.md"
BEGIN, END = "<!-- cuda -->", "<!-- cuda ends -->"
PROFILES = [profile.full_name for profile in profiles() if profile.backend == "cuda"]
PROFILES_BEGIN, PROFILES_END = "<!-- profiles -->", "<!-- profiles end -->"
PROFILES_HEAD = ("torch", *(name.removeprefix("cuda:") for name in PROFILES))
HEAD = (
    "torch",
    "CUDA",
    "recorded rows",
    "programs",
    "GPT: events, twice the same",
    "expandable segments",
    "out of memory",
)
DEVICE = "cuda:h100-80g"
KINDS = ("attention", "amp", "checkpointing", "graph", "convolutions", "lstm", "ddp", "fsdp2")
PROGRAMS = ("values_cuda.py", "isolation_cuda.py", "refused_cuda.py", *(f"train_cuda.py {kind}" for kind in KINDS))
GPT, TOO_LARGE = ("cuda", "4", "256", "128", "3"), ("cuda", "24", "2048", "512", "3")


def rows_of(python: str, settings: int) -> str:
    """How many of the allocator's recorded rows come out, and why others do not."""
    command = [sys.executable, "-m", "tests.phantom.cuda_rows", "--python", python, "--settings", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    causes = sorted({line.rpartition(": ")[2] for line in done.stdout.splitlines() if "not from Python" in line})
    return "; ".join([(done.stderr.strip().splitlines() or ["not here"])[-1], *causes])


def programs_of(python: str) -> str:
    """Returns how many programs ran correctly as rank 517 of 1,024, and the names and errors of the others."""
    environment = launch.environment_for(choose(DEVICE), [python], as_rank=517, world=1024)
    command = [python, str(TESTS / "programs" / "several_cuda.py"), *PROGRAMS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"program"')]
    failed = [f"{one['program']}: {why(one['said'])}" for one in found if one["status"]]
    return "; ".join([f"{len(found) - len(failed)} of {len(PROGRAMS)}", *failed])


def why(said: Sequence[str]) -> str:
    """The line of a program's stderr that says most."""
    found = next(
        (line for line in said if line.startswith("memdiag: the phantom device cannot")),
        said[-1] if said else "nothing was said",
    )
    return re.sub(r" \(/[^)]*\)", "", found)  # paths of this machine


def record(
    python: str, device: str, words: Sequence[str], folder: Path, **more: str
) -> tuple[str, list[tuple[object, ...]]]:
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
        [*command, str(ROOT / "bench" / "timed_training.py"), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder.parent,
        env={**os.environ, **more},
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


def measure(python: str, settings: int) -> list[str]:
    """One row of the table."""
    installed = installed_for([python], os.environ)
    torch = Torch(Path(installed.folder_of("torch")), installed.version_of("torch"))
    with tempfile.TemporaryDirectory() as scratch:
        runs = [record(python, DEVICE, GPT, Path(scratch) / str(number)) for number in range(2)]
        expandable = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        said, mapped = record(python, DEVICE, GPT, Path(scratch) / "expandable", **expandable)
        failed, _ = record(python, f"{DEVICE},capacity=1GiB", TOO_LARGE, Path(scratch) / "oom")
    hashes = {hashlib.sha256(repr(events).encode()).hexdigest() for _, events in runs}
    trained = (
        f"{len(runs[0][1]):,}, {'yes' if len(hashes) == 1 else 'no'}"
        if runs[0][1]
        else why(runs[0][0].strip().splitlines())
    )
    maps = sum(entry[0] == "segment_map" for entry in mapped)
    grown = f"{len(mapped):,} events, {maps} of them map" if maps else why(said.strip().splitlines())
    error = re.search(
        r"CUDA out of memory\. Tried to allocate [^.]*\.[^.]*\. GPU 0 has a total capacity of \S+ \S+", failed
    )
    texts = [torch.version, "{}.{}".format(*torch.cuda), rows_of(python, settings), programs_of(python), trained, grown]
    return [text.replace("|", "/") for text in (*texts, error[0] if error else "no error came")]


def operators_on_profiles(python: str) -> list[str]:
    """One row of the table of profiles: what the program of operators printed on each, or its error."""
    version = installed_for([python], os.environ).version_of("torch")
    found = [version]
    for device in PROFILES:
        environment = launch.environment_for(choose(device), [python])
        command = [python, str(TESTS / "programs" / "operators_cuda.py")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        said = done.stderr.strip().splitlines()
        is_named = any("a library of this program has no kernels for" in line for line in said)
        printed = done.stdout.strip() + (
            "" if is_named == (done.stdout.strip() == "no kernels") else ", not as memdiag says"
        )
        found.append(printed if not done.returncode else why(said).replace("|", "/"))
    return found


def write(row: Sequence[str], head: Sequence[str] = HEAD, begin: str = BEGIN, end: str = END) -> None:
    """Adds a row to a table of the report, or replaces the one of the same version."""
    before, _, rest = REPORT.read_text(encoding="utf-8").partition(begin)
    kept, _, after = rest.partition(end)
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in kept.strip().splitlines()[2:]]
    rows = sorted(
        [line for line in lines if line[0] != row[0]] + [list(row)],
        key=lambda line: [int(part) for part in re.findall(r"\d+", line[0])],
    )
    REPORT.write_text(f"{before}{begin}\n\n{markdown_table(head, rows)}\n{end}{after}", encoding="utf-8")


def main() -> None:
    """Runs the chosen measurements and writes their rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("python", nargs="+")
    parser.add_argument("--settings", type=int, default=1, help="so many of the ten settings of each recorded program")
    parser.add_argument("--profiles", action="store_true", help="only the operators on every profile")
    given = parser.parse_args()
    for python in given.python:
        row = operators_on_profiles(python) if given.profiles else measure(python, given.settings)
        print(" | ".join(row), flush=True)
        write(row, *((PROFILES_HEAD, PROFILES_BEGIN, PROFILES_END) if given.profiles else ()))


if __name__ == "__main__":
    main()
