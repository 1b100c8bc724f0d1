"""ResNet-50 with 512 images on a card of 32 GB that is not there: does it fit, and what moving does for it: reports/offload.md.

    python bench/offload.py --python VENV/bin/python

The Python is one with a CUDA build of torch and torchvision; no card is needed. The length of a step is given, not measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "bench" / "programs" / "resnet50.py"
CARD, LARGE = "cuda:v100-32g", "cuda:v100-32g,capacity=80GiB"
LIMIT = "30GB"
SIZES = ("load_left_bytes", "bound_bytes", "host_peak_bytes", "bytes_away")
WORDS = (
    "Moving parameters by itself is not enough, and cannot be: they are a few hundred MB, and nearly all of the peak is what forward keeps",
    "for backward. The automatic plan moves that. Where all copies would have to be hidden in a short step, the link is the limit:",
    "the plan then waits, and says how long. A plan that does not fit has the reserved bytes of a run that fails.",
    "",
    "Times within a step are estimated (backward takes twice as long as forward; within a pass time goes by the bytes made), since the",
    "recorded ones are those of a device that is not there. Nothing here was run on a card.",
)
RUNS = (
    ("automatic, a step of 1.5 s", ("--step-seconds", "1.5")),
    ("automatic, a step of 1.5 s, PCIe 5", ("--step-seconds", "1.5", "--link", "pcie5x16")),
    ("automatic, a step of 3 s", ("--step-seconds", "3")),
    ("forced: parameters on the host", ("--step-seconds", "1.5", "--no-auto-offload", "--offload-param", "cpu")),
)


def main() -> None:
    """Records, simulates, writes the report."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--python", required=True, help="with a CUDA build of torch, and torchvision")
    options.add_argument("--batch", default="512")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small = _record(Path(folder) / "small", CARD, given.python, given.batch)
        large = _record(Path(folder) / "large", LARGE, given.python, given.batch)
        plain = {name: _simulate(run)["results"][0] for name, run in (("small", small), ("large", large))}
        moved = [(name, _simulate(large, "--policy", "offload", "--max-device-memory", LIMIT, *more)["results"][0]) for name, more in RUNS]
    report = _report(given.batch, plain, moved)
    (ROOT / "reports" / "offload.md").write_text(report, encoding="utf-8")
    print(report)


def _record(folder: Path, device: str, python: str, batch: str) -> Path:
    command = [
        sys.executable,
        "-m",
        "memdiag",
        "record",
        "-o",
        str(folder),
        "--phantom",
        device,
        "--",
        python,
        str(PROGRAM),
        "--batch",
        batch,
    ]
    subprocess.run(command, check=False, capture_output=True, cwd=folder.parent)
    return folder


def _simulate(run: Path, *options: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "memdiag", "simulate", str(run), *options, "--json"], check=True, capture_output=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def _report(batch: str, plain: dict[str, Any], moved: list[tuple[str, Any]]) -> str:
    small, large = plain["small"], plain["large"]
    first = small["first_oom"]
    asked = _gib(first["requested_bytes"]) if first else ""
    lines = [
        "# ResNet-50 with more images than fit",
        "",
        "    python bench/offload.py --python VENV/bin/python",
        "",
        f"ResNet-50 at 224 x 224, single precision, SGD with momentum, {batch} images a step, three steps, recorded on a phantom {CARD}.",
        "",
        f"* On the card of 32 GB: {'runs' if small['fits'] else f'out of memory; {asked} are asked for'}.",
        f"* On one of 80 GiB: {_gib(large['peak_reserved_bytes'])} reserved, {_gib(large['peak_allocated_bytes'])} allocated.",
        f"* The plans below are for {LIMIT}, from the recording on the larger card. Link: PCIe 4 x16 unless said.",
        "",
        "| plan | fits | reserved | live at the peak | least possible | host | away a step | hidden | waited for | missing |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, result in moved:
        told = result["offload"]
        hidden, waited = (f"{told[key] / 1e6:.2f} s" for key in ("hidden_us", "exposed_us"))
        sizes = (result["peak_reserved_bytes"], *(told[key] for key in SIZES))
        missing = _gib(told["missing_bytes"]) if told["missing_bytes"] else "-"
        cells = (name, "yes" if told["fits"] else "no", *map(_gib, sizes), hidden, waited, missing)
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *WORDS]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
