"""Runs ``memdiag fix`` on programs that run out of memory, and writes reports/fix.md and reports/fix-npu.md.

    python bench/fix.py --python VENV/bin/python [--only "logits;cache"] [--device cuda:h100-80g] [--work FOLDER]
        [--write]

VENV has a build of torch for the device, and transformers, timm, Lightning, diffusers, peft and torchvision. Each
program of bench/programs/pains.py gets the memory with which bench/pains.py shows that it runs out of memory, each one
of bench/programs/others.py about three quarters of what it needs. Nothing in them is edited. Results are kept in
FOLDER, one folder per device, so that a second run continues. Each device has its own report.

With --write, ``memdiag fix --write`` changes a copy of each program in FOLDER, and the changed copy then runs alone
with the same memory: ``memdiag record`` measures it, without ``memdiag fix``.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from memdiag.sources import load
from memdiag.units import format_bytes, parse_bytes

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from pains import PAINS, Pain  # noqa: E402 - a script beside this one

REPORTS = {backend: HERE.parent / "reports" / f"fix{end}.md" for backend, end in (("cuda", ""), ("npu", "-npu"))}
CONTEXT = 0.5  # GiB of the card outside the allocator; the memory of a pain is that for PyTorch
UNSAFE = {"graphs"}  # whose only remedy may change results
LIMIT = 900  # seconds of one program
ALONE = 9  # column of the table
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

# What a device cannot run, by backend and name.
ABSENT = {
    "npu": {
        "graphs": "the program uses torch.cuda.CUDAGraph",
        "lightning": 'the program asks Lightning for accelerator="gpu"',
    },
}
MISSES = {
    "cache": "the dict grows in each step: no remedy stops a leak, and memdiag names the line",
    "generate": "inference keeps nothing for backward, and its live tensors exceed the memory: memdiag names the line "
    "whose tensors grow",
}


def command_of(pain: Pain, python: str, backend: str, folder: Path) -> list[str]:
    """Returns the command of a program whose script is in a folder."""
    script, words = ("others.py", [backend]) if pain in OTHERS else ("pains.py", [f"--{backend}"])
    return [python, str(folder / script), pain.name, *words]


def fix(pain: Pain, python: str, device: str, work: Path, *, is_written: bool) -> dict[str, Any] | None:
    """Returns the report of ``memdiag fix --json``, or None if it ended with an error.

    Args:
        pain: The program.
        python: The interpreter of its environment.
        device: The simulated device.
        work: Folder of the kept results.
        is_written: Whether memdiag writes the remedies into a copy of the program, which then runs alone.
    """
    kept, alone = work / f"{pain.name}.json", work / f"{pain.name}.alone"
    if kept.exists() and (alone.exists() or not is_written):
        result: dict[str, Any] | None = json.loads(kept.read_text(encoding="utf-8"))
        return result
    programs = HERE / "programs"
    if is_written:
        programs = work / "written" / pain.name
        shutil.rmtree(programs, ignore_errors=True)
        programs.mkdir(parents=True)
        for name in ("others.py", "pains.py"):
            shutil.copy(HERE / "programs" / name, programs)
    backend, budget = device.partition(":")[0], f"{pain.gib + CONTEXT}GiB"
    program = command_of(pain, python, backend, programs)
    command = [sys.executable, "-m", "memdiag", "fix", "--json", "--phantom", device, "--budget", budget]
    command += [*pain.options, *(("--unsafe",) if pain.name in UNSAFE else ()), *(("--write",) if is_written else ())]
    command += ["-o", f"{work / 'runs' / pain.name}/", "--", *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if not done.stdout:
        print(done.stderr[-500:])
        kept.write_text("null", encoding="utf-8")
        return None
    found = dict(json.loads(done.stdout))
    kept.write_text(done.stdout, encoding="utf-8")
    if is_written:
        measured = None
        if found["written"]:
            measured = run_alone(pain, f"{device},total={parse_bytes(budget)}", program, work / "alone" / pain.name)
        alone.write_text(json.dumps(measured), encoding="utf-8")
    return found


def run_alone(pain: Pain, device: str, program: list[str], folder: Path) -> dict[str, int]:
    """Records a program with the memory of a simulated device, and returns its exit status and its peaks in bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "memdiag", "record", "-q", "--phantom", device, *pain.options]
    command += ["-o", f"{folder}/", "--", *program]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        print(done.stderr[-500:])
    result = {"exit_status": done.returncode}
    file = folder / "rank0.pkl"
    if not file.exists():
        return result
    if json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))["reason"] == "oom":
        # the recording ends at a failed request that the program survives; programs/pains.py prints its peak
        printed = re.search(r"^(\d+) bytes$", done.stdout, re.MULTILINE)
        return result | ({"allocated": int(printed[1])} if printed else {})
    usage = load(file).devices[0].usage
    return result | {name: int(usage[name].max(initial=0)) for name in ("allocated", "reserved")}


def alone_cell(pain: Pain, found: dict[str, Any], work: Path) -> str:
    """Returns how a program ran alone after ``memdiag fix --write``, compared with its run in ``memdiag fix``."""
    file = work / f"{pain.name}.alone"
    measured = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    if measured is None:
        return "-"
    if measured["exit_status"] or "allocated" not in measured:
        return "no"
    actual, names = found["actual"], [name for name in ("allocated", "reserved") if name in measured]
    differing = [
        f"{name} {measured[name] / actual[f'{name}_bytes'] - 1:+.2%}"
        for name in names
        if measured[name] != actual[f"{name}_bytes"]
    ]
    same = "same peaks" if len(names) > 1 else f"same {names[0]} peak"
    return ", ".join(["yes", *(differing or [same])])


def each_cell(found: dict[str, Any]) -> str:
    """Returns the largest error of the predicted peaks with one remedy alone, over the chosen remedies."""
    errors = [
        step["alone"][name] / step["actual_alone"][name] - 1
        for step in found["steps"]
        if step["is_chosen"] and step["actual_alone"]
        for name in ("reserved_bytes", "allocated_bytes")
        if step["actual_alone"][name]
    ]
    return f"{max(errors, key=abs):+.2%}" if errors else "-"


def row(pain: Pain, found: dict[str, Any] | None, work: Path) -> list[str]:
    """Returns the cells of a program."""
    if found is None:
        return [pain.words, f"{pain.gib:g}", "ended with an error", "", "", "", "", "", "", "-", "no"]
    chosen = ", ".join(step["name"] for step in found["steps"] if step["is_chosen"])
    actual, predicted = found["actual"], found["predicted"]
    cells = [pain.words, f"{pain.gib:g}", chosen or "none", format_bytes(found["recorded"]["allocated_bytes"])]
    cells.append(format_bytes(predicted["allocated_bytes"]) if chosen else "-")
    if found["recorded"]["fits"]:
        return [*cells, "-", "-", "-", "-", "-", "fits as it is"]
    if actual is None:
        return [*cells, "-", "-", "-", "-", "-", "no"]
    errors = [f"{predicted[name] / actual[name] - 1:+.2%}" for name in ("allocated_bytes", "reserved_bytes")]
    fits = "yes" if actual["fits"] else "no"
    alone = alone_cell(pain, found, work)
    return [*cells, format_bytes(actual["allocated_bytes"]), *errors, each_cell(found), alone, fits]


def kept_rows(work: Path) -> list[tuple[Pain, list[str]]]:
    """Returns the programs that have results in a folder, with their cells."""
    found = []
    for pain in (*PAINS, *OTHERS):
        file = work / f"{pain.name}.json"
        if file.exists():
            found.append((pain, row(pain, json.loads(file.read_text(encoding="utf-8")), work)))
    return found


def report_of(found: list[tuple[Pain, list[str]]], device: str) -> str:
    """Returns the report on a device."""
    needed = [(pain, cells) for pain, cells in found if cells[-1] != "fits as it is"]
    others = [cells for pain, cells in needed if pain in OTHERS]
    absent = ABSENT.get(device.partition(":")[0], {})
    is_written = any(cells[ALONE].startswith(("yes", "no")) for _, cells in found)
    shown = [cells if is_written else [*cells[:ALONE], *cells[ALONE + 1 :]] for _, cells in found]
    alone = (
        "*alone*: `memdiag fix --write` changed a copy of the program, and `memdiag record` measured this copy with",
        "the same memory, without `memdiag fix`. Its peaks are compared with those of the run in `memdiag fix`.",
        "A recording may end at a failed request that the program survives. In this case, only the allocated peak that",
        "the program prints is compared.",
    )
    column = " alone |" if is_written else ""
    fixed = sum(cells[-1] == "yes" for _, cells in needed)
    lines = [
        "# Programs that `memdiag fix` makes fit",
        "",
        f"Made by bench/fix.py on a phantom {device}: bench/programs/pains.py with the memory with which",
        "bench/pains.py shows them running out of memory, and bench/programs/others.py, in the style of the examples",
        "of other projects, with about three quarters of what they need. The programs are not edited. Peaks are",
        "allocated bytes; *predicted* and *measured* are those with the chosen remedies. A simulated device computes",
        "no losses to compare. *reserved* is the error of the predicted reserved peak, and *each* the largest error of",
        "a predicted peak, reserved or allocated, in the runs with one chosen remedy alone.",
        *(alone if is_written else ()),
        "CUDA graphs share a pool with `--unsafe`. If no remedy is enough, memdiag names the line to change by hand.",
        "",
        f"{fixed} of {len(needed)} programs that did not fit now fit.",
        f"In others.py, {sum(cells[-1] == 'yes' for cells in others)} of {len(others)} programs fit.",
        "",
        (
            "| program | GiB it had | chosen remedies | before | predicted | measured | error | reserved | each |"
            f"{column} fits now |"
        ),
        "|---" * len(shown[0]) + "|",
        *(f"| {' | '.join(cells)} |" for cells in shown),
    ]
    missed = [pain for pain, cells in found if cells[-1] == "no"]
    if missed:
        lines += ["", "Misses:", "", *(f"* {pain.words}: {MISSES.get(pain.name, 'not examined')}" for pain in missed)]
    words = {pain.name: pain.words for pain in (*PAINS, *OTHERS)}
    if absent:
        lines += ["", "Not run on this device:", "", *(f"* {words[name]}: {why}" for name, why in absent.items())]
    done = {pain.name for pain, _ in found} | absent.keys()
    left = [text for name, text in words.items() if name not in done]
    if left:
        lines += ["", f"Not measured with this version: {'; '.join(left)}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs the programs and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="the interpreter of an environment with torch for the device")
    parser.add_argument("--device", default="cuda:h100-80g")
    parser.add_argument("--only", help="names, separated by ;")
    parser.add_argument("--work", type=Path, default=Path("memdiag-bench-fix"), help="folder of the kept results")
    parser.add_argument("--write", action="store_true", help="also write the remedies, and run the program alone")
    parser.add_argument("--kept", action="store_true", help="report the kept results only, and run nothing")
    arguments = parser.parse_args()
    backend = arguments.device.partition(":")[0]
    work = arguments.work.resolve() / backend
    work.mkdir(parents=True, exist_ok=True)
    for pain in (*PAINS, *OTHERS):
        if arguments.kept or pain.name in ABSENT.get(backend, {}):
            continue
        if arguments.only and not re.fullmatch(arguments.only.replace(";", "|"), pain.name):
            continue
        result = fix(pain, arguments.python, arguments.device, work, is_written=arguments.write)
        print(row(pain, result, work), flush=True)
    if not arguments.only:
        REPORTS[backend].write_text(report_of(kept_rows(work), arguments.device), encoding="utf-8")


if __name__ == "__main__":
    main()
