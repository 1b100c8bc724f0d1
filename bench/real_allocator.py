"""Compares memdiag's curves with the real allocator's own counters, after every call of random programs.

The programs run on PyTorch's real CUDACachingAllocator on a simulated device (a folder made by the project's oracle:
``src/gen.py``, ``src/oracle.py``, ``venv``). Each recording is read three times: whole, and twice without its first
events, as a full ring buffer drops them. The earlier state must then be computed backwards from the later events.

    python bench/real_allocator.py --oracle DIR [--runs 30] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from memdiag.sources.torch_snapshot import read_snapshot
from memdiag.trace.free_split import split_at
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.units import MIB

KINDS = ("train", "serve", "random", "edge", "frag", "pressure", "streams", "pools", "all")
CONFS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:100",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.6",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "max_split_size_mb:32,garbage_collection_threshold:0.5",
    "expandable_segments:True,roundup_power2_divisions:8",
    "large_segment_size_mb:64",
    "expandable_segments:True,large_segment_size_mb:40",
)
TOTALS = ("2GiB", "4GiB", "8GiB", "24GiB")
CURVES = ("reserved", "allocated", "active")


@dataclass
class Tally:
    """Counts of compared and of different recordings, for whole or for shortened ones."""

    traces: int = 0
    rows: int = 0
    wrong_rows: int = 0
    wrong_traces: int = 0
    largest_error: int = 0
    other: Counter[str] = field(default_factory=Counter)


def record(oracle: Path, folder: Path, chance: random.Random) -> tuple[dict[str, object], dict[str, np.ndarray]] | None:
    """Runs a random program; returns its snapshot and the counters after each call, or None if the program crashed."""
    events, snapshot, rows = folder / "events.npz", folder / "snapshot.pickle", folder / "rows.npz"
    python = oracle / "venv" / "bin" / "python"
    total = chance.choice(TOTALS)
    make = [
        python,
        oracle / "src" / "gen.py",
        chance.choice(KINDS),
        events,
        "--n",
        "3000",
        "--seed",
        str(chance.randrange(10**6)),
    ]
    run = [
        python,
        oracle / "src" / "oracle.py",
        "run",
        events,
        "--total",
        total,
        "--conf",
        chance.choice(CONFS),
        "--done",
        chance.choice(("now", "manual")),
        "--history",
        "10000000",
        "--snapshot",
        snapshot,
        "--out",
        rows,
    ]
    for command in ([*make, "--total", total], run):
        done = subprocess.run([str(part) for part in command], capture_output=True, check=False)
        if done.returncode:
            return None
    with snapshot.open("rb") as file:
        found = pickle.load(file)  # our own recording, made a moment ago
    return found, {name: np.load(rows)["rows"][name] for name in ("trace_end", *CURVES)}


def compare(trace: Trace, cut: int, truth: dict[str, np.ndarray], tally: Tally) -> None:
    """Adds one reading of a recording, cut by ``cut`` entries, to the tally."""
    device = trace.devices[0]
    at = truth["trace_end"] - 1 - cut
    seen = at >= 0
    error = np.zeros(int(seen.sum()), np.int64)
    for name in CURVES:
        error = np.maximum(error, np.abs(device.usage[name][at[seen]] - truth[name][seen]))
    tally.traces += 1
    tally.rows += len(error)
    tally.wrong_rows += int((error > 0).sum())
    tally.wrong_traces += bool(error.any())
    tally.largest_error = max(tally.largest_error, int(error.max(initial=0)))
    tally.other.update(device.anomalies)
    tally.other["more than the note on the recording admits"] += (
        int(error.max(initial=0)) > device.num_uncertain_blocks * MIB
    )
    tally.other["identity"] += _identity_errors(device)
    tally.other["split"] += _split_errors(trace, device)
    end = device.usage_at(device.num_events - 1)
    tally.other["end"] += any(end[name] != device.end[name] for name in CURVES)


def _identity_errors(device: DeviceTrace) -> int:
    usage = device.usage
    known = usage.cache >= 0
    return int(((usage.reserved - usage.active != usage.cache + usage.stranded + usage.foreign) & known).sum())


def _split_errors(trace: Trace, device: DeviceTrace) -> int:
    errors = 0
    for at in np.linspace(0, device.num_events - 1, 12).astype(int).tolist():
        row = int(device.usage.reference[at])
        if row >= 0:
            request, group = int(device.references.size[row]), int(device.references.group[row])
            split = split_at(device, at, request, group, trace.layout.large_segment)
            ours = (int(device.usage.cache[at]), int(device.usage.stranded[at]), int(device.usage.foreign[at]))
            errors += (split.cache, split.stranded, split.foreign) != ours
    return errors


def main() -> None:
    """Runs, compares, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", type=Path, required=True, help="folder of the real allocator on a stand-in device")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)  # noqa: S311 - picks test programs
    tallies = {"whole": Tally(), "cut at the front": Tally()}
    crashed = 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.runs):
            found = record(args.oracle, Path(folder), chance)
            if found is None:
                crashed += 1
                continue
            snapshot, truth = found
            entries = snapshot["device_traces"][0]  # type: ignore[index]
            for cut in (0, chance.randrange(1, max(len(entries), 2)), int(len(entries) * 0.9)):
                data = pickle.dumps({**snapshot, "device_traces": [entries[cut:]]}, 4)
                compare(
                    read_snapshot(data, "recording", "torch-snapshot"),
                    cut,
                    truth,
                    tallies["cut at the front" if cut else "whole"],
                )
    head = "| recordings | read | calls compared | calls that differ | in recordings | by at most | other errors |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for name, t in tallies.items():
        other = json.dumps({key: count for key, count in t.other.items() if count}) if any(t.other.values()) else "none"
        lines.append(
            f"| {name} | {t.traces} | {t.rows:,} | {t.wrong_rows:,} | {t.wrong_traces} | {t.largest_error:,} bytes | "
            f"{other} |"
        )
    text = "\n".join(lines)
    sys.stdout.write(
        f"{text}\n\n{crashed} of {args.runs} programs crashed the allocator itself (--runs {args.runs} --seed "
        f"{args.seed})\n"
    )


if __name__ == "__main__":
    main()
