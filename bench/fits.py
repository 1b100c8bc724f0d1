"""Checks what memdiag says of fitting against runs on simulated devices, and writes reports/fits.md.

    python bench/fits.py --npu PYTHON --cuda PYTHON [--capacities 10]     # each of an environment with torch_npu, with
    torch for CUDA

A small GPT (bench/programs/nano_gpt.py) is recorded on devices with too little memory, so that it fails in its first
steps. The report lists the claims of tune, simulate and analyze for every recording, and the result of
``memdiag try``. The same settings are also predicted from a recording of the whole run, made on a
device with more memory. Last, the smallest card that simulate predicts is tried, and a card that is 2 MiB smaller.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import markdown_table

from memdiag.cli.main import main as memdiag
from memdiag.units import MIB, format_bytes

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "reports" / "fits.md"
PROGRAM = ROOT / "bench" / "programs" / "nano_gpt.py"
DEVICES = {"npu": "npu:910b-64g", "cuda": "cuda:h100-80g"}
VARIABLES = {"npu": "PYTORCH_NPU_ALLOC_CONF", "cuda": "PYTORCH_CUDA_ALLOC_CONF"}
EXPANDABLE = "expandable_segments:True"
LEAST = 0.72  # of the room in which the run goes to its end: with so little it fails in its first step
PAGE = 2 * MIB
ENDS = {
    "runs_to_its_end": "runs to its end",
    "fails_again": "fails again",
    "fails_at_the_same_allocation": "fails at the same allocation",
    "fails_earlier": "fails earlier",
    "ends_with_another_error": "another error",
}


@dataclass(frozen=True)
class Machine:
    """A simulated device, and the Python that runs on it."""

    kind: str
    python: str
    folder: Path

    def record(self, name: str, options: str = "", conf: str = "") -> tuple[int, Path]:
        """Records the program on the device; returns its exit status and the folder of the run."""
        folder = self.folder / name
        command = [
            sys.executable,
            "-m",
            "memdiag",
            "record",
            "--quiet",
            "--phantom",
            f"{DEVICES[self.kind]}{options}",
            "-o",
            str(folder),
        ]
        done = self._run([*command, "--", self.python, str(PROGRAM), "--device", self.kind, "--steps", "3"], conf)
        return done.returncode, folder

    def retry(self, run: Path, conf: str) -> dict[str, Any]:
        """Repeats a recorded run with other settings; returns what ``memdiag try`` says of it."""
        folder = run.with_name(f"{run.name}-again")
        done = self._run([sys.executable, "-m", "memdiag", "try", str(run), "--conf", conf, "-o", str(folder)], "")
        (path,) = [*folder.glob("try.json"), *folder.glob("*/try.json")] or [None]
        assert path is not None, done.stderr[-2000:]  # noqa: S101 - there is nothing to compare
        (rank,) = json.loads(path.read_text())["ranks"]
        return dict(rank)

    def _run(self, command: list[str], conf: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTORCH_")}
        environment |= {"PYTHONPATH": str(ROOT), **({VARIABLES[self.kind]: conf} if conf else {})}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=self.folder)


def said(*arguments: str) -> dict[str, Any]:
    """Returns the JSON that a command of memdiag prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        memdiag([*arguments, "--json"])
    return dict(json.loads(out.getvalue()))


@dataclass(frozen=True)
class Case:
    """One recording that failed, a setting, the claims about it, and the outcome.

    Attributes:
        room: Bytes for the allocator.
        step: In which the recorded run failed.
        conf: The setting tried.
        claims: Which commands say that it fits.
        estimate: Whether the rest was estimated to go through; None: no estimate, or a lower bound within the room.
        has_estimate: There is one.
        whole: Whether it fits, predicted from the whole run.
        outcome: As ``memdiag try`` has it.
    """

    room: int
    step: int
    conf: str
    claims: tuple[str, ...]
    estimate: bool | None
    has_estimate: bool
    whole: bool
    outcome: str

    @property
    def ran(self) -> bool:
        """The repeated run went to its end."""
        return self.outcome == "runs_to_its_end"


def case(machine: Machine, whole: Path, outside: int, room: int) -> Case:
    """Records the run with so little memory, asks memdiag, and repeats the run."""
    status, run = machine.record(f"{machine.kind}-{room}", f",total={room + outside}")
    assert status == 1, f"{room} bytes are enough"  # noqa: S101 - the capacities are chosen so that they are not
    tuned = said("tune", str(run), "--budget-seconds", "20")
    best = tuned["recommended"]
    conf = best["conf"] if best is not None else EXPANDABLE
    simulated = said("simulate", str(run), "--conf", conf)["results"][0]
    analyzed = said("analyze", str(run))
    claims = [
        name
        for name, fits in (
            ("tune", best is not None and best["fits"]),
            ("simulate", simulated["fits"]),
            ("analyze", analyzed["verdict"]["fits"]),
        )
        if fits
    ]
    rest = (simulated.get("outlook") or {}).get("estimate")
    from_whole = said("simulate", str(whole), "--conf", conf, "--capacity", str(room + outside))["results"][0]["fits"]
    again = machine.retry(run, conf)
    estimate = rest["fits"] if rest is not None else None
    return Case(
        room,
        again["recorded_failure"]["step"],
        conf,
        tuple(claims),
        estimate,
        rest is not None and estimate is not None,
        from_whole,
        again["outcome"],
    )


def cases(machine: Machine, count: int) -> Iterator[Case]:
    """Yields recordings with from too little memory for the first step to nearly enough for all."""
    _, whole = machine.record(f"{machine.kind}-whole")
    found = said("simulate", str(whole), "--min-capacity")
    enough, outside = found["results"][0]["min_usable_bytes"], found["card"]["outside_bytes"]
    for number in range(count):
        share = LEAST + (1 - LEAST) * number / count
        yield case(machine, whole, outside, round(enough * share) // PAGE * PAGE)


def smallest(machine: Machine, options: str, conf: str) -> tuple[int, int, bool, bool]:
    """Returns the smallest predicted card, its room, and whether the run fits there and on the next smaller one."""
    name = f"{machine.kind}-card-{len(list(machine.folder.iterdir()))}"
    _, whole = machine.record(name, options)
    result = said("simulate", str(whole), "--conf", conf, "--min-capacity")["results"][0]
    card = result["min_capacity_bytes"]
    ends = [machine.record(f"{name}-{size}", f"{options},total={size}", conf)[0] == 0 for size in (card, card - PAGE)]
    return card, result["min_usable_bytes"], ends[0], ends[1]


def section(machine: Machine, count: int) -> tuple[list[str], list[Case], list[tuple[int, int, bool, bool]]]:
    """Returns the part of the report on one device."""
    found = []
    for each in cases(machine, count):
        found.append(each)
        print(each, file=sys.stderr, flush=True)
    rows = [
        (
            format_bytes(each.room),
            str(each.step),
            f"`{each.conf}`",
            ", ".join(each.claims) or "none",
            "no estimate" if not each.has_estimate else "goes through" if each.estimate else "fails",
            "fits" if each.whole else "does not fit",
            ENDS[each.outcome],
        )
        for each in found
    ]
    lines = [f"## {DEVICES[machine.kind]}", ""]
    head = (
        "room",
        "failed in step",
        "setting",
        '"fits" claimed by',
        "estimate of the rest",
        "from the whole run",
        "memdiag try",
    )
    lines += [markdown_table(head, rows)]
    cards = []
    table = []
    for options, conf in (("", ""), ("", EXPANDABLE), (",context=2GiB", EXPANDABLE)):
        card = smallest(machine, options, conf)
        cards.append(card)
        print(options, conf, card, file=sys.stderr, flush=True)
        words = tuple("runs" if ran else "fails" for ran in card[2:])
        table.append(
            (
                options.lstrip(",") or "as in its profile",
                f"`{conf}`" if conf else "default",
                *map(format_bytes, card[:2]),
                *words,
            )
        )
    head = ("context", "settings", "smallest card", "room on it", "run on that card", "run on 2 MiB less")
    return [*lines, markdown_table(head, table)], found, cards


def main() -> int:
    """Writes the report; returns 1 if a claim was not confirmed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npu", help="Python with torch_npu")
    parser.add_argument("--cuda", help="Python with torch for CUDA")
    parser.add_argument("--capacities", type=int, default=10)
    parser.add_argument("--out", type=Path, default=REPORT)
    options = parser.parse_args()
    lines: list[str] = []
    every: list[Case] = []
    cards: list[tuple[int, int, bool, bool]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for kind in DEVICES:
            if python := getattr(options, kind):
                part, found, tried = section(
                    Machine(kind, str(Path(python).absolute()), Path(scratch)), options.capacities
                )
                lines, every, cards = lines + part, every + found, cards + tried
    wrong = sum(bool(each.claims) and not each.ran for each in every)
    estimated = [each for each in every if each.has_estimate]
    summary = [
        ('"fits" claimed from a recording that failed, and not confirmed', f"{wrong} of {len(every)}"),
        (
            "estimate of the rest that came true",
            f"{sum(each.estimate == each.ran for each in estimated)} of {len(estimated)}",
        ),
        (
            "prediction from the whole run that came true",
            f"{sum(each.whole == each.ran for each in every)} of {len(every)}",
        ),
        ("smallest card that is the real one", f"{sum(card[2] and not card[3] for card in cards)} of {len(cards)}"),
    ]
    head = [
        "# Claims about fitting, checked",
        "",
        "A small GPT runs out of memory on simulated devices. memdiag predicts, and `memdiag try` repeats the run.",
        (
            "A recording that ends in a failure cannot show that a run fits, so no report may claim it; memdiag can "
            "only estimate"
        ),
        "the rest of the run.",
        "A recording of the whole run, made on a device with more memory, shows whether it fits.",
        "",
        "    python bench/fits.py --npu .venv-npu/bin/python --cuda .venv-cuda/bin/python",
        "",
        markdown_table(("what", "how often"), summary),
    ]
    options.out.write_text("\n".join([*head, *lines]).rstrip() + "\n", encoding="utf-8")
    print(f"wrote {options.out}", file=sys.stderr)
    right = all(each.whole == each.ran for each in every) and all(card[2] and not card[3] for card in cards)
    return int(bool(wrong) or not right)


if __name__ == "__main__":
    raise SystemExit(main())
