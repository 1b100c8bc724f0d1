"""Measures memdiag watch: time until the first reading, cost of watching, and traces of many watches in the program.

    python bench/watch.py [--device cpu|cuda] [--python PYTHON] [--cycles 100] [--rounds 12] [--by gdb|armed]

PYTHON has the torch of the training: for cuda, a CUDA build, which runs on a simulated H100. Times of processors are
those of the whole training process, so they hold on a busy machine as well; the time to the first reading does not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import memdiag
from memdiag.phantom import launch as phantom
from memdiag.phantom import profiles
from memdiag.watch.attach import attach

PROGRAM = Path(__file__).parents[1] / "tests" / "watch" / "programs" / "train.py"


class Training:
    """A training that writes the loss and the processor time of each step."""

    def __init__(self, device: str, python: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="memdiag-bench-"))
        command = [python, str(PROGRAM), device, str(self.folder)]
        site = Path(memdiag.__file__).parent / "recorder" / "site"
        base = {name: value for name, value in os.environ.items() if not name.startswith(("MEMDIAG", "PYTHON"))}
        if device == "cuda":
            base = phantom.environment_for(profiles.choose("cuda:h100-80g"), command, base)
        paths = [str(site), *base.get("PYTHONPATH", "").split()]
        self.process = subprocess.Popen(command, env={**base, "MEMDIAG_ARM": "1", "PYTHONPATH": os.pathsep.join(paths)})
        self.wait_for(20)

    def rows(self) -> list[tuple[str, float]]:
        """Returns loss and processor time after each step so far."""
        path = self.folder / "steps"
        lines = path.read_text().splitlines()[:-1] if path.exists() else []
        return [(line.split()[0], float(line.split()[1])) for line in lines]

    def wait_for(self, steps: int) -> None:
        """Waits until a number of steps is complete."""
        while len(self.rows()) < steps:
            if self.process.poll() is not None:
                raise RuntimeError("the training has ended")
            time.sleep(0.1)

    def cost(self, seconds: float) -> float:
        """Returns the processor time per step, in milliseconds, over a time."""
        before = self.rows()
        time.sleep(seconds)
        after = self.rows()
        return 1000 * (after[-1][1] - before[-1][1]) / (len(after) - len(before))

    def stop(self) -> dict[str, object]:
        """Ends the training; returns what was left in it."""
        (self.folder / "stop").touch()
        self.process.wait()
        left: dict[str, object] = json.loads((self.folder / "left").read_text())
        return left


def first_reading(pid: int, by: str) -> tuple[float, float]:
    """Attaches and detaches; returns the seconds until the first reading, and all of the agent's own seconds for it."""
    began = time.perf_counter()
    link = attach(pid, by)
    link.read(0.0)
    message = next(iter(link.readings(30.0)))
    took = time.perf_counter() - began
    link.close()
    return took, float(message["cost_seconds"])


def in_turns(training: Training, by: str, seconds: float) -> tuple[float, float]:
    """Returns the processor time of a step while watched at 1 Hz relative to one that is not, and the agent's share.

    The order is plain, watched, watched, plain, so that a steady drift of the machine's speed cancels. Turns are short,
    because the speed of a shared machine changes within seconds.
    """
    plain = [training.cost(seconds)]
    link = attach(training.process.pid, by)
    link.read(1.0)
    watched = [training.cost(seconds), training.cost(seconds)]
    costs = [message["cost_seconds"] for message in link.readings(1.0)][1:]  # the first fills caches
    link.close()
    plain.append(training.cost(seconds))
    return sum(watched) / sum(plain), statistics.mean(costs)


def quartiles(values: list[float]) -> str:
    """Returns the median of relative costs and the quartiles around it."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle - 1:+.1%} processor time (quartiles {low - 1:+.1%} and {high - 1:+.1%}, {len(values)} rounds)"


def main() -> None:
    """Prints the measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a turn; a round has four")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--by", default="gdb")
    given = parser.parse_args()
    training = Training(given.device, given.python)
    pid = training.process.pid
    times = [first_reading(pid, given.by) for _ in range(given.cycles)]
    waits = sorted(seconds for seconds, _ in times)
    print(f"{given.cycles} watches by {given.by}, {given.device}; load {os.getloadavg()[0]:.1f}")
    print(f"  first reading after  {statistics.median(waits):.2f} s median, {waits[0]:.2f} to {waits[-1]:.2f} s")
    print(f"  agent's reading      {1000 * statistics.median(cost for _, cost in times):.2f} ms of processor time")
    ratios, shares = [], []
    for _ in range(given.rounds):
        ratio, share = in_turns(training, given.by, given.seconds)
        ratios.append(ratio)
        shares.append(share)
    print(f"  step while watched   {quartiles(ratios)}")
    print(f"  agent's readings     {statistics.median(shares):.2%} of one processor at 1 Hz")
    left = training.stop()
    losses = [loss for loss, _ in training.rows()]
    other = Training(given.device, given.python)
    other.wait_for(len(losses))
    other.stop()
    same = [loss for loss, _ in other.rows()][: len(losses)] == losses
    print(f"  losses of {len(losses)} steps are {'the same' if same else 'NOT the same'} as without a watch")
    print(f"  left behind          {left}")


if __name__ == "__main__":
    main()
