"""Compares the simulation of MindSpeed's allocator with an independent C++ version plugged into torch_npu.

    python bench/lifecycle_real.py --traces FOLDER --python VENV/bin/python

FOLDER holds recordings of the lifecycle study on a phantom NPU (bench/study/record.py), VENV torch_npu and
megatron-core. Four things are done, and written to reports/lifecycle-real.md:

1. random programs go to the allocator of tests/allocator/policies/lifecycle/mindspeed, on a device that only counts,
and some through torch_npu; 2. so do the recorded requests, frees and hooks, through torch_npu, with the hooks of each
generation; recordings on a device that is larger
   than the card once more on one of the card's size, where they run out of memory;
3. some of the trainings run again with this allocator and its hooks, and are compared with the predictions from the
recordings;
4. the allocator is broken on purpose, one rule at a time, and the random programs must show it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import memdiag
from memdiag.allocator.policies.lifecycle.replay import LifecycleReplay, replay_lifecycle
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.subject import Subject
from memdiag.phantom import launch
from memdiag.phantom.profiles import choose
from memdiag.units import GIB, format_bytes

ROOT = Path(__file__).parents[1]
PLUGGED = ROOT / "tests" / "allocator" / "policies" / "lifecycle" / "mindspeed"
sys.path.insert(0, str(ROOT))
from tests.allocator.policies.lifecycle.mindspeed import plugged, random_programs  # noqa: E402 - found on sys.path

REPORT = ROOT / "reports" / "lifecycle-real.md"
HOOKS = {"lifecycle": "layer", "lifecycle-stack": "stack"}
NO_CARD = 128 * GIB  # recordings on larger devices are of none that exists
AT_ONCE = 8
NUM_CALLS = 600
TRAININGS = (
    "7b-s4096-b4-x4-rank0of8",
    "13b-s8192-b4-x4-rank0of8-recompute-full",
    "13b-s8192-b2-x4-rank0of16-recompute-mlp",
    "70b-s8192-b2-x8-rank0of32-recompute-pairs",
)
BROKEN = (
    ("rule a", "if (request.size < most) return candidate.size >= most;", "if (request.size < most) return false;"),
    ("rule b", "if (is_own && is_nibbled && !phases_.is_in_forward) return true;", ""),
    ("rule b, own pool", "if (is_own && is_nibbled", "if (is_nibbled"),
    ("rule c", "return !is_own && phases_.is_in_forward;", "return false;"),
    ("rule d, size", "candidate.size != request.own->segment_size(request.size) || ", ""),
    ("rule d, unsplit", " || candidate.is_split();", ";"),
    ("rule e", "if (!is_own) return true;", ""),
    ("the pre-judgement", "if (!is_retry && wrapper_.is_hopeless(size)) return nullptr;", ""),
    ("oversize blocks given back", "if (release_oversize(request)) {", "if (false) {"),
    (
        "P3, other pool first",
        "for (Pool* pool : {request.other, request.own}) {",
        "for (Pool* pool : {request.own, request.other}) {",
    ),
    ("P3, ban in forward", "*pool, true)) return block", "*pool, false)) return block"),
    ("P4", "if (request.own->is_small) {", "if (false) {"),
    ("P5", "  empty_cache();\n", ""),
    ("P5, large pool", "  again.own = &heap.pool(request.own->lifetime, false);\n", ""),
    ("first forward all long", "(phases.is_in_forward && forward.knows_nothing())", "false"),
    ("promotion by steps", "made.step_span->end == NEVER) made", "false) made"),
    ("remembered windows", "history_.push_back(now_);", ""),
    ("an earlier tick only", "upper_bound({now, NEVER})", "upper_bound({NEVER, NEVER})"),
    ("ends of forward entries", "forward.freed(note.forward, phases.is_in_forward);", ""),
    ("exact segments", "if (lifetime == Lifetime::Default && size", "if (size"),
)


@dataclass
class Case:
    """One workload with its hooks, simulated."""

    name: str
    policy: str
    bases: str
    replay: LifecycleReplay
    run: plugged.Run


def random_case(seed: int) -> Case:
    """Returns a random program, simulated."""
    chosen = random_programs.program(seed, NUM_CALLS)
    replay = replay_lifecycle(
        chosen.workload,
        chosen.marks,
        Scenario("lifecycle", chosen.conf, "", chosen.total, chosen.fraction),
        alr_max_bytes=chosen.alr_max,
    )
    calls = plugged.Calls.of(chosen.workload, chosen.marks, chosen.fraction)
    return Case(f"seed {seed}", "", "", replay, plugged.Run(calls, chosen.total, chosen.conf, chosen.alr_max))


def subject_of(path: Path) -> Subject:
    """Returns a recording, ready to be simulated."""
    trace = memdiag.load(path)
    return Subject.of(trace, max(trace.devices, key=lambda device: device.num_events))


def simulated(subject: Subject, policy: str, capacity: int) -> LifecycleReplay:
    """Replays a recording."""
    own = subject.recorded
    scenario = Scenario(policy, "", own.torch_version, capacity, own.fraction)
    return subject.replay(scenario, log=False)  # type: ignore[return-value]


def cases_of(path: Path, card: int) -> list[Case]:
    """Returns a recording with the hooks of both generations, where it was recorded and on the card."""
    subject = subject_of(path)
    own = subject.recorded
    capacities = [own.capacity_bytes or card]
    capacities += [card] if capacities[0] > NO_CARD else []
    found = []
    for policy in HOOKS:
        for capacity in capacities:
            replay = simulated(subject, policy, capacity)
            calls = plugged.Calls.of(subject.workload, subject.prepared[policy], own.fraction)
            bases = subject.prepared[policy].bases["forward"]
            name = path.parent.name + (", on the card" if capacity != capacities[0] else "")
            found.append(Case(name, policy, bases, replay, plugged.Run(calls, capacity)))
    return found


@dataclass
class Tally:
    """Programs, calls, allocations, failures, allocations at each level, and programs that differ."""

    programs: int = 0
    calls: int = 0
    allocs: int = 0
    ooms: int = 0
    levels: tuple[int, ...] = (0,) * 5
    wrong: int = 0

    def add(self, found: plugged.Compared) -> None:
        """Adds a program."""
        self.programs, self.calls, self.allocs = (
            self.programs + 1,
            self.calls + found.num_calls,
            self.allocs + found.num_allocs,
        )
        self.ooms, self.wrong = self.ooms + found.num_ooms, self.wrong + bool(found.differences)
        self.levels = tuple(a + b for a, b in zip(self.levels, found.levels, strict=True))

    def row(self, where: str) -> str:
        """Of the table."""
        numbers = (self.programs, self.calls, self.allocs, *self.levels, self.ooms, self.wrong)
        return f"| {where} | {' | '.join(f'{number:,}' for number in numbers)} |"


def random_programs_table(args: argparse.Namespace, program: Path, library: Path, folder: Path) -> list[str]:
    """Runs random programs in both places."""
    alone, on_npu = Tally(), Tally()
    for seed in range(args.programs):
        case = random_case(seed)
        alone.add(plugged.compare(case.replay, case.run.calls, plugged.run_alone(program, case.run, folder)))
    cases = [random_case(seed) for seed in range(args.on_npu)]
    for case, log in zip(
        cases, plugged.run_on_npu(args.python, library, [case.run for case in cases], folder), strict=True
    ):
        on_npu.add(plugged.compare(case.replay, case.run.calls, log))
    return [
        "| where | programs | calls | requests | P1 | P2 | P3 | P4 | P5 | out of memory | programs that differ |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        alone.row("a device that only counts"),
        on_npu.row("torch_npu"),
    ]


def traces_table(args: argparse.Namespace, library: Path, folder: Path) -> list[str]:
    """Issues the recordings through torch_npu."""
    lines = [
        (
            "| recording | hooks | windows by | calls | requests | P1 | P2 | P3 | P4 | P5 | out of memory | reserved | "
            "calls that differ |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    paths = sorted(path for path in args.traces.glob("*/rank*.pkl") if args.only in path.parent.name)
    card = min(subject.recorded.capacity_bytes or NO_CARD for subject in map(subject_of, paths[:1]))
    for first in range(0, len(paths), AT_ONCE):
        cases = [case for path in paths[first : first + AT_ONCE] for case in cases_of(path, card)]
        for case, log in zip(
            cases, plugged.run_on_npu(args.python, library, [case.run for case in cases], folder), strict=True
        ):
            found = plugged.compare(case.replay, case.run.calls, log)
            numbers = [found.num_calls, found.num_allocs, *found.levels, found.num_ooms]
            cells = [
                case.name,
                HOOKS[case.policy],
                case.bases,
                *(f"{n:,}" for n in numbers),
                format_bytes(int(log["reserved"].max())),
            ]
            lines.append(f"| {' | '.join(cells)} | {'; '.join(found.differences) or 'none'} |")
            print(lines[-1], flush=True)
    return lines


def trainings_table(args: argparse.Namespace, library: Path, folder: Path) -> list[str]:
    """Runs trainings with the real allocator, and compares them with the predictions from their recordings."""
    lines = [
        (
            "| training | hooks | requests | edges of windows | same place | same lifetime | level | reserved | peak | "
            "predicted | ended |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in TRAININGS:
        if not (args.traces / name).is_dir():
            continue
        subject = subject_of(next((args.traces / name).glob("rank*.pkl")))
        manifest = json.loads((args.traces / name / "manifest.json").read_text())
        for policy, hooks in HOOKS.items():
            log, left, ended = _train(args, manifest, hooks, library, folder)
            lines.append(f"| {name} | {hooks} | {_against(subject, policy, log, left)} | {ended} |")
            print(lines[-1], flush=True)
    return lines


def _train(
    args: argparse.Namespace, manifest: dict, hooks: str, library: Path, folder: Path
) -> tuple[np.ndarray, int, str]:
    """Returns the log of a training, the bytes of the device that nobody held at its end, and how it ended."""
    words, phantom, log = manifest["argv"][2:], manifest["phantom"], folder / "training.log"
    command = [args.python, str(PLUGGED / "train_hooked.py"), str(library), str(log), hooks, *words]
    around = {**os.environ, "HCCL_BUFFSIZE": "200", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    environment = launch.environment_for(
        choose(phantom["device"]), command, around, as_rank=phantom["as_rank"], world=phantom["world"]
    )
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    rows = np.fromfile(log, plugged.ROW)
    free = int(re.search(r"room for PyTorch: (\d+)", done.stdout)[1])  # type: ignore[index]
    ended = (
        "well"
        if done.returncode == 0
        else "HCCL had no memory"
        if "HCCL function error" in done.stderr
        else "out of memory"
    )
    return rows, free, ended


def _against(subject: Subject, policy: str, log: np.ndarray, left: int) -> str:
    """Returns the cells of a row: the peaks of a training, and the share of its events that the recording predicts."""
    subject = subject.with_outside(0)  # the capacity does not contain the memory of the driver and HCCL
    replay = simulated(subject, policy, left + int(log["reserved"][-1]))
    calls = plugged.Calls.of(subject.workload, subject.prepared[policy])
    asked = log[log["call"] == plugged.MALLOC]
    number = calls.number[calls.rows[:, 0] == plugged.MALLOC][: len(asked)]
    sizes = calls.rows[calls.rows[:, 0] == plugged.MALLOC, 2][: len(asked)]
    if (sizes != asked["requested"]).any():
        sys.exit("the training asks for something else than the recorded one")
    windows = [_windows(kinds) for kinds in (calls.rows[:, 0], log["call"])]
    count = min(map(len, windows))
    same = {
        "lifetime": replay.lifecycle.is_long[number] == (asked["lifetime"] == 2),  # type: ignore[union-attr]
        "level": replay.lifecycle.level[number] == asked["level"],  # type: ignore[union-attr]
        "reserved": replay.reserved[number] == asked["reserved"],
    }
    shares = [f"{np.count_nonzero(each):,}" for each in same.values()]
    at_once = np.count_nonzero((windows[0][:count] == windows[1][:count]).all(1))
    peaks = [format_bytes(int(peak)) for peak in (log["reserved"].max(), replay.reserved[: number[-1] + 1].max())]
    return " | ".join([f"{len(asked):,}", f"{len(windows[1]):,}", f"{at_once:,}", *shares, *peaks])


def _windows(kinds: np.ndarray) -> np.ndarray:
    """Returns for each begin and end of a forward window how many allocations and frees came before."""
    at = np.flatnonzero((kinds == plugged.FORWARD_START) | (kinds == plugged.FORWARD_END))
    return np.stack([np.cumsum(kinds == plugged.MALLOC)[at], np.cumsum(kinds == plugged.FREE)[at]], 1)


def broken_table(folder: Path, num_programs: int) -> list[str]:
    """Breaks a rule at a time."""
    cases = [random_case(seed) for seed in range(num_programs)]
    lines = ["| broken | programs that differ |", "|---|---|"]
    sources = {path: path.read_text() for path in PLUGGED.iterdir() if path.suffix in {".h", ".cpp"}}
    for name, old, new in BROKEN:
        if sum(text.count(old) for text in sources.values()) != 1:
            sys.exit(f"{name}: the rule is not there, or more than once")
        changed = folder / "changed"
        changed.mkdir(exist_ok=True)
        for path, text in sources.items():
            (changed / path.name).write_text(text.replace(old, new))
        program = plugged.compiled(changed, alone=True, sources=changed)
        wrong = sum(
            bool(plugged.compare(case.replay, case.run.calls, plugged.run_alone(program, case.run, folder)).differences)
            for case in cases
        )
        lines.append(f"| {name} | {wrong} of {num_programs} |")
        print(lines[-1], flush=True)
    return lines


def main(words: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--python", required=True, help="has torch_npu, and megatron-core for the trainings")
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--on-npu", type=int, default=200)
    parser.add_argument("--broken", type=int, default=200, help="programs for each broken rule")
    parser.add_argument("--only", default="", help="a part of the names of recordings")
    parser.add_argument("--tables", default="trainings,traces,random,broken", help="those to make, separated by commas")
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program, library = (plugged.compiled(folder, alone=alone) for alone in (True, False))
        tables = {
            "trainings": lambda: trainings_table(args, library, folder),
            "traces": lambda: traces_table(args, library, folder),
            "random": lambda: random_programs_table(args, program, library, folder),
            "broken": lambda: broken_table(folder, args.broken),
        }
        for name in args.tables.split(","):
            write_table(REPORT, name, tables[name]())


def write_table(report: Path, name: str, lines: Sequence[str]) -> None:
    """Replaces a table of a report, between its two comments."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = report.read_text(encoding="utf-8").partition(begin)
    report.write_text(before + begin + "\n".join(lines) + "\n" + end + rest.partition(end)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
