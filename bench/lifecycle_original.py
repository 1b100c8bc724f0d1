"""Compares the simulation of MindSpeed's allocator with MindSpeed's own one, and writes reports/lifecycle-original.md.

    python bench/lifecycle_original.py --library MemoryFragmentation.so --python VENV/bin/python [--programs 1000]

MindSpeed is not part of this repository. The library is its class ``MemoryFragmentationBuilder``, compiled for the
torch_npu of VENV. Random programs, and with --traces the recordings of the lifecycle study (bench/study/record.py), are
issued through torch_npu on a simulated NPU with this library plugged in, and replayed by ``--policy lifecycle``.

The allocator keeps no log, so the comparison has what is visible from outside, after every call: which requests fail,
where each tensor is, reserved and allocated bytes, retries, failures, segments reserved and released. Places are
compared by segment: all tensors of a simulated segment must be at their simulated offsets from one address.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lifecycle_real import HOOKS, Case, cases_of, random_case, subject_of, write_table

from memdiag.allocator.result import OUT_OF_MEMORY
from memdiag.units import format_bytes

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "reports" / "lifecycle-original.md"
sys.path.insert(0, str(ROOT))
from tests.allocator.policies.lifecycle.mindspeed import plugged  # noqa: E402 - found on sys.path

# Rows of original.py, which needs torch_npu.
ROW = np.dtype(
    [
        (name, np.int64)
        for name in (
            "call",
            "address",
            "reserved",
            "allocated",
            "retries",
            "ooms",
            "segments_made",
            "segments_released",
        )
    ]
)
AT_ONCE = 100  # random programs
NO_CARD = 128 << 30


@dataclass(frozen=True)
class Compared:
    """Number of calls, requests and failed requests, the reserved peak in bytes, and the differences in words."""

    num_calls: int
    num_allocs: int
    num_ooms: int
    reserved: int
    differences: tuple[str, ...]


def compare(case: Case, log: np.ndarray) -> Compared:
    """Compares one program call by call."""
    calls, number = case.run.calls.rows, case.run.calls.number
    if len(log) < len(calls):  # memory of others that never changes belongs to the device
        kept = np.arange(len(calls)) != np.argmax(calls[:, 0] == plugged.EXTERNAL)
        calls, number = calls[kept], number[kept]
    if len(log) != len(calls):
        sys.exit(f"{case.name}: {len(log)} rows for {len(calls)} calls")
    num_before, replay = case.run.calls.num_before, case.replay
    before = log[num_before - 1] if num_before else np.zeros(1, ROW)[0]
    mine, number = log[number >= 0], number[number >= 0]
    is_alloc = mine["call"] == plugged.MALLOC
    is_failed = is_alloc & (mine["address"] == 0)
    pairs = {
        "failed": (is_failed, replay.status[number] == OUT_OF_MEMORY),
        "reserved": (mine["reserved"], replay.reserved[number]),
        "allocated": (mine["allocated"], replay.allocated[number]),
        "retries": (mine["retries"] - before["retries"], replay.retries[number]),
        "ooms": (mine["ooms"] - before["ooms"], replay.ooms[number]),
        "segments made": (mine["segments_made"] - before["segments_made"], replay.device_allocs[number]),
        "segments released": (mine["segments_released"] - before["segments_released"], replay.device_frees[number]),
    }
    found = [
        f"{name}: {np.count_nonzero(real != simulated)} calls, the first is call {number[np.argmax(real != simulated)]}"
        for name, (real, simulated) in pairs.items()
        if (real != simulated).any()
    ]
    placed = is_alloc & ~is_failed & (replay.seg[number] >= 0)
    bases = mine["address"][placed] - replay.off[number][placed]
    moved = _moved(replay.seg[number][placed], bases)
    if moved:
        found.append(f"place: {moved} tensors")
    peak = int(mine["reserved"].max(initial=0))
    return Compared(len(mine), int(is_alloc.sum()), int(is_failed.sum()), peak, tuple(found))


def _moved(segments: np.ndarray, bases: np.ndarray) -> int:
    """Returns for how many tensors the segment would begin at another address than for its first tensor."""
    _, first, of = np.unique(segments, return_index=True, return_inverse=True)
    return int(np.count_nonzero(bases != bases[first][of]))


def issued(args: argparse.Namespace, cases: Sequence[Case]) -> list[Compared]:
    """Issues the calls of programs to the original, and compares them."""
    with tempfile.TemporaryDirectory() as scratch:
        runs = [case.run for case in cases]
        logs = plugged.run_on_npu(args.python, args.library, runs, Path(scratch), ROW)
        return [compare(case, log) for case, log in zip(cases, logs, strict=True)]


def random_table(args: argparse.Namespace) -> list[str]:
    """Compares random programs."""
    found: list[Compared] = []
    for first in range(0, args.programs, AT_ONCE):
        seeds = range(first, min(first + AT_ONCE, args.programs))
        found += issued(args, [random_case(seed) for seed in seeds])
        for seed, each in zip(seeds, found[first:], strict=True):
            if each.differences:
                print(f"seed {seed}: {'; '.join(each.differences)}", flush=True)
    sums = (sum(getattr(each, name) for each in found) for name in ("num_calls", "num_allocs", "num_ooms"))
    cells = [len(found), *sums, sum(bool(each.differences) for each in found)]
    return [
        "| programs | calls | requests | out of memory | programs that differ |",
        "|---|---|---|---|---|",
        f"| {' | '.join(f'{cell:,}' for cell in cells)} |",
    ]


def traces_table(args: argparse.Namespace) -> list[str]:
    """Compares recordings."""
    lines = [
        "| recording | hooks | calls | requests | out of memory | reserved peak | calls that differ |",
        "|---|---|---|---|---|---|---|",
    ]
    paths = sorted(args.traces.glob("*/rank*.pkl"))
    card = min((subject_of(path).recorded.capacity_bytes or NO_CARD for path in paths[:1]), default=NO_CARD)
    for path in paths:
        cases = cases_of(path, card)
        for case, found in zip(cases, issued(args, cases), strict=True):
            numbers = [f"{count:,}" for count in (found.num_calls, found.num_allocs, found.num_ooms)]
            cells = [case.name, HOOKS[case.policy], *numbers, format_bytes(found.reserved)]
            lines.append(f"| {' | '.join(cells)} | {'; '.join(found.differences) or 'none'} |")
            print(lines[-1], flush=True)
    return lines


def main(words: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--library", type=Path, required=True, help="MindSpeed's MemoryFragmentation, compiled")
    parser.add_argument("--python", required=True, help="has the torch_npu for which it was compiled")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--traces", type=Path, help="recordings of the study on a simulated NPU")
    args = parser.parse_args(words)
    if args.programs:
        write_table(REPORT, "random", random_table(args))
    if args.traces:
        write_table(REPORT, "traces", traces_table(args))


if __name__ == "__main__":
    main()
