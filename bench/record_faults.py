"""Kills a training that is being recorded at random moments, a hundred times, and loads every file that is left.

    python bench/record_faults.py --python PYTHON [--runs 100] [--seed 1] [--output reports/record-faults]

PYTHON is one whose torch trains on the CPU. A file is written after every step (``--every 1``), and the training does
nothing but short steps, so that most of its time goes into writing: a kill (SIGKILL, to the whole process group)
usually interrupts the writing of a file. Afterwards, ``memdiag.load`` must read every rank<k>.pkl, every JSON file must
parse, and an unfinished file must still have its temporary name (.part).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from measuring import Machine, markdown_table, write_report

import memdiag

ROOT = Path(__file__).parents[1]
PROGRAM = """
import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
print("ready", flush=True)
while True:
    model(torch.ones(8, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LONGEST = 2.0  # seconds from the first step to the kill


@dataclass
class Left:
    """What a killed run left.

    Attributes:
        after: Seconds from the moment the training was ready to the kill.
        whole: Traces that load.
        broken: What does not load, with the error.
        parts: Files that were being written.
        steps: Training steps in the trace.
        events: Events in the trace.
    """

    after: float
    whole: int = 0
    broken: tuple[str, ...] = ()
    parts: int = 0
    steps: int = 0
    events: int = 0


def main() -> int:
    """Kills, loads, writes the report; 1 if a file is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python that trains")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "reports" / "record-faults", help="report, without suffix"
    )
    args = parser.parse_args()
    here, moments = Machine.here(), random.Random(args.seed)  # noqa: S311 - not for secrets
    runs = []
    for number in range(args.runs):
        with tempfile.TemporaryDirectory() as folder:
            left = kill_one(args.python, Path(folder), moments.uniform(0, LONGEST))
        runs.append(left)
        print(f"{number + 1} of {args.runs}: {left}", file=sys.stderr)
    _write(args.output, runs, args.seed, here)
    return int(any(left.broken for left in runs))


def kill_one(python: str, folder: Path, after: float) -> Left:
    """Records the training, kills it ``after`` seconds after its first step, and checks the remaining files."""
    program = folder / "train.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "memdiag", "record", "-q", "--every", "1", "-o", "run", "--", python, str(program)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    if process.stdout is None or process.stdout.readline() != b"ready\n":
        raise SystemExit(process.communicate()[1].decode()[-3000:])
    time.sleep(after)
    os.killpg(process.pid, signal.SIGKILL)
    said = process.communicate()[1].decode()
    if said:
        raise SystemExit("the training said: " + said)
    return look_at(folder / "run", after)


def look_at(folder: Path, after: float) -> Left:
    """Loads everything that has its final name."""
    left = Left(after, parts=len(list(folder.rglob("*.part"))))
    broken = []
    for path in sorted(folder.glob("*.pkl")):
        try:
            trace = memdiag.load(path)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
            broken.append(f"{path.name}: {type(error).__name__}: {error}")
            continue
        left.whole += 1
        left.events = trace.num_events
        left.steps = max((int(device.events.step.max(initial=-1)) for device in trace.devices), default=-1) + 1
    for path in sorted(folder.rglob("*.json")):
        try:
            json.loads(path.read_text())
        except ValueError as error:
            broken.append(f"{path.name}: {error}")
    left.broken = tuple(broken)
    return left


def _write(stem: Path, runs: list[Left], seed: int, here: Machine) -> None:
    num_broken = sum(len(left.broken) for left in runs)
    with_file = [left for left in runs if left.whole]
    steps = sorted(left.steps for left in with_file)
    rows = [
        ["runs killed", f"{len(runs):,}"],
        ["of which had written a trace before", f"{len(with_file):,}"],
        ["of which were killed while a file was being written", f"{sum(left.parts > 0 for left in runs):,}"],
        ["traces that load", f"{sum(left.whole for left in runs):,}"],
        ["files that do not load or parse", f"{num_broken:,}"],
        ["steps in the trace, fewest to most", f"{steps[0]:,} to {steps[-1]:,}" if steps else "none"],
    ]
    text = (
        "# Kills at random moments of a recording\n\n"
        f"`memdiag record --every 1` of a small training on the CPU, killed (SIGKILL) up to {LONGEST:g} s after its "
        f"first step; seed {seed}.\n\n"
        + markdown_table(["", "number"], rows)
        + "\n"
        + "".join(f"* broken: {what}\n" for left in runs for what in left.broken)
        + f"{here.sentence()}\n"
    )
    write_report(stem, text, {"seed": seed, "runs": [asdict(left) for left in runs]})


if __name__ == "__main__":
    sys.exit(main())
