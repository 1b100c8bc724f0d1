"""Records programs of other people, unchanged, on the CPU and on phantom devices, and writes reports/other-programs.md.

    python bench/programs_of_others.py --sources FOLDER --python VENV/bin/python --device cuda:h100-80g
    python bench/programs_of_others.py --sources FOLDER --python VENV/bin/python --device cpu [--only "nanoGPT;SB3"]
    python bench/programs_of_others.py --sources FOLDER --python VENV/bin/python --device npu:910b-64g --again

FOLDER holds a clone of each repository of programs_of_others.toml, in a folder with the repository's name
(FOLDER/nanoGPT); each is read at the commit of the table (``git archive``), so its working tree plays no role. VENV has
torch for the device and the packages of programs_of_others.txt; none is installed here. The programs run in a copy with
tiny made-up data sets (synthetic_data.py).

Each row is kept once it was measured, so a run that was cut off goes on where it stopped; ``--again`` measures anew.
For a whole new table, delete reports/other-programs.json first.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from others_table import HERE, KINDS, Program, read_table, unpack
from phantom_programs import cpu_seconds, entries, limit, why

import memdiag
from memdiag.trace.model import DeviceTrace
from memdiag.trace.schema import CATEGORIES
from memdiag.units import format_bytes

STEM = HERE.parent / "reports" / "other-programs"
HEAD = (
    *("family", "program", "works", "processes", "events", "peak allocated", "counted", "answer of memdiag"),
    *("largest part", "as counted", "time", "of a processor", "one hash"),
)
# memdiag's categories, and the parts of a count.
PARTS = {
    "parameter": "parameters",
    "gradient": "gradients",
    "optimizer_state": "optimizer states",
    "activation": "activations",
    "collective": "buffers of collectives",
    "input": "input batches",
    "temporary": "temporary tensors",
    "workspace": "workspaces",
    "kv_cache": "KV caches",
    "unknown": "other tensors",
}
COUNTED_AS = {"KV caches": "activations"}  # forward allocates both
EQUAL = 0.01  # of the larger part: less is no difference
NEAR = 0.1
PHANTOM = "memdiag: the phantom"
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
GRACE_SECONDS = 10  # workers of a data loader look for their parent every 5 s


@dataclass
class Row:
    """What came of one program on one device."""

    family: str
    name: str
    device: str
    works: bool = False
    is_refused: bool = False
    said: str = ""
    options: list[str] = field(default_factory=list)
    num_processes: int = 0
    num_events: int = 0
    allocated_bytes: int = 0
    reserved_bytes: int = 0
    estimate_bytes: int | None = None
    cause: str = ""
    largest: str = ""
    same_part: str = ""
    hashes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: int
) -> tuple[int, float, float, str]:
    """Runs a command for at most ``seconds``; returns exit status, time, processor time and the end of what it said.

    At the limit, all processes of the command are killed. Processes that the command leaves behind, such as workers of
    a data loader after a failure, are killed soon after its end. Linux counts the time of a killed process for the
    parent that waits for it, so this process adopts orphans (PR_SET_CHILD_SUBREAPER) and waits for them.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began, used = time.monotonic(), cpu_seconds()
    with tempfile.TemporaryFile() as errors:  # an orphan could keep a pipe open
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            preexec_fn=limit,  # noqa: PLW1509 - this process has one thread
        )
        try:
            status, late = process.wait(timeout=seconds), ""
            took = time.monotonic() - began
        except subprocess.TimeoutExpired:
            status, late, took = 124, f"\nnot done after {seconds} s", float(seconds)
            end(process.pid)
            process.wait()
        reap(0 if late else GRACE_SECONDS)
        errors.seek(0)
        said = errors.read().decode(errors="replace") + late
    return status, took, cpu_seconds() - used, said


def children(number: int) -> list[int]:
    """Returns the children of a process."""
    files = Path(f"/proc/{number}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def end(number: int) -> None:
    """Kills a process after all that it started, so that none is adopted unseen."""
    os.kill(number, signal.SIGSTOP)
    for child in children(number):
        end(child)
    os.kill(number, signal.SIGKILL)


def reap(seconds: int) -> None:
    """Waits for all children and adopted orphans; kills those that are left after some seconds."""
    limit_at = time.monotonic() + seconds
    while True:
        try:
            found, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:  # none is left
            return
        if found:
            continue
        if time.monotonic() >= limit_at:
            for child in children(os.getpid()):
                end(child)
        time.sleep(0.05)


def digest(files: Sequence[Path], kind: str) -> str:
    """One hash of what the allocators of all processes did; on the CPU without addresses, which the system draws."""
    found = hashlib.sha256()
    for file in files:
        for action, size, address, stream in entries(file):
            found.update(repr((action, size, address if kind != "cpu" else 0, stream)).encode())
    return found.hexdigest()


def cause_of(trace: memdiag.Trace) -> str:
    """The last sentence of what ``memdiag analyze`` answers first: the main part of the peak."""
    return str(memdiag.analyze(trace).verdict.summary).rstrip(".").rpartition(". ")[2]


def measure(program: Program, given: argparse.Namespace, commits: Mapping[str, str], row: Row) -> Row:
    """Runs a program on a device as often as its row lacks."""
    kind = given.device.partition(":")[0]
    row.options = list(program.options) if kind != "cpu" else []
    device = f"{given.device},devices={program.devices}" if program.devices else given.device
    phantom = ["--phantom", device, *row.options] if kind != "cpu" else ["--backend", "cpu"]
    for number in range(len(row.hashes), given.runs):
        # one folder for all runs: lengths of paths shift addresses
        with tempfile.TemporaryDirectory(prefix="other-") as scratch:
            recorded = Path(scratch) / "run"
            ready = unpack(program, kind, given, commits, Path(scratch) / "source")
            command = [
                sys.executable,
                "-m",
                "memdiag",
                "record",
                "-q",
                *phantom,
                "-o",
                str(recorded),
                "--",
                *ready.words,
            ]
            status, *took, said = run(command, ready.folder, ready.environment, given.seconds)
            row.seconds, row.cpu_seconds = took if not number else map(min, took, (row.seconds, row.cpu_seconds))
            files = sorted(recorded.glob("rank*.pkl"))
            ours = [line for line in said.splitlines() if line.startswith(PHANTOM)]
            if status or not files:
                row.said = why(said) if status else f"exit status 0, but no trace: {why(said)}"
                row.is_refused = bool(ours)
                if given.verbose:
                    print(said[-3000:], file=sys.stderr)
                return row
            row.hashes.append(digest(files, kind))
            if not number:
                describe(row, files, ours)
                if given.keep:
                    keep(files, given.keep / folder_of(row))
    row.works = True
    return row


def describe_again(program: Program, given: argparse.Namespace, commits: Mapping[str, str], row: Row) -> Row:
    """Returns a row with the categories of a new run, and a new row if the run has another peak."""
    new = Row(row.family, row.name, row.device)
    runs, given.runs = given.runs, 1
    new = measure(program, given, commits, new)
    given.runs = runs
    if not new.works or new.allocated_bytes == row.allocated_bytes:
        print(f"{row.family} {row.name}: {new.largest or new.said}", flush=True)
        return replace(row, cause=new.cause, largest=new.largest) if new.works else row
    if row.hashes[1:]:
        new = measure(program, given, commits, new)
    print(f"{row.family} {row.name}: another peak\n{line_of(new)}", flush=True)
    return new


def folder_of(row: Row) -> str:
    """The name of the folder with the traces of a row."""
    return f"{row.family} {row.name} {row.device.partition(':')[0]}".replace("/", "-")


def keep(files: Sequence[Path], folder: Path) -> None:
    """Copies traces into a folder, in place of earlier ones."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in files:
        shutil.copy(file, folder)


def peak_of(device: DeviceTrace) -> int:
    """The peak of allocated memory, in bytes."""
    return int(device.usage["allocated"].max(initial=0))


def describe(row: Row, files: Sequence[Path], ours: Sequence[str]) -> None:
    """Fills a row from the traces of its first run: from that of the process with the largest peak."""
    _, trace, device = max(
        ((peak_of(one), trace, one) for trace in map(memdiag.load, files) for one in trace.devices),
        key=lambda found: found[0],
    )
    row.num_processes, row.num_events = len(files), sum(len(entries(file)) for file in files)
    row.allocated_bytes, row.reserved_bytes = (
        int(device.usage[name].max(initial=0)) for name in ("allocated", "reserved")
    )
    row.cause, row.said = cause_of(trace), "; ".join(ours)[:300]
    live = device.live(device.peak("allocated"))
    held = np.bincount(device.tensors.category[live], device.tensors.block_bytes[live], len(CATEGORIES))
    row.largest = PARTS.get(CATEGORIES[int(held.argmax())], "")


def same_part(row: Row, program: Program, counted: Mapping[str, int]) -> str:
    """Compares memdiag's largest category at the peak of allocated memory with the largest part of the count.

    For convolutions on a GPU, the memory that the count lacks is scratch memory of cuDNN. The answer is "yes" if both
    are the same, or equal within 1 %, and "" if one of both is unknown.
    """
    parts = dict(counted)
    if row.device.startswith("cuda") and program.convolves("cuda"):
        tensors = sum(size for part, size in parts.items() if part != "workspaces")
        parts["workspaces"] = max(parts.get("workspaces", 0), row.allocated_bytes - tensors)
    if not parts or not row.largest or not row.works:
        return ""
    largest = max(parts, key=lambda part: parts[part])
    if parts.get(COUNTED_AS.get(row.largest, row.largest), 0) >= (1 - EQUAL) * parts[largest]:
        return "yes"
    return f"no: {largest} ({parts[largest] / sum(parts.values()):.0%})"


def table_of(rows: Sequence[Row]) -> str:
    """The rows as markdown, a table for each device."""
    parts = []
    for device in dict.fromkeys(row.device for row in rows):
        own = [row for row in rows if row.device == device]
        share = sum(row.works for row in own)
        refused = sum(row.is_refused for row in own)
        parts += [
            f"\n## {device}\n",
            f"{share} of {len(own)} programs run unchanged ({share / len(own):.0%}). memdiag refuses {refused}.\n",
            f"{comparison_of(own)}\n",
            f"| {' | '.join(HEAD)} |",
            "|---|---|---|--:|--:|--:|--:|---|---|---|--:|--:|---|",
            *map(line_of, own),
        ]
    return "\n".join(parts)


def comparison_of(rows: Sequence[Row]) -> str:
    """How many rows have a count, and how many agree with it."""
    counted = [row for row in rows if row.works and row.estimate_bytes]
    off = [abs(row.allocated_bytes / (row.estimate_bytes or 1) - 1) for row in counted]
    same = [row.same_part for row in counted if row.same_part]
    return (
        f"{len(counted)} of these rows have a count. The peak is within {NEAR:.0%} of it in "
        f"{sum(one <= NEAR for one in off)}; the largest part is the same in {same.count('yes')} of {len(same)}."
    )


def line_of(row: Row) -> str:
    """One row of the table."""
    by_hand = "" if row.estimate_bytes is None else format_bytes(row.estimate_bytes)
    took = f"{row.seconds:.0f} s | {row.cpu_seconds:.0f} s"
    said = row.said.replace("|", "/")
    if not row.works:
        word = "refused" if row.is_refused else "no"
        return f"| {row.family} | {row.name} | {word}: {said} | | | | {by_hand} | | | | {took} | |"
    options = f", with {' '.join(row.options)}" if row.options else ""
    same = "" if len(row.hashes) < 2 else "yes" if len(set(row.hashes)) == 1 else "no"
    return (
        f"| {row.family} | {row.name} | yes{options}{', but: ' + said if said else ''} | {row.num_processes} | "
        f"{row.num_events:,} | {format_bytes(row.allocated_bytes)} | {by_hand} | {row.cause} | {row.largest} | "
        f"{row.same_part} | "
        f"{took} | {same} |"
    )


def write(rows: Mapping[tuple[str, str, str], Row], commits: Mapping[str, str], programs: Sequence[Program]) -> None:
    """Writes the report, in the order of the table, and the rows by themselves."""
    place = {(one.family, one.name): number for number, one in enumerate(programs)}
    known = [row for row in rows.values() if (row.family, row.name) in place]
    known = [row for row in known if programs[place[row.family, row.name]].runs_on(row.device.partition(":")[0])]
    for row in known:
        parts = programs[place[row.family, row.name]].parts_by_hand(row.device.partition(":")[0])
        row.estimate_bytes = sum(parts.values()) or None
        row.same_part = same_part(row, programs[place[row.family, row.name]], parts)
    kept = sorted(known, key=lambda row: (KINDS.index(row.device.partition(":")[0]), place[row.family, row.name]))
    head = STEM.with_suffix(".md").read_text(encoding="utf-8").partition("<!-- table -->")[0]
    sources = [f"* {name} at {commit[:12]}" for name, commit in commits.items()]
    parts = [table_of(kept), "\n## Sources\n", *sources]
    STEM.with_suffix(".md").write_text(f"{head}<!-- table -->\n" + "\n".join(parts) + "\n", encoding="utf-8")
    STEM.with_suffix(".json").write_text(json.dumps([asdict(row) for row in kept], indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Measures the rows that are missing and writes the report after each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sources", type=Path, required=True, help="folder with the clones of the repositories")
    parser.add_argument("--python", required=True)
    parser.add_argument("--device", default="cuda:h100-80g", help="cpu, or a phantom device")
    parser.add_argument("--only", default="", help="programs whose family or name holds one of these, by ;")
    parser.add_argument("--again", action="store_true", help="also programs that have a row")
    parser.add_argument("--failed", action="store_true", help="also programs whose row says that they do not work")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=600, help="limit of one run")
    parser.add_argument("--keep", type=Path, help="folder for the traces of the first run of each row")
    parser.add_argument("--describe", action="store_true", help="only analyze the traces in --keep again")
    parser.add_argument("--categories", action="store_true", help="only describe rows with a count again, by one run")
    parser.add_argument("--verbose", action="store_true", help="print the end of what a failed program printed")
    given = parser.parse_args()
    commits, programs = read_table()
    file = STEM.with_suffix(".json")
    rows = {}
    for kept in json.loads(file.read_text(encoding="utf-8")) if file.exists() else []:
        rows[kept["family"], kept["name"], kept["device"]] = Row(**kept)
    if given.describe:
        for row in rows.values():
            files = sorted((given.keep / folder_of(row)).glob("rank*.pkl"))
            if row.works and files:
                describe(row, files, [row.said] if row.said else [])
        write(rows, commits, programs)
        return
    for program in programs:
        key = (program.family, program.name, given.device)
        is_chosen = any(part in f"{program.family} {program.name}" for part in given.only.split(";"))
        row = rows.get(key)
        if given.categories:
            kind = given.device.partition(":")[0]
            if is_chosen and row and row.works and program.runs_on(kind) and program.parts_by_hand(kind):
                rows[key] = describe_again(program, given, commits, row)
                write(rows, commits, programs)
            continue
        if row is None or given.again or (given.failed and not row.works):
            row = Row(program.family, program.name, given.device)
        is_done = (row.said and not row.works) or len(row.hashes) >= given.runs
        if is_chosen and program.runs_on(given.device.partition(":")[0]) and not is_done:
            try:
                rows[key] = measure(program, given, commits, row)
            except subprocess.CalledProcessError as error:
                print(f"{program.name}: its source is not whole: {why(error.stderr.decode())}", file=sys.stderr)
                continue
            print(line_of(rows[key]), flush=True)
            write(rows, commits, programs)


if __name__ == "__main__":
    main()
