"""Compares the blocks that ``memdiag fix`` recomputes with the cheapest ones of all sets, and writes a report.

    python bench/fix_checkpoint.py --python VENV/bin/python [--device cuda:h100-80g] [--work FOLDER]

VENV has a torch for the device. Models of eight blocks (bench/programs/eight_blocks.py) are recorded once. For each
budget, all 2^8 sets of blocks are replayed, and the cheapest one that fits is compared with the one that memdiag
chooses. The report is reports/fix_checkpoint.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from memdiag.fix.case import FixCase, Peaks
from memdiag.fix.edit import union
from memdiag.fix.remedies.checkpoint import Block, find_blocks, propose
from memdiag.fix.run import case_of
from memdiag.units import format_bytes

HERE = Path(__file__).parent
REPORT = HERE.parent / "reports" / "fix_checkpoint.md"
SHAPES = {
    "equal": "equal blocks",
    "alternating": "blocks of alternating size",
    "growing": "growing blocks",
    "gpt": "equal blocks with embedding and head",
    "convolutions": "convolutions with batch norm",
}
SHARES = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the largest possible saving
HIGH = 1 << 50


@dataclass(frozen=True)
class Compared:
    """The chosen set for one budget.

    Attributes:
        budget_bytes: The budget.
        cheapest, chosen: Cost as a share of the forward pass.
        num_blocks: Number of blocks of the cheapest set.
        fits: Whether the chosen set fits.
    """

    budget_bytes: int
    cheapest: float
    chosen: float
    num_blocks: int
    fits: bool


def record(shape: str, python: str, device: str, work: Path) -> Path:
    """Returns the recording of a model."""
    file = work / shape / "rank0.pkl"
    if not file.exists():
        command = [sys.executable, "-m", "memdiag", "record", "-q", "--phantom", device, "-o", f"{work / shape}/", "--"]
        command += [python, str(HERE / "programs" / "eight_blocks.py"), shape, device.partition(":")[0]]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return file


def compare(case: FixCase) -> list[Compared]:
    """Returns the result for each budget that some set of blocks fits into."""
    blocks = [block for block in find_blocks(case) if block.path in case.modules.blocks]
    sets = [[block for i, block in enumerate(blocks) if number >> i & 1] for number in range(1 << len(blocks))]
    peaks = [case.peaks(union([block.edit for block in chosen])) for chosen in sets]
    high, low = peaks[0].allocated, min(each.allocated for each in peaks)
    found = []
    for share in SHARES:
        limited = replace(case, budget_bytes=int(high - share * (high - low)) + case.subject.most_outside)
        fitting = [chosen for chosen, each in zip(sets, peaks, strict=True) if fits(limited, chosen, each)]
        proposals = list(propose(limited))
        if not fitting or not proposals:
            continue
        cheapest = min(fitting, key=cost)
        named = [block for block in find_blocks(limited) if block.path in proposals[0].settings["modules"]]
        unit = cost(named) / proposals[0].forward_share  # bytes of the forward pass
        now = limited.peaks(proposals[0].edit)
        found.append(
            Compared(limited.room_bytes, cost(cheapest) / unit, proposals[0].forward_share, len(cheapest), now.fits)
        )
    return found


def fits(case: FixCase, chosen: list[Block], peaks: Peaks) -> bool:
    """Returns whether a set fits, from its peaks without a limit, or from a replay if those do not decide."""
    if peaks.reserved <= case.room_bytes:
        return True
    return peaks.allocated <= case.room_bytes and case.peaks(union([block.edit for block in chosen])).fits


def cost(chosen: list[Block]) -> int:
    """Returns the bytes that some blocks allocate again."""
    return sum(block.cost for block in chosen)


def table(found: dict[str, list[Compared]], device: str) -> str:
    """Returns the report."""
    ratios = [each.chosen / each.cheapest for rows in found.values() for each in rows]
    num_fitting = sum(each.fits for rows in found.values() for each in rows)
    lines = [
        "# Which blocks `memdiag fix` recomputes",
        "",
        f"Made by bench/fix_checkpoint.py on a phantom {device}, with the models of",
        "bench/programs/eight_blocks.py. For each budget, all 256 sets of blocks are replayed. *cheapest* is the set",
        "of blocks with the lowest cost that fits. *chosen* is the proposal of memdiag. It may contain modules inside",
        "large blocks, so it can cost less. Costs are shares of a forward pass, estimated from the bytes allocated",
        "again. The table omits budgets that no set fits into.",
        "",
        f"The chosen set costs at most {max(ratios):.2f} times the cheapest one, in {len(ratios)} comparisons.",
        f"Of the chosen sets, {num_fitting} fit.",
        "",
        "| model | budget | cheapest | its blocks | chosen | ratio | fits |",
        "|---|---|---|---|---|---|---|",
    ]
    for shape, rows in found.items():
        lines += [
            f"| {SHAPES[shape]} | {format_bytes(each.budget_bytes)} | {each.cheapest:.1%} | {each.num_blocks} | "
            f"{each.chosen:.1%} | {each.chosen / each.cheapest:.2f} | {'yes' if each.fits else 'no'} |"
            for each in rows
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Records the models, compares, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="the interpreter of an environment with torch for the device")
    parser.add_argument("--device", default="cuda:h100-80g")
    parser.add_argument("--work", type=Path, default=Path("memdiag-bench-fix-checkpoint"), help="folder of recordings")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    found = {
        shape: compare(case_of(record(shape, arguments.python, arguments.device, arguments.work.resolve()), HIGH))
        for shape in SHAPES
    }
    REPORT.write_text(table(found, arguments.device), encoding="utf-8")


if __name__ == "__main__":
    main()
