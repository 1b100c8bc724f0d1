"""Compares the losses of programs with and without the remedies of ``memdiag fix``, and writes reports/fix-losses.md.

    python bench/fix_losses.py --python VENV/bin/python [--only "logits;timm"] [--work FOLDER]

VENV has a torch for the CPU, and transformers, timm, Lightning, diffusers, peft and torchvision. The programs of
bench/programs run on the CPU at small sizes, with a budget of a share of their recorded peak: the lowest one of SHARES
with which they fit. Results are kept in FOLDER, so that a second run continues.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from fix import OTHERS
from pains import PAINS, Pain

from memdiag.units import format_bytes

HERE = Path(__file__).parent
REPORT = HERE.parent / "reports" / "fix-losses.md"
SHARES = (0.7, 0.85, 0.95, 0.975)
LIMIT = 1800  # seconds of one run of memdiag fix
EXACT = 1e-6
ABSENT = {
    "generate": "computes no loss",
    "cache": "no remedy stops the growth of the dict",
    "first_step": "on the CPU, the optimizer already updates one parameter at a time; the losses of the remedy are "
    "compared in tests/fix/test_proof.py",
    "checkpoint": "on the CPU, the checkpoint and the model are in the same memory",
    "survivors": "computes no loss",
    "key_values": "computes no loss",
    "graphs": "needs CUDA graphs",
    "one_unit": "needs several processes on a device; the losses of the remedy are compared in tests/fix/test_proof.py",
    "fraction": "the CPU has no memory fraction",
    "nanogpt": "its lowest peak with remedies was 420.19 MiB, and 97.5 % of the recorded peak are 418.11 MiB",
}

# Why a program does not fit.
MISSES: dict[str, str] = {}


def fix(pain: Pain, python: str, work: Path, budget: int, *options: str) -> dict[str, Any] | None:
    """Returns the report of ``memdiag fix --json`` for a program, or None if it ended with an error.

    Args:
        pain: The program.
        python: The interpreter of its environment.
        work: Folder in which memdiag runs.
        budget: The budget in bytes.
        options: Further options; a recording among them takes the place of the command.
    """
    command = [sys.executable, "-m", "memdiag", "fix", "--json", "--budget", str(budget), *options]
    script, words = ("others.py", ["cpu", "small"]) if pain in OTHERS else ("pains.py", ["--cpu"])
    if not any(option.endswith(".pkl") for option in options):
        command += ["--", python, str(HERE / "programs" / script), pain.name, *words]
    # on a busy machine, several threads wait for each other most of the time
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment = {**os.environ, **threads, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        command, cwd=work, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if not done.stdout:
        print(done.stderr[-500:])
        return None
    return dict(json.loads(done.stdout))


def result(pain: Pain, python: str, work: Path) -> dict[str, Any] | None:
    """Returns the report with the lowest budget that the program fits into, or the last one."""
    kept = work / f"{pain.name}.json"
    if kept.exists():
        known: dict[str, Any] | None = json.loads(kept.read_text(encoding="utf-8"))
        return known
    first = found = fix(pain, python, work, 1 << 50, "--dry-run")
    for share in SHARES if first is not None else ():
        budget = int(share * first["recorded"]["allocated_bytes"])
        found = fix(pain, python, work, budget, "--dry-run", first["trace"])  # runs nothing
        if found is not None and found["predicted"]["fits"]:
            found = fix(pain, python, work, budget)
            if found is not None and found["actual"] is not None and found["actual"]["fits"]:
                break
    kept.write_text(json.dumps(found), encoding="utf-8")
    return found


def row(pain: Pain, found: dict[str, Any] | None) -> list[str]:
    """Returns the cells of a program."""
    if found is None:
        return [pain.words, "ended with an error", "", "", "", "", ""]
    chosen = ", ".join(step["name"] for step in found["steps"] if step["is_chosen"]) or "none"
    before = format_bytes(found["recorded"]["allocated_bytes"])
    losses, actual = found["losses"], found["actual"]
    if losses is None or losses["largest_relative"] is None or actual is None:
        return [pain.words, chosen, before, "-", "-", "-", "does not fit"]
    largest = losses["largest_relative"]
    verdict = "equal" if not largest else "within 1e-6" if largest <= EXACT else "rounding"
    size = format_bytes(actual["allocated_bytes"])
    return [pain.words, chosen, before, size, str(losses["num_compared"]), f"{largest:.1e}", verdict]


def report_of(rows: list[list[str]], left: list[str]) -> str:
    """Returns the report on rows of the table and the names of programs without a result."""
    compared = [cells for cells in rows if cells[-1] in ("equal", "within 1e-6", "rounding")]
    close = sum(cells[-1] != "rounding" for cells in compared)
    words = {pain.name: pain.words for pain in (*PAINS, *OTHERS)}
    missed = {cells[0] for cells in rows if cells[-1] == "does not fit"}
    reasons = {words[name]: why for name, why in MISSES.items()}
    lines = [
        "# Losses with the remedies of `memdiag fix`",
        "",
        "Made by bench/fix_losses.py on the CPU, with one thread: bench/programs/pains.py and bench/programs/others.py",
        "at small sizes, with a budget of 70, 85, 95 or 97.5 % of their recorded peak: the lowest with which they fit.",
        "Peaks are allocated bytes. *losses* is the number of values on which both runs call `backward`, without and",
        "with the remedies. *largest* is the largest relative difference between them.",
        "",
        f"In {close} of {len(compared)} programs, all losses are equal within 1e-6.",
        "",
        "| program | remedies | peak before | after | losses | largest | result |",
        "|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(cells)} |" for cells in rows),
        *(("", "Misses:", "") if missed else ()),
        *(f"* {text}: {reasons.get(text, 'not examined')}" for text in words.values() if text in missed),
        "",
        "Not compared:",
        "",
        *(f"* {words[name]}: {why}" for name, why in ABSENT.items()),
        *(f"* {words[name]}: not run with this version" for name in left),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs the programs and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="the interpreter of an environment with torch for the CPU")
    parser.add_argument("--only", help="names, separated by ;")
    parser.add_argument("--work", type=Path, default=Path("memdiag-bench-fix-losses"), help="folder of kept results")
    parser.add_argument("--kept", action="store_true", help="report the kept results only, and run nothing")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    rows, left = [], []
    for pain in (*PAINS, *OTHERS):
        if pain.name in ABSENT:
            continue
        is_wanted = not arguments.only or re.fullmatch(arguments.only.replace(";", "|"), pain.name)
        if not (work / f"{pain.name}.json").exists() and (arguments.kept or not is_wanted):
            left.append(pain.name)
            continue
        rows.append(row(pain, result(pain, arguments.python, work)))
        print(rows[-1], flush=True)
    if not arguments.only:
        REPORT.write_text(report_of(rows, left), encoding="utf-8")


if __name__ == "__main__":
    main()
