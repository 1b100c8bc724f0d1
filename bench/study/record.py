"""Records the nine configurations of the lifecycle study, and three ranks of a job of 1,024, on a phantom device.

    python bench/study/record.py --python VENV/bin/python --out FOLDER [--device npu:910b-64g] [--only 7b-s4096]

VENV has megatron-core, and torch_npu or a CUDA build of torch; run this with a Python that has memdiag. It leaves FOLDER/<name>/ (a run of
memdiag record), FOLDER/index.json and FOLDER/index.md. A configuration that does not fit the card under the conventions of train.py is
recorded all the same, up to the failure, and then with recomputation until it fits: of the MLPs, then of whole layers.

How the configurations are read: those of 8 devices are TP 8. Those of 16 say TP 8, PP 1, DP 1, which is 8: they are read as TP 8, DP 2,
with the global batch divided among both. Those of 70B are TP 8, PP 4; a global batch of 1,024 is 512 micro-batches a step, of which 8 are
recorded (2 PP), since the peaks of all later ones are alike: 16 and 32 stand beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import memdiag
from memdiag.units import format_bytes

TRAIN = Path(__file__).with_name("train.py")
RECOMPUTE = ("none", "mlp", "full")


@dataclass(frozen=True)
class Job:
    """One rank of one training."""

    model: str
    length: int
    batch: int
    micro_batches: int
    pp: int
    rank: int
    world: int
    recompute: str = "none"
    note: str = ""

    @property
    def name(self) -> str:
        """Of its folder."""
        parts = [self.model, f"s{self.length}", f"b{self.batch}", f"x{self.micro_batches}", f"rank{self.rank}of{self.world}"]
        return "-".join(parts + ([] if self.recompute == "none" else [f"recompute-{self.recompute}"]))

    def words(self) -> list[str]:
        """Arguments of train.py."""
        return [
            "--model", self.model, "--length", str(self.length), "--batch", str(self.batch), "--micro-batches", str(self.micro_batches),
            "--tp", "8", "--pp", str(self.pp), "--recompute", self.recompute,
        ]  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """What came of it; bytes are peaks."""

    job: Job
    fits: bool
    said: str
    num_events: int
    steps: int
    allocated_bytes: int
    reserved_bytes: int
    seconds: float


def jobs() -> Iterator[Job]:
    """The nine configurations, then more micro-batches of the pipelined ones, then ranks of a large job."""
    yield Job("7b", 4096, 4, 4, 1, 0, 8)
    yield Job("7b", 6144, 4, 4, 1, 0, 8)
    yield Job("13b", 8192, 4, 4, 1, 0, 8)
    for length in (4096, 6144, 8192):
        yield Job("13b", length, 2, 4, 1, 0, 16)
    for length in (4096, 6144, 8192):
        yield Job("70b", length, 2, 8, 4, 0, 32)
    for micro_batches in (16, 32):
        yield Job("70b", 4096, 2, micro_batches, 4, 0, 32, "full", "more micro-batches")
    for rank in (0, 517, 1023):
        yield Job("70b", 4096, 1, 16, 8, rank, 1024, "none", "TP 8, PP 8, DP 16")


def record(job: Job, args: argparse.Namespace) -> Recorded:
    """Runs one job; its files are those of memdiag record."""
    folder = args.out / job.name
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "memdiag", "record", "-q", "-o", str(folder), "--phantom", args.device]
    command += ["--as-rank", str(job.rank), "--world", str(job.world), "--", str(args.python), str(TRAIN), *job.words()]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=args.out, env={**os.environ, "HCCL_BUFFSIZE": "200"})
    seconds = time.monotonic() - began
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    trace = next(folder.glob("rank*.pkl"), None)
    if trace is None:
        return Recorded(job, False, done.stderr.strip().splitlines()[-1], 0, 0, 0, 0, seconds)
    loaded = memdiag.load(trace)
    device = loaded.devices[0]
    said = ""
    if done.returncode:
        words = ("out of memory", "memory error")  # PyTorch's, HCCL's
        said = next((line for line in done.stderr.splitlines() if any(word in line for word in words)), "")
        if not said:
            sys.exit(f"{job.name} ended for another reason than memory: see {folder}/output.txt")
    peaks = {name: device.usage_at(device.peak(name))[name] for name in ("allocated", "reserved")}
    steps = json.loads(trace.with_suffix(".json").read_text()).get("steps", 0)
    return Recorded(
        job, done.returncode == 0, said[:300], loaded.num_events, steps, peaks["allocated"], peaks["reserved"], round(seconds, 1)
    )


def read_back(folder: Path) -> list[Recorded]:
    """What earlier runs recorded in a folder."""
    index = folder / "index.json"
    found = json.loads(index.read_text()) if index.exists() else []
    return [Recorded(**{**row, "job": Job(**row["job"])}) for row in found]


def place(row: Recorded) -> tuple[int, int]:
    """Where a row stands in the table."""
    order = [replace(job, recompute="none") for job in jobs()]
    return order.index(replace(row.job, recompute="none")), RECOMPUTE.index(row.job.recompute)


def as_markdown(rows: list[Recorded], device: str) -> str:
    """The table, and how it is read."""
    lines = [
        f"# The configurations of the lifecycle study on a phantom {device}",
        "",
        f"Made by `python bench/study/record.py --device {device}`, {len(rows)} recordings of one rank, three steps each. Bytes are peaks;",
        "seconds are those of the whole command. HCCL's buffers (400 MiB a communicator) are outside of PyTorch's memory.",
        "",
        "| model | sequence | micro-batch | a step | PP | rank | recomputed | fits | allocated | reserved | events | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        job = row.job
        cells = [
            job.model, job.length, job.batch, job.micro_batches, job.pp, f"{job.rank} of {job.world}", job.recompute,
            "yes" if row.fits else "no", format_bytes(row.allocated_bytes), format_bytes(row.reserved_bytes), f"{row.num_events:,}",
            f"{row.seconds:.0f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, "", *(__doc__ or "").strip().split("\n\n")[-1].splitlines(), ""])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", type=Path, required=True, help="has megatron-core and torch_npu, or a CUDA build of torch")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="npu:910b-64g")
    parser.add_argument("--only", default="", help="a part of the names")
    args = parser.parse_args()
    args.python, args.out = args.python.absolute(), args.out.absolute()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = read_back(args.out)
    for job in jobs():
        if args.only not in job.name:
            continue
        for recompute in RECOMPUTE[RECOMPUTE.index(job.recompute) :]:
            row = record(replace(job, recompute=recompute), args)
            rows = sorted([row, *(other for other in rows if other.job != row.job)], key=place)
            outcome = "fits" if row.fits else f"does not fit: {row.said}"
            print(f"{row.job.name}: {outcome}; {format_bytes(row.allocated_bytes)} allocated, {row.seconds:.0f} s", flush=True)
            (args.out / "index.json").write_text(json.dumps([asdict(each) for each in rows], indent=1) + "\n")
            (args.out / "index.md").write_text(as_markdown(rows, args.device))
            if row.fits:
                break


if __name__ == "__main__":
    main()
