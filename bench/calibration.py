"""How exactly replays reproduce recordings: every file given, and random programs of the real allocator.

    python bench/calibration.py FILE_OR_FOLDER … [--oracle DIR --runs 60 --seed 5] > reports/calibration.md

A folder means all snapshots in it. With ``--oracle`` (a folder with the real CUDA allocator on a simulated device, as
for bench/real_allocator.py), random programs are recorded and calibrated too: once whole, and once without their first
events, which a full ring buffer would have dropped.
"""

from __future__ import annotations

import argparse
import pickle
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from real_allocator import record

from memdiag.allocator.calibration.calibrate import Calibration, calibrate
from memdiag.errors import MemdiagError
from memdiag.sources import load
from memdiag.sources.torch_snapshot import read_snapshot
from memdiag.trace.model import Trace
from memdiag.units import format_bytes

_SUFFIXES = {".pickle", ".pkl", ".html"}
_HEAD = """\
# Calibration: replays compared with recordings

Each recording is replayed under its recorded settings. The address of every block, and every segment reserved or \
released, are compared
with the recording. After a difference, the replay continues from the recorded state, so each difference counts once.
*error* is the largest difference of reserved bytes over a whole trace, of one replay from its beginning.
"""


@dataclass
class Tally:
    """What came of several recordings."""

    recordings: int = 0
    exact_recordings: int = 0
    requests: int = 0
    exact_requests: int = 0
    segment_events: int = 0
    exact_segment_events: int = 0
    causes: Counter[str] = field(default_factory=Counter)

    def add(self, found: Calibration) -> None:
        """Counts one more."""
        self.recordings += 1
        self.exact_recordings += found.is_exact
        self.requests += found.num_requests or 0
        self.exact_requests += found.exact_requests or 0
        self.segment_events += found.num_segment_events
        self.exact_segment_events += found.exact_segment_events
        if found.first is not None:
            self.causes[found.first.cause] += 1

    def row(self, name: str) -> str:
        """Returns it as a row of a table."""
        causes = "; ".join(f"{count} times: {cause}" for cause, count in self.causes.most_common()) or "-"
        return (
            f"| {name} | {self.exact_recordings} of {self.recordings} | {self.exact_requests:,} of {self.requests:,} |"
            f" {self.exact_segment_events:,} of {self.segment_events:,} | {causes} |"
        )


_TALLY_HEAD = (
    "| recordings | exact | addresses | segment events | probable cause of the first difference |\n"
    "|---|---|---|---|---|"
)


def calibrations(trace: Trace) -> Iterator[tuple[int, Calibration]]:
    """Yields device and calibration, of devices with requests."""
    for device in trace.devices:
        if device.has_addresses and device.num_events:
            found = calibrate(trace, device)
            if found.events:
                yield device.device, found


def files_in(given: list[Path]) -> Iterator[Path]:
    """Yields files, and snapshots in folders."""
    for path in given:
        if path.is_dir():
            yield from sorted(inside for inside in path.rglob("*") if inside.suffix in _SUFFIXES and inside.is_file())
        else:
            yield path


def of_files(files: list[Path], out: list[str]) -> None:
    """Adds a table of files, each with its calibration."""
    total, rows, skipped = Tally(), [], 0
    for path in files:
        try:
            trace = load(path)
        except MemdiagError:
            skipped += 1
            continue
        found = list(calibrations(trace))
        skipped += not found
        for device, each in found:
            total.add(each)
            name = f"{path.parent.name}/{path.name}" if path.name.startswith("snapshot.") else path.name
            name += f" (device {device})" if len(found) > 1 else ""
            conf = each.conf.replace("|", "\\|") or "defaults"
            said = "exact" if each.is_exact else f"event {each.first.event:,}: {each.first.cause}" if each.first else ""
            rows.append(
                f"| {name} | {each.policy} {each.torch_version}{'' if each.is_version_known else '?'} | {conf} | "
                f"{each.exact_requests:,} of {each.num_requests:,} | {each.exact_segment_events:,} of "
                f"{each.num_segment_events:,} | {format_bytes(each.error_bytes)} | {said} |"
            )
    out.append(f"\n## Files\n\n{_TALLY_HEAD}\n{total.row('all')}\n")
    if skipped:
        out.append(f"{skipped} more files hold no requests (a last state only, or another kind of file).\n")
    out.append("| file | rules | settings | addresses | segment events | error | |\n|---|---|---|---|---|---|---|")
    out += rows


def of_programs(oracle: Path, runs: int, seed: int, out: list[str]) -> None:
    """Adds a table of random programs of the real allocator, whole and cut."""
    chance = random.Random(seed)  # noqa: S311 - picks test programs
    whole, cut = Tally(), Tally()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs):
            found = record(oracle, Path(folder), chance)
            if found is None:
                continue  # the allocator itself crashed
            snapshot = found[0]
            entries = snapshot["device_traces"][0]  # type: ignore[index]
            for at in (0, chance.randrange(1, max(len(entries), 2))):
                data = pickle.dumps({**snapshot, "device_traces": [entries[at:]]}, 4)
                for _, each in calibrations(read_snapshot(data, "recording", "torch-snapshot")):
                    (cut if at else whole).add(each)
    out.append(
        f"\n## Random programs on the real CUDA allocator\n\n{_TALLY_HEAD}\n{whole.row('whole')}\n"
        f"{cut.row('cut at the front')}\n"
    )
    out.append(f"{runs} programs, seed {seed}. docs/simulate.md lists the data that a cut recording lacks.")


def main() -> None:
    """Calibrates, and prints a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--oracle", type=Path, help="folder of the real allocator on a stand-in device")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    out = [_HEAD]
    of_files(list(files_in(args.files)), out)
    if args.oracle:
        of_programs(args.oracle, args.runs, args.seed, out)
    out.append("\nMade by `python bench/calibration.py SNAPSHOTS NPU-SAMPLES tests/goldens --oracle DIR`.")
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
