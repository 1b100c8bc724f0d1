"""Records the nine configurations of the lifecycle study, and three ranks of a job of 1,024, on a phantom device.

    python bench/study/record.py --python VENV/bin/python --out FOLDER [--device cuda:h100-80g,capacity=61.22GiB]
    [--only 7b-s4096]

VENV has megatron-core, and torch_npu or a CUDA build of torch; run this with a Python that has memdiag. It leaves
FOLDER/<backend>/<name>/ (a run of memdiag record), FOLDER/<backend>/index.json, and reports/study-traces.md with what
FOLDER holds of all devices.

A configuration that does not fit under the conventions of train.py is recorded all the same, up to the failure, and
then in three ways: with recomputation until it fits (of the MLPs, of whole layers, of two layers at once); with
sequence parallelism, and recomputation where that is not enough; and as it is on a device of 256 GiB, for whoever wants
to know what another allocator would make of the whole of it.

How the configurations are read: those of 8 devices are TP 8. Those of 16 say TP 8, PP 1, DP 1, which is 8: they are
read as TP 8, DP 2, with the global batch divided among both. Those of 70B are TP 8, PP 4; a global batch of 1,024 is
512 micro-batches a step, of which 8 are recorded (2 PP), since the peaks of all later ones are alike. Recordings of 16
and 32 show this.

The conventions fuse the norms and recompute nothing, so their base needs less memory than many real trainings did.
RMSNorm that is not fused keeps four copies of its input in float32, and layers were recomputed to make room for them.
The first configuration is recorded with each of the two, and with both.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
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
REPORT = Path(__file__).parents[2] / "reports" / "study-traces.md"
RECOMPUTE = ("none", "mlp", "full", "pairs")
ROOM = "256GiB"
WORDS = {"none": "", "mlp": "MLPs recomputed", "full": "layers recomputed", "pairs": "layers recomputed, two at once"}

HEAD = """# The configurations of the lifecycle study on simulated devices

Made by `python bench/study/record.py`. An empty "instead" is a configuration under the conventions of the study: \
bfloat16, float32 main
parameters and gradients, Adam, no recomputation, no sequence parallelism, no distributed optimizer. Bytes are peaks. \
Both devices are given
the same memory, 61.22 GiB, so they differ only in the device's operators and the allocator. Room is the memory for \
PyTorch; on the NPU,
HCCL's buffers reduce it (400 MiB for each communicator; some recordings failed before all of them existed). NCCL's \
memory on CUDA
is not imitated.

Seconds are those of the whole command, from the shell and back to it, on two processor cores with up to seventeen \
other programs waiting
for them. CPU s is processor time. Of 8 s for the first configuration, about 4 are the import of torch,
torch_npu and Megatron-core, 0.3 the model and its optimizer, 1 the three steps, 0.5 to 1 the writing of the \
recording, and the rest
memdiag's start and summary. The simulated device computes nothing, and weights are created on it. Much larger times \
include the compilation
of the stand-in libraries, which happens once.
"""


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
    sequence_parallel: bool = False
    room: str = ""
    plain_norms: bool = False

    @property
    def name(self) -> str:
        """Of its folder."""
        parts = [
            self.model,
            f"s{self.length}",
            f"b{self.batch}",
            f"x{self.micro_batches}",
            f"rank{self.rank}of{self.world}",
        ]
        parts += [f"recompute-{self.recompute}"] if self.recompute != "none" else []
        parts += ["plain-norms"] * self.plain_norms
        return "-".join(parts + ["sp"] * self.sequence_parallel + [f"on-{self.room}"] * bool(self.room))

    @property
    def variant(self) -> str:
        """The deviations from the study's configuration, "" without any."""
        parts = [
            "norms not fused" * self.plain_norms,
            "sequence parallel" * self.sequence_parallel,
            WORDS[self.recompute],
        ]
        parts += [f"on {self.room}"] if self.room else []
        return ", ".join(part for part in parts if part)

    @property
    def configuration(self) -> Job:
        """Without what differs from the study."""
        return replace(self, recompute="none", sequence_parallel=False, room="", plain_norms=False)

    def words(self) -> list[str]:
        """Arguments of train.py."""
        return [
            "--model",
            self.model,
            "--length",
            str(self.length),
            "--batch",
            str(self.batch),
            "--micro-batches",
            str(self.micro_batches),
            "--tp",
            "8",
            "--pp",
            str(self.pp),
            "--recompute",
            self.recompute,
            *["--sequence-parallel"] * self.sequence_parallel,
            *["--plain-norms"] * self.plain_norms,
        ]


@dataclass(frozen=True)
class Recorded:
    """What came of it.

    Attributes:
        said: The message of the failure.
        room_bytes: What PyTorch could have at most: the rest of the device is the runtime's and the collective
            library's.
        allocated_bytes, reserved_bytes: Peaks.
        seconds, cpu_seconds: Of the whole command, and what it kept processors busy for.
    """

    job: Job
    fits: bool
    said: str
    num_events: int
    steps: int
    room_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    seconds: float
    cpu_seconds: float


def jobs() -> Iterator[Job]:
    """The nine configurations, then more micro-batches of the pipelined ones, then ranks of a large job."""
    first = Job("7b", 4096, 4, 4, 1, 0, 8)
    yield first
    yield replace(first, plain_norms=True)
    yield replace(first, recompute="full")
    yield replace(first, plain_norms=True, recompute="full")
    yield Job("7b", 6144, 4, 4, 1, 0, 8)
    yield Job("13b", 8192, 4, 4, 1, 0, 8)
    for length in (4096, 6144, 8192):
        yield Job("13b", length, 2, 4, 1, 0, 16)
    for length in (4096, 6144, 8192):
        yield Job("70b", length, 2, 8, 4, 0, 32)
    for micro_batches in (16, 32):
        yield Job("70b", 4096, 2, micro_batches, 4, 0, 32, "full")
    for rank in (0, 517, 1023):
        yield Job("70b", 4096, 1, 16, 8, rank, 1024)


def variants(job: Job) -> Iterator[list[Job]]:
    """Yields lists of smaller configurations for one that does not fit; each list is tried until one of it fits."""
    yield [replace(job, recompute=recompute) for recompute in RECOMPUTE[RECOMPUTE.index(job.recompute) + 1 :]]
    yield [replace(job, recompute=recompute, sequence_parallel=True) for recompute in RECOMPUTE]
    yield [replace(job, room=ROOM)]


def record(job: Job, args: argparse.Namespace) -> Recorded:
    """Runs one job; its files are those of memdiag record."""
    folder = args.folder / job.name
    shutil.rmtree(folder, ignore_errors=True)
    device = args.device + f",capacity={job.room}" * bool(job.room)
    command = [sys.executable, "-m", "memdiag", "record", "-q", "-o", str(folder), "--phantom", device]
    command += ["--as-rank", str(job.rank), "--world", str(job.world), "--", str(args.python), str(TRAIN), *job.words()]
    # Megatron-core requires CUDA_DEVICE_MAX_CONNECTIONS=1
    environment = {
        **os.environ,
        "HCCL_BUFFSIZE": "200",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }
    began, busy_before = time.monotonic(), busy_seconds()
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=args.folder, env=environment)
    seconds, busy = round(time.monotonic() - began, 1), round(busy_seconds() - busy_before, 1)
    trace = next(folder.glob("rank*.pkl"), None)
    if trace is None:
        sys.exit(f"{job.name} left no recording: {done.stderr[-2000:]}")
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    loaded = memdiag.load(trace)
    device_trace = loaded.devices[0]
    said = ""
    if done.returncode:
        words = ("out of memory", "memory error")  # PyTorch's, HCCL's
        said = next((line for line in reversed(done.stderr.splitlines()) if any(word in line for word in words)), "")
        if not said:
            sys.exit(f"{job.name} ended for another reason than memory: see {folder}/output.txt")
    peaks = {name: device_trace.usage_at(device_trace.peak(name))[name] for name in ("allocated", "reserved")}
    steps = json.loads(trace.with_suffix(".json").read_text()).get("steps", 0)
    room = re.search(r"room for PyTorch: (\d+) bytes", done.stdout)
    return Recorded(
        job,
        done.returncode == 0,
        said[:300],
        loaded.num_events,
        steps,
        int(room[1]) if room else 0,
        peaks["allocated"],
        peaks["reserved"],
        seconds,
        busy,
    )


def busy_seconds() -> float:
    """Seconds of processor time of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read_back(folder: Path) -> list[Recorded]:
    """Returns the recordings of earlier runs in a folder, in the order of the table."""
    index = folder / "index.json"
    found = json.loads(index.read_text())["rows"] if index.exists() else []
    return [Recorded(**{**row, "job": Job(**row["job"])}) for row in found]


def place(row: Recorded) -> tuple[int, bool, bool, bool, int]:
    """Returns the sort key of a row."""
    order = [job.configuration for job in jobs()]
    job = row.job
    return (
        order.index(job.configuration),
        bool(job.room),
        job.plain_norms,
        job.sequence_parallel,
        RECOMPUTE.index(job.recompute),
    )


def as_markdown(rows: list[Recorded], device: str, versions: str) -> str:
    """The table of one device."""
    lines = [
        f"## {device}",
        "",
        f"{len(rows)} recordings of one rank, three steps each. {versions}.",
        "",
        (
            "| model | sequence | micro-batch | a step | PP | rank | instead | fits | room | allocated | reserved | "
            "events | seconds | CPU s |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        job = row.job
        cells = [
            job.model,
            job.length,
            job.batch,
            job.micro_batches,
            job.pp,
            f"{job.rank} of {job.world}",
            job.variant,
            "yes" if row.fits else "no",
            *map(format_bytes, (row.room_bytes, row.allocated_bytes, row.reserved_bytes)),
            f"{row.num_events:,}",
            f"{row.seconds:.0f}",
            f"{row.cpu_seconds:.0f}",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, ""])


def write_report(root: Path) -> None:
    """Writes the report from the recordings of all devices in the folder."""
    parts = []
    for index in sorted(root.glob("*/index.json"), reverse=True):
        told = json.loads(index.read_text())
        parts.append(as_markdown(read_back(index.parent), told["device"], told["versions"]))
    reading = (__doc__ or "").strip().split("\n\n", 3)[-1]
    REPORT.write_text("\n".join([HEAD, reading, "", *parts]), encoding="utf-8")


def versions_of(python: Path) -> str:
    """The packages of the Python that trains."""
    ask = (
        "from importlib.metadata import version, PackageNotFoundError\nfor name in ('torch', 'torch_npu', "
        "'megatron-core'):\n"
        " try: print(name, version(name))\n except PackageNotFoundError: pass"
    )
    said = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout
    return ", ".join(said.splitlines())


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--python", type=Path, required=True, help="has megatron-core and torch_npu, or a CUDA build of torch"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="npu:910b-64g,capacity=61.22GiB")
    parser.add_argument("--only", default="", help="a part of the names")
    args = parser.parse_args()
    args.python, args.out = args.python.absolute(), args.out.absolute()
    args.folder = args.out / args.device.partition(":")[0]
    args.folder.mkdir(parents=True, exist_ok=True)
    versions = versions_of(args.python)
    rows = read_back(args.folder)

    def done(job: Job) -> Recorded:
        row = record(job, args)
        rows[:] = sorted([row, *(other for other in rows if other.job != row.job)], key=place)
        outcome = "fits" if row.fits else f"does not fit: {row.said}"
        print(
            f"{row.job.name}: {outcome}; {format_bytes(row.allocated_bytes)} allocated, {row.cpu_seconds:.0f} CPU s",
            flush=True,
        )
        told = {"device": args.device, "versions": versions, "rows": [asdict(each) for each in rows]}
        (args.folder / "index.json").write_text(json.dumps(told, indent=1) + "\n")
        write_report(args.out)
        return row

    for job in jobs():
        if args.only in job.name and not done(job).fits:
            for others in variants(job):
                any(done(other).fits for other in others)


if __name__ == "__main__":
    main()
