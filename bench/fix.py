"""Runs ``memdiag fix`` on programs that run out of memory, and writes reports/fix.md.

    python bench/fix.py --python VENV/bin/python [--only "logits;cache"] [--device cuda:h100-80g] [--work FOLDER]

VENV has a CUDA build of torch, and transformers, timm, Lightning, diffusers, peft and torchvision. Each program of
bench/programs/pains.py gets the memory with which bench/pains.py shows that it runs out of memory, each one of
bench/programs/others.py about three quarters of what it needs. Nothing in them is edited. Results are kept in FOLDER,
so that a second run continues.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from memdiag.units import format_bytes

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from pains import PAINS, Pain  # noqa: E402 - a script beside this one

REPORT = HERE.parent / "reports" / "fix.md"
CONTEXT = 0.5  # GiB of the card outside the allocator; the memory of a pain is that for PyTorch
UNSAFE = {"graphs"}  # whose only remedy may change results
LIMIT = 900  # seconds of one program
OTHERS = (
    Pain("trainer", "transformers: Trainer, GPT-2", 9, ""),
    Pain("loop", "transformers: own loop, BERT", 11, ""),
    Pain("generate", "transformers: `generate`, Llama", 1.5, ""),
    Pain("timm", "timm: vision transformer", 3.5, ""),
    Pain("lightning", "Lightning: transformer encoder", 2.5, ""),
    Pain("unet", "diffusers: UNet", 3.8, ""),
    Pain("lora", "diffusers: LoRA of a text-to-image UNet", 3.8, ""),
    Pain("classification", "torchvision: ResNet-50", 3.5, ""),
    Pain("segmentation", "torchvision: FCN", 4, ""),
    Pain("nanogpt", "nanoGPT style", 5.5, ""),
)

MISSES = {
    "cache": "the dict grows in each step: no remedy stops a leak, and memdiag names the line",
}


def fix(pain: Pain, python: str, device: str, work: Path) -> dict[str, Any] | None:
    """Returns the report of ``memdiag fix --json``, or None if it ended with an error."""
    kept = work / f"{pain.name}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text(encoding="utf-8")))
    command = [
        sys.executable,
        "-m",
        "memdiag",
        "fix",
        "--json",
        "--phantom",
        device,
        "--budget",
        f"{pain.gib + CONTEXT}GiB",
    ]
    script = "others.py" if pain in OTHERS else "pains.py"
    command += [*pain.options, *(("--unsafe",) if pain.name in UNSAFE else ())]
    command += ["-o", f"{work / 'runs' / pain.name}/", "--", python, str(HERE / "programs" / script), pain.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if not done.stdout:
        print(done.stderr[-500:])
        return None
    kept.write_text(done.stdout, encoding="utf-8")
    return dict(json.loads(done.stdout))


def row(pain: Pain, found: dict[str, Any] | None) -> list[str]:
    """Returns the cells of a program."""
    if found is None:
        return [pain.words, f"{pain.gib:g}", "ended with an error", "", "", "", "", "no"]
    chosen = ", ".join(step["name"] for step in found["steps"] if step["is_chosen"])
    actual, predicted = found["actual"], found["predicted"]
    cells = [pain.words, f"{pain.gib:g}", chosen or "none", format_bytes(found["recorded"]["allocated_bytes"])]
    cells.append(format_bytes(predicted["allocated_bytes"]) if chosen else "-")
    if found["recorded"]["fits"]:
        return [*cells, "-", "-", "fits as it is"]
    if actual is None:
        return [*cells, "-", "-", "no"]
    error = predicted["allocated_bytes"] / actual["allocated_bytes"] - 1
    fits = "yes" if actual["fits"] else "no"
    return [*cells, format_bytes(actual["allocated_bytes"]), f"{error:+.2%}", fits]


def table(rows: list[list[str]], device: str, others: list[list[str]]) -> str:
    """Returns the report; ``others`` are those of the rows whose programs are in others.py."""
    needed = [cells for cells in rows if cells[-1] != "fits as it is"]
    fixed = sum(cells[-1] == "yes" for cells in needed)
    lines = [
        "# Programs that `memdiag fix` makes fit",
        "",
        f"Made by bench/fix.py on a phantom {device}: bench/programs/pains.py with the memory with which",
        "bench/pains.py shows them running out of memory, and bench/programs/others.py, in the style of the examples",
        "of other projects, with about three quarters of what they need. The programs are not edited. Peaks are",
        "allocated bytes; *predicted* and *measured* are those with the chosen remedies. A simulated device computes",
        "no losses to compare.",
        "CUDA graphs share a pool with `--unsafe`. If no remedy is enough, memdiag names the line to change by hand.",
        "",
        f"{fixed} of {len(needed)} programs that did not fit now fit.",
        f"In others.py, {sum(cells[-1] == 'yes' for cells in others)} of {len(others)} programs fit.",
        "",
        "| program | GiB it had | chosen remedies | before | predicted | measured | error | fits now |",
        "|---|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(cells)} |" for cells in rows),
    ]
    shown = {cells[0] for cells in rows if cells[-1] == "no"}
    lines += ["", "Misses:", ""]
    lines += [
        f"* {each.words}: {MISSES.get(each.name, 'not examined')}" for each in (*PAINS, *OTHERS) if each.words in shown
    ]
    left = [each.words for each in OTHERS if each.words not in {cells[0] for cells in rows}]
    if left:
        lines += ["", f"Not measured with this version: {'; '.join(left)}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs the programs and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="the interpreter of an environment with torch for the device")
    parser.add_argument("--device", default="cuda:h100-80g")
    parser.add_argument("--only", help="names, separated by ;")
    parser.add_argument("--work", type=Path, default=Path("memdiag-bench-fix"), help="folder of the kept results")
    parser.add_argument("--kept", action="store_true", help="report the kept results only, and run nothing")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    chosen = [
        pain
        for pain in (*PAINS, *OTHERS)
        if (not arguments.only or re.fullmatch(arguments.only.replace(";", "|"), pain.name))
        and (not arguments.kept or (arguments.work / f"{pain.name}.json").exists())
    ]
    rows = []
    for pain in chosen:
        rows.append(row(pain, fix(pain, arguments.python, arguments.device, arguments.work.resolve())))
        print(rows[-1], flush=True)
    words = {pain.words for pain in OTHERS}
    text = table(rows, arguments.device, [cells for cells in rows if cells[0] in words])
    if arguments.only:
        print(text)
    else:
        REPORT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
