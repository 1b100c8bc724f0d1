"""Measures memdiag watch: time until the first reading, cost of watching, and traces of many watches in the program.

    python bench/watch.py [--device cpu|cuda] [--python PYTHON] [--cycles 100] [--rounds 100] [--by gdb|armed]

PYTHON has the torch of the training: for cuda, a CUDA build, which runs on a simulated H100. The cost of a step is
processor time of the whole training process, so it holds on a busy machine as well; the time to the first reading does
not. Processor time contains that of memdiag's agent. While the agent holds Python's lock it uses the processor, so the
training waits for it no longer than that.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import memdiag
from memdiag.phantom import launch as phantom
from memdiag.phantom import profiles
from memdiag.watch.attach import attach

PROGRAM = Path(__file__).parents[1] / "tests" / "watch" / "programs" / "train.py"
RESAMPLES = 10_000
CHANCE = 0.025  # on either side of the interval


@dataclass(frozen=True)
class Step:
    """One step of the training: its loss, and the processor time so far of the process and of its main thread."""

    loss: str
    process: float
    main: float


@dataclass(frozen=True)
class Cost:
    """What a step costs during some seconds.

    Attributes:
        process: Processor time per step of the process.
        main: The same of its main thread.
        share: Processor time of the process relative to the seconds.
    """

    process: float
    main: float
    share: float


@dataclass(frozen=True)
class Round:
    """A turn of each of two trainings.

    Attributes:
        process: Processor time of a watched step relative to an unwatched one, of the whole process.
        main: The same of the main thread.
        share: Share of a processor that a watched training had.
        reading: The agent's processor time for a reading, in seconds.
    """

    process: float
    main: float
    share: float
    reading: float


class Training:
    """A training that writes its steps to a file."""

    def __init__(self, device: str, python: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="memdiag-bench-"))
        command = [python, str(PROGRAM), device, str(self.folder)]
        site = Path(memdiag.__file__).parent / "recorder" / "site"
        base = {name: value for name, value in os.environ.items() if not name.startswith(("MEMDIAG", "PYTHON"))}
        if device == "cuda":
            base = phantom.environment_for(profiles.choose("cuda:h100-80g"), command, base)
        paths = [str(site), *base.get("PYTHONPATH", "").split()]
        self.process = subprocess.Popen(command, env={**base, "MEMDIAG_ARM": "1", "PYTHONPATH": os.pathsep.join(paths)})
        self._steps: list[Step] = []
        self._read = 0
        self.wait_for(20)

    def steps(self) -> list[Step]:
        """Returns the steps so far."""
        path = self.folder / "steps"
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
            text = text[: text.rfind(b"\n") + 1]
            self._read += len(text)
            lines = [line.split() for line in text.decode().splitlines()]
            self._steps += [Step(loss, float(process), float(main)) for loss, process, main in lines]
        return self._steps

    def wait_for(self, steps: int) -> None:
        """Waits until a number of steps is complete."""
        while len(self.steps()) < steps:
            if self.process.poll() is not None:
                raise RuntimeError("the training has ended")
            time.sleep(0.1)

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


def watched(training: Training, other: Training, seconds: float) -> Round:
    """Watches the first of two trainings at 1 Hz for some seconds; the second is not watched meanwhile."""
    link = attach(training.process.pid, "armed")
    link.read(1.0)
    next(iter(link.readings(30.0)))  # the first reading fills caches
    time.sleep(0.2)
    mine, theirs = during(seconds, training, other)
    readings = [message["cost_seconds"] for message in link.readings(1.0)]
    link.close()
    return Round(mine.process / theirs.process, mine.main / theirs.main, mine.share, statistics.mean(readings))


def during(seconds: float, *trainings: Training) -> list[Cost]:
    """Returns the costs of trainings over some seconds."""
    first = [len(training.steps()) - 1 for training in trainings]
    began = time.perf_counter()
    time.sleep(seconds)
    found = []
    for training, number in zip(trainings, first, strict=True):
        steps = training.steps()
        process, main = steps[-1].process - steps[number].process, steps[-1].main - steps[number].main
        count = len(steps) - 1 - number
        found.append(Cost(process / count, main / count, process / (time.perf_counter() - began)))
    return found


def in_turns(twins: tuple[Training, Training], seconds: float, rounds: int) -> list[Round]:
    """Watches two equal trainings on one processor in turns.

    A shared machine's speed changes within seconds, but both trainings run in slices of milliseconds on the same
    processor, so their relative cost does not follow it. A constant difference of the two cancels in each round.
    """
    found = []
    for _ in range(rounds):
        one, other = watched(*twins, seconds), watched(*reversed(twins), seconds)
        found.append(
            Round(
                math.sqrt(one.process * other.process),
                math.sqrt(one.main * other.main),
                (one.share + other.share) / 2,
                (one.reading + other.reading) / 2,
            )
        )
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns the 95% bootstrap interval of the median."""
    chance = random.Random(0)  # noqa: S311 - no secret
    found = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return found[int(CHANCE * RESAMPLES)], found[int((1 - CHANCE) * RESAMPLES)]


def extra(rounds: Sequence[Round]) -> str:
    """Returns the processor time that a second of watching costs, with its 95% interval.

    A training that has only a part of a processor pays the same for a reading, but relative to fewer steps.
    """
    values = [1000 * (each.process - 1) * each.share for each in rounds]
    low, high = interval(values)
    return f"{statistics.median(values):.2f} ms per second (95% interval {low:.2f} to {high:.2f})"


def relative(values: Sequence[float]) -> str:
    """Returns the median of relative costs with its 95% interval."""
    low, high = interval(values)
    return (
        f"{statistics.median(values) - 1:+.2%} (95% interval {low - 1:+.2%} to {high - 1:+.2%}, {len(values)} rounds)"
    )


def main() -> None:
    """Prints the measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a turn; a round has two")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--by", default="gdb", help="way into the process for the cycles")
    given = parser.parse_args()
    training = Training(given.device, given.python)
    times = [first_reading(training.process.pid, given.by) for _ in range(given.cycles)]
    waits = sorted(seconds for seconds, _ in times)
    print(f"{given.cycles} watches by {given.by}, {given.device}; load {os.getloadavg()[0]:.1f}", flush=True)
    if waits:
        print(f"  first reading after  {statistics.median(waits):.2f} s median, {waits[0]:.2f} to {waits[-1]:.2f} s")
        print(f"  first reading        {1000 * statistics.median(cost for _, cost in times):.2f} ms of processor time")
    other = Training(given.device, given.python)
    for each in (training, other):
        for thread in Path(f"/proc/{each.process.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {min(os.sched_getaffinity(0))})
    rounds = in_turns((training, other), given.seconds, given.rounds)
    if rounds:
        share = statistics.median(each.share for each in rounds)
        print(f"  share                {share:.0%} of a processor; load {os.getloadavg()[0]:.1f}")
        print(f"  step                 {1000 * during(given.seconds, training)[0].process:.2f} ms of processor time")
        print(f"  watched, process     {relative([each.process for each in rounds])}")
        print(f"  watched, main thread {relative([each.main for each in rounds])}")
        print(f"  extra, process       {extra(rounds)}")
        print(f"  agent's readings     {statistics.median(each.reading for each in rounds):.2%} of a processor at 1 Hz")
    other.stop()
    left = training.stop()
    losses = [step.loss for step in training.steps()]
    unwatched = Training(given.device, given.python)
    unwatched.wait_for(len(losses))
    unwatched.stop()
    same = [step.loss for step in unwatched.steps()][: len(losses)] == losses
    print(f"  losses of {len(losses)} steps are {'the same' if same else 'NOT the same'} as without a watch")
    print(f"  left behind          {left}")


if __name__ == "__main__":
    main()
