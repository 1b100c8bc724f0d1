"""Runs ``memdiag fix`` on programs of other people, and writes reports/fix-programs.md.

    python bench/fix_programs.py --sources FOLDER --python VENV/bin/python [--device cuda:h100-80g] [--only "nanoGPT"]

FOLDER and VENV are those of programs_of_others.py, whose table names the programs and the commits of their sources.
Nothing in them is edited. Each one is recorded first, and then gets a share of the reserved memory that it needs.
Results are kept in a folder (--work), so that a second run continues.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fix import each_cell
from others_table import HERE, Program, read_table, unpack

from memdiag.sources import load
from memdiag.units import MIB, format_bytes

REPORT = HERE.parent / "reports" / "fix-programs.md"
CONTEXT = 512 * MIB  # of the card, outside the allocator
HEAD = (
    "program",
    "reserved before",
    "card",
    "chosen remedies",
    "reserved with them",
    "error",
    "allocated",
    "each",
    "fits now",
)
SECONDS = 900  # limit of one program

# Programs, and arguments that are added to make them larger than the workspaces of the libraries.
PROGRAMS = {
    "nanoGPT GPT-2 of 124 M, no data loader (bench.py)": "",
    "nanoGPT characters, 10.7 M parameters": "",
    "minGPT chargpt, gpt-mini": "",
    "makemore transformer": "--batch-size 4096",
    "pytorch/examples imagenet, resnet50, --gpu 0": "",
    "pytorch/examples imagenet, resnet18 on 96 images": "",
    "pytorch/examples mnist": "--batch-size 2048",
    "pytorch/examples word_language_model, Transformer": "--batch_size 400",
    "pytorch/examples word_language_model, LSTM": "--batch_size 400",
    "pytorch/examples minGPT-ddp, 2 ranks": "",
    "pytorch/examples dcgan, fake data": "",
    "timm train.py, resnet50, 96 images": "",
    "timm train.py, vit_small, AMP, EMA": "",
    "timm benchmark.py, training of convnext_tiny": "",
    "PyTorch-GAN dcgan": "--batch_size 512",
    "diffusers DreamBooth with LoRA, small random weights": "--train_batch_size 8",
    "transformers Trainer with PEFT LoRA": "--length 512",
    "torchvision Faster R-CNN": "",
}


def measure(program: Program, extra: str, given: argparse.Namespace, commits: dict[str, str]) -> dict[str, Any]:
    """Returns the report of ``memdiag fix --json`` for a program, or why there is none."""
    kind = given.device.partition(":")[0]
    with tempfile.TemporaryDirectory(prefix="fixed-") as scratch:
        ready = unpack(program, kind, given, commits, Path(scratch) / "source")

        def memdiag(command: str, *options: str) -> subprocess.CompletedProcess[str]:
            call = [sys.executable, "-m", "memdiag", command, "--phantom", given.device, *program.options, *options]
            return subprocess.run(
                [*call, "--", *ready.words, *extra.split()],
                cwd=ready.folder,
                env=ready.environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
            )

        recorded = memdiag("record", "-q", "-o", f"{scratch}/recorded/")
        files = sorted((Path(scratch) / "recorded").glob("rank*.pkl"))
        if recorded.returncode or not files:
            return {"error": recorded.stderr[-500:]}
        peak = max(int(device.usage.reserved.max(initial=0)) for file in files for device in load(file).devices)
        budget = int(peak * given.share) + CONTEXT
        done = memdiag("fix", "--json", "--budget", str(budget), "-o", f"{scratch}/fixed/")
        if not done.stdout:
            return {"error": done.stderr[-500:]}
        return {"budget": budget, **json.loads(done.stdout)}


def row(name: str, found: dict[str, Any]) -> list[str]:
    """Returns the cells of a program."""
    if "error" in found:
        last = found["error"].strip().rpartition("\n")[2][:200]
        return [name, "", "", "", "", "", "", "", f"ended: {last}"]
    chosen = ", ".join(step["name"] for step in found["steps"] if step["is_chosen"]) or "none"
    cells = [name, format_bytes(found["recorded"]["reserved_bytes"]), format_bytes(found["budget"]), chosen]
    actual, predicted = found["actual"], found["predicted"]
    if actual is None:
        return [*cells, "", "", "", "", "fits as it is" if found["recorded"]["fits"] else "no"]
    errors = [f"{predicted[each] / actual[each] - 1:+.2%}" for each in ("reserved_bytes", "allocated_bytes")]
    fits = "yes" if actual["fits"] else "no"
    return [*cells, format_bytes(actual["reserved_bytes"]), *errors, each_cell(found), fits]


def write_report(work: Path) -> None:
    """Writes the kept results of all devices below the text of the report."""
    text = REPORT.read_text(encoding="utf-8") if REPORT.exists() else "# Programs of other people\n\n<!-- table -->\n"
    lines = [text.partition("<!-- table -->")[0] + "<!-- table -->"]
    for kept in sorted(work.glob("*.json")):
        rows = [row(name, found) for name, found in json.loads(kept.read_text(encoding="utf-8")).items()]
        needed = [cells for cells in rows if cells[-1] != "fits as it is"]
        fixed = sum(cells[-1] == "yes" for cells in needed)
        lines += ["", f"## {kept.stem}", "", f"{fixed} of {len(needed)} programs that did not fit now fit.", ""]
        lines += [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|", *(f"| {' | '.join(cells)} |" for cells in rows)]
    REPORT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Measures the programs that lack a result, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--device", default="cuda:h100-80g")
    parser.add_argument("--share", type=float, default=0.75, help="of the reserved memory that a program needs")
    parser.add_argument("--only", default="", help="parts of names, separated by ;")
    parser.add_argument("--work", type=Path, default=Path("memdiag-bench-fix-programs"))
    given = parser.parse_args()
    commits, programs = read_table()
    given.work.mkdir(parents=True, exist_ok=True)
    kept = given.work / f"{given.device.partition(':')[0]}.json"
    results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    wanted = [part for part in given.only.split(";") if part]
    for program in programs:
        name = f"{program.family} {program.name}"
        if name not in PROGRAMS or name in results or not program.runs_on(given.device.partition(":")[0]):
            continue
        if wanted and not any(part in name for part in wanted):
            continue
        try:
            results[name] = measure(program, PROGRAMS[name], given, commits)
        except subprocess.TimeoutExpired:
            results[name] = {"error": f"not done after {SECONDS} s"}
        kept.write_text(json.dumps(results, indent=1), encoding="utf-8")
        print(row(name, results[name]), flush=True)
    write_report(given.work)


if __name__ == "__main__":
    main()
