"""Records mixtures of experts with several loads of their experts on a phantom device; writes reports/expert-load.md.

    python bench/expert_load.py --python VENV/bin/python [--only mixtral]

VENV has a CUDA build of torch, transformers, megatron-core and torchtitan. A program whose packages are missing is
listed with the error.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from phantom_programs import REPORTS, Case, record, versions, why

import memdiag
from memdiag.units import format_bytes

DEVICE = "cuda:h100-80g"
LOADS = ("balanced", "skew=0.25", "skew=0.5", "skew=0.75", "skew=1")
MEGATRON = "megatron_core.py --tp 1 --ep 8 --experts 8 --layers 2 --hidden 1024 --heads 16 --ffn 2816 --length 4096"
TITAN = "torchtitan_own.py deepseek_v3 --parallelism.expert_parallel_degree 8"
PROGRAMS = (
    Case("transformers Mixtral, 8 experts, 2 per token", "experts.py mixtral"),
    Case("transformers Qwen3-MoE, 32 experts, 4 per token", "experts.py qwen3_moe"),
    Case("transformers DeepSeek-V3, 32 experts, 4 per token", "experts.py deepseek_v3"),
    Case("megatron-core, 8 experts, 2 per token, EP 8, rank 0 of 8", MEGATRON, 0, 8),
    Case("megatron-core, 8 experts, 2 per token, EP 8, rank 7 of 8", MEGATRON, 7, 8),
    Case("torchtitan DeepSeek-V3, 8 experts, 3 per token, EP 8, rank 0 of 8", TITAN, 0, 8),
    Case("torchtitan DeepSeek-V3, 8 experts, 3 per token, EP 8, rank 7 of 8", TITAN, 7, 8),
)


@dataclass
class Row:
    """Peaks of one program by load, or the error that ended it."""

    name: str
    allocated_bytes: dict[str, int]
    reserved_bytes: dict[str, int]
    seconds: float = 0.0
    said: str = ""


def measure(case: Case, python: str) -> Row:
    """Records a program with each load."""
    row = Row(case.name, {}, {})
    for load in LOADS:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "run"
            chosen = Case(case.name, case.words, case.rank, case.world, options=("--expert-load", load))
            status, seconds, _, said = record(chosen, python, DEVICE, folder)
            row.seconds = max(row.seconds, seconds)
            if status:
                row.said = why(said)
                return row
            trace = memdiag.load(next(iter(sorted(folder.glob("rank*.pkl")))))
            device = max(trace.devices, key=lambda one: one.usage["reserved"].max(initial=0))
            row.allocated_bytes[load] = int(device.usage["allocated"].max(initial=0))
            row.reserved_bytes[load] = int(device.usage["reserved"].max(initial=0))
    return row


def table(rows: list[Row]) -> str:
    """Returns the rows as markdown: peak allocated and reserved by load."""
    lines = [f"| program | {' | '.join(LOADS)} |", f"|---|{'--:|' * len(LOADS)}"]
    for row in rows:
        cells = [
            f"{format_bytes(row.allocated_bytes[load])} / {format_bytes(row.reserved_bytes[load])}"
            if load in row.allocated_bytes
            else row.said.replace("|", "/")
            for load in LOADS
        ]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Records the chosen programs, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", required=True)
    parser.add_argument("--only", default="", help="programs whose name contains this; the others are kept")
    given = parser.parse_args()
    report = REPORTS / "expert-load.md"
    kept = report.with_suffix(".json")
    rows = {row["name"]: Row(**row) for row in json.loads(kept.read_text())} if given.only and kept.exists() else {}
    for case in PROGRAMS:
        if given.only in case.name:
            rows[case.name] = measure(case, given.python)
            print(table([rows[case.name]]).splitlines()[-1], flush=True)
    found = [rows[case.name] for case in PROGRAMS if case.name in rows]
    head = report.read_text(encoding="utf-8").partition("<!-- table -->")[0]
    about = f"{versions(given.python)}; {DEVICE}."
    report.write_text(f"{head}<!-- table -->\n\n{about}\n\n{table(found)}\n", encoding="utf-8")
    kept.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
