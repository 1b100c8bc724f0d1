"""Times training steps with and without ``memdiag record``, and with PyTorch's own history with the same stacks.

    python bench/record.py --device cpu --python PYTHON python bench/record.py --device cuda --command "with_fake.sh"
    # what starts a Python whose torch has such a device python bench/record.py --device npu --command "run.sh PYTHON"
    python bench/record.py --device npu --phantom npu:910b-64g --python PYTHON       # on memdiag's own phantom device

A simulated device, on which kernels cost nothing, is the worst case: a step consists of host work only, and the
recorder adds to it. The report compares the CPU time of the process: the mean step of each run (on the CPU, the
recorder copies its events every few steps), and the median over the runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, median

from measuring import Machine, markdown_table, write_report

from memdiag.phantom.launch import environment_for as phantom_environment_for
from memdiag.phantom.launch import same_addresses_from_now_on
from memdiag.phantom.profiles import choose
from memdiag.recorder.config import Config
from memdiag.recorder.launch import environment_for

ROOT = Path(__file__).parents[1]
PROGRAM = Path(__file__).with_name("timed_training.py")
TARGET = 1.10
WARM = 4  # steps: the first allocate optimizer state, fill caches, and are looked at more closely by the recorder
SIZES = {"cpu": (6, 512, 128, 16), "cuda": (24, 512, 128, 24), "npu": (24, 512, 128, 24)}


def main() -> None:
    """Measures and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=sorted(SIZES), default="cpu")
    parser.add_argument("--python", default=sys.executable, help="the Python that trains")
    parser.add_argument("--command", default="", help="what starts it instead")
    parser.add_argument("--phantom", default="", help="the phantom device to train on")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--output", type=Path, help="report, without suffix")
    args = parser.parse_args()
    here = Machine.here()
    command = [*(shlex.split(args.command) or [args.python]), str(PROGRAM), args.device, *map(str, SIZES[args.device])]
    plain = {**os.environ, "OMP_NUM_THREADS": "1"}
    if args.phantom:
        same_addresses_from_now_on()
        plain = phantom_environment_for(choose(args.phantom), command, plain)
    results: dict[str, list[float]] = {}
    dumps: list[tuple[float, int]] = []
    for number in range(args.runs):
        for name, seconds in _contenders(command, plain, args.device, dumps).items():
            results.setdefault(name, []).append(seconds)
        print(
            f"run {number + 1} of {args.runs}: " + ", ".join(f"{n} {v[-1] * 1e3:.2f} ms" for n, v in results.items()),
            file=sys.stderr,
        )
    title = f"phantom {args.phantom}" if args.phantom else args.device
    stem = ROOT / "reports" / f"bench-record-{'phantom-' if args.phantom else ''}{args.device}"
    _write(args.output or stem, args.device, title, results, dumps, here)


def _contenders(
    command: list[str], plain: dict[str, str], device: str, dumps: list[tuple[float, int]]
) -> dict[str, float]:
    """Seconds of the mean step, once with each."""
    found = {"not recorded": _step(command, plain)}
    if device != "cpu":
        found["PyTorch's history"] = _step(command, {**plain, "BARE": "1"})
    for name, names in (("memdiag, no names", False), ("memdiag", True)):
        with tempfile.TemporaryDirectory() as folder:
            found[name] = _step(command, environment_for(Config(folder, backends=(device,), names=names), plain))
            status = json.loads(next(path for path in Path(folder).glob("rank*.json")).read_text())
            dumps.append((status["seconds_in_dumps"], sum(file["events"] for file in status["files"].values())))
    return found


def _step(command: list[str], environment: dict[str, str]) -> float:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return mean(json.loads(done.stdout.strip().splitlines()[-1])[WARM:])


def _write(
    stem: Path, device: str, title: str, results: dict[str, list[float]], dumps: list[tuple[float, int]], here: Machine
) -> None:
    middle = {name: median(values) for name, values in results.items()}
    against = "not recorded" if device == "cpu" else "PyTorch's history"
    pairs = [ours / theirs for ours, theirs in zip(results["memdiag"], results[against], strict=True)]
    ratio = median(pairs)
    rows = [
        [name, f"{value * 1e3:.2f}", f"{value / middle['not recorded']:.3f}", f"{value / middle[against]:.3f}"]
        for name, value in middle.items()
    ]
    layers, width, length, _ = SIZES[device]
    per_event = median(seconds / max(events, 1) for seconds, events in dumps)
    text = (
        f"# What recording costs: {title}\n\n"
        f"Made by bench/record.py: a training step of a GPT ({layers} layers, width {width}, {length} tokens, AdamW), "
        f"CPU time of the mean step, {len(pairs)} runs of each in turns, one thread.\n\n"
        + markdown_table(["", "ms a step", "/ not recorded", f"/ {against}"], rows)
        + f"\nmemdiag / {against}: {ratio:.3f}, median of the runs' ratios (at most {TARGET}: "
        f"{'met' if ratio <= TARGET else 'MISSED'}).\n"
        f"Writing a file: {per_event * 1e5:.2f} s for 100,000 events.\n\n{here.sentence()}\n"
    )
    write_report(stem, text, {"device": title, "results": results, "ratio": ratio, "seconds_per_event": per_event})


if __name__ == "__main__":
    main()
