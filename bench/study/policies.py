"""Replays the recordings of the lifecycle study under every policy; writes reports/study.md and .json.

    python bench/study/policies.py --recordings FOLDER [--snapshots FOLDER] [--policy plan,bound] [--only 7b-s4096]
    [--python PYTHON]

FOLDER is what record.py left. Every recording that ran to its end is replayed, whole, on the card of the study: with
the room that PyTorch had there, which is 61.22 GiB without the buffers of the collective library. Those made on a
larger device are replayed on the same card. --snapshots: a folder of other people's snapshots, replayed on the memory
that they were recorded with. Parts that are not chosen are kept from the last report, and so is the text above the
first table, which is written by hand. Figures are drawn by PYTHON, which has matplotlib.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from record import Job, Recorded, read_back
from report import REPORT, write_report

from memdiag.allocator.policies import POLICIES

FIGURES = Path(__file__).with_name("figures.py")
LIMIT = 900
# Column of the tables: the policy that it is on each backend.
COLUMNS = {
    "caching": {"npu": "npu", "cuda": "caching"},
    "expandable": {"npu": "npu-expandable", "cuda": "expandable"},
    "lifecycle": {"npu": "lifecycle", "cuda": "lifecycle"},
    "lifecycle-stack": {"npu": "lifecycle-stack", "cuda": "lifecycle-stack"},
    "lifetime-oracle": {"npu": "lifetime-oracle", "cuda": "lifetime-oracle"},
    "mempool": {"npu": "npu-mempool", "cuda": "mempool"},
    "stitch": {"npu": "stitch", "cuda": "stitch"},
    "plan": {"npu": "plan", "cuda": "plan"},
    "bound": {"npu": "bound", "cuda": "bound"},
}
SPLIT = ("rounding", "pending", "stranded", "foreign", "cache")
NAMES = {"7b": "7B", "13b": "13B", "70b": "70B"}
Result = dict[str, Any]


def columns(backend: str, wanted: Sequence[str] = ()) -> dict[str, str]:
    """Returns the columns of a backend's tables (all or selected), and their policies if this version has them."""
    return {
        title: names[backend]
        for title, names in COLUMNS.items()
        if names[backend] in POLICIES and (not wanted or title in wanted)
    }


def simulate(trace: Path, policies: Sequence[str], capacity: int | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Runs ``memdiag simulate``; returns its output, the results by policy, and the refused policies with the reason.

    Args:
        trace: A recording or a snapshot.
        policies: Their names.
        capacity: Bytes for PyTorch; None: as recorded. The study compares room for PyTorch, so nothing lies outside the
            allocator here: otherwise memdiag simulate takes the capacity as the whole card, and gives the smallest
            whole card.
    """
    words = [sys.executable, "-m", "memdiag", "simulate", str(trace), "--json", "--min-capacity", "--outside", "0B"]
    words += ["--capacity", str(capacity)] if capacity else []
    said, refused = _run([*words, "--policy", ",".join(policies)])
    if said is not None:
        return {**said, "results": dict(zip(policies, said["results"], strict=True))}, {}
    if len(policies) == 1:
        return {}, {policies[0]: refused}
    whole: dict[str, Any] = {}
    why: dict[str, str] = {}
    for policy in policies:
        one, failed = simulate(trace, [policy], capacity)
        why |= failed
        if one:
            whole = {**one, "results": {**whole.get("results", {}), **one["results"]}}
    return whole, why


def _run(words: list[str]) -> tuple[dict[str, Any] | None, str]:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return None, f"not done after {LIMIT} s"
    if done.returncode:
        return None, next((line for line in done.stderr.splitlines() if line.startswith("error:")), done.stderr[-200:])
    return json.loads(done.stdout), ""


def brief(said: dict[str, Any], titles: dict[str, str]) -> dict[str, Result]:
    """Returns the results of a simulation that the report shows, by column."""
    found = {}
    for title, policy in titles.items():
        result = said["results"].get(policy)
        if result is None:
            continue
        failed = result["first_oom"]
        found[title] = {
            "smallest": result["min_capacity_bytes"],
            "reserved": result["peak_reserved_bytes"],
            "allocated": result["peak_allocated_bytes"],
            "requested": result["peak_requested_bytes"],
            "saved": result["saved_bytes"],
            "ooms": result["num_ooms"],
            "retries": result["num_retries"],
            "mallocs": result["num_device_allocs"],
            "failed": None
            if failed is None
            else {key: failed[key] for key in ("at_event", "requested_bytes", "shortfall_bytes")},
            "split": {name: result["fragmentation"][f"{name}_bytes"] for name in SPLIT},
        }
    return found


def study(root: Path, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Replays the recordings of every device."""

    def one(job: tuple[Path, str, Recorded, int]) -> dict[str, Any] | None:
        folder, device, row, room = job
        titles = columns(device.partition(":")[0], args.policy)
        said, refused = simulate(folder / row.job.name, list(titles.values()), room)
        print(f"{device} {row.job.name}: {refused or 'done'}", flush=True)
        return as_row(device, row, room, said, refused, titles) if said else None

    jobs: list[tuple[Path, str, Recorded, int]] = []
    for index in sorted(root.glob("*/index.json"), reverse=True):
        device, recorded = json.loads(index.read_text())["device"], read_back(index.parent)
        wanted = [row for row in recorded if row.fits and args.only in row.job.name and args.device in device]
        wanted = [row for row in wanted if (device, row.job.name) not in args.known]
        jobs += [(index.parent, device, row, room_of(row, recorded)) for row in wanted]
    with ThreadPoolExecutor(args.jobs) as pool:
        yield from (row for row in pool.map(one, jobs) if row is not None)


def room_of(row: Recorded, recorded: Iterable[Recorded]) -> int:
    """Returns PyTorch's bytes on the card of the study.

    If the program ran on a larger card, they are those that it finally had on this one.
    """
    alike = [other for other in recorded if other.job.configuration == row.job.configuration and not other.job.room]
    return row.room_bytes if not row.job.room else min(other.room_bytes for other in alike)


def as_row(
    device: str, row: Recorded, room: int, said: dict[str, Any], refused: dict[str, str], titles: dict[str, str]
) -> dict[str, Any]:
    """One recording, for the report."""
    job = row.job
    is_of_the_nine = job.world < 1024 and job.micro_batches <= max(2 * job.pp, 4)
    return {
        "device": device,
        "name": job.name,
        "title": title_of(job),
        "variant": job.variant,
        "is_of_the_nine": is_of_the_nine,
        "room": room,
        "live": row.allocated_bytes,
        "events": row.num_events,
        "exact": said["calibration"]["exact_fraction"],
        "refused": refused,
        "results": brief(said, titles),
    }


def title_of(job: Job) -> str:
    """A configuration in a few characters."""
    world = f", rank {job.rank} of {job.world}" if job.world == 1024 else f" on {job.world}"
    more = f", {job.micro_batches} micro-batches" if job.micro_batches > 8 and job.world < 1024 else ""
    return f"{NAMES[job.model]} {job.length} x {job.batch}{world}{more}"


def strangers(folder: Path, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Replays other people's snapshots, each with its recorded memory, except those with nothing to replay."""

    def one(file: Path) -> dict[str, Any] | None:
        for backend in ("cuda", "npu"):
            titles = columns(backend, args.policy)
            said, refused = simulate(file, list(titles.values()), None)
            if not said:
                return None
            if str(said["recorded"]["policy"]).startswith("npu") == (backend == "npu"):
                break
        print(f"{file.name}: {refused or 'done'}", flush=True)
        told, own = said["calibration"], said["recorded"]
        return {
            "name": file.name,
            "events": told["num_events"],
            "exact": told["exact_fraction"],
            "conf": own["conf"],
            "refused": refused,
            "results": brief(said, titles),
        }

    files = [
        file
        for file in sorted(folder.iterdir())
        if file.suffix in {".pickle", ".pkl", ".html"} and args.only in file.name
    ]
    files = [file for file in files if (None, file.name) not in args.known]
    with ThreadPoolExecutor(args.jobs) as pool:
        yield from (row for row in pool.map(one, files) if row is not None)


def merged(old: list[dict[str, Any]], new: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yields, after each new row, the rows of a report with the new ones in it, policy by policy."""
    rows = {(row.get("device"), row["name"]): row for row in old}
    for row in new:
        key = row.get("device"), row["name"]
        rows[key] = {**row, "results": {**rows.get(key, {}).get("results", {}), **row["results"]}}
        yield list(rows.values())


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recordings", type=Path, help="what record.py left")
    parser.add_argument("--snapshots", type=Path, help="other people's snapshots")
    parser.add_argument("--policy", type=lambda text: text.split(","), default=[], help="only these columns")
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--device", default="", help="a part of the names of devices")
    parser.add_argument("--missing", action="store_true", help="only what the last report has not at all")
    parser.add_argument("--jobs", type=int, default=2, help="so many at once")
    parser.add_argument("--python", default=sys.executable, help="has matplotlib")
    args = parser.parse_args()
    kept = REPORT.with_suffix(".json")
    data = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {"study": [], "snapshots": []}
    args.known = {(row.get("device"), row["name"]) for rows in data.values() for row in rows} if args.missing else set()
    if args.recordings:
        for rows in merged(data["study"], study(args.recordings, args)):
            write_report({**data, "study": rows})
        data = json.loads(kept.read_text(encoding="utf-8"))
    if args.snapshots:
        for rows in merged(data["snapshots"], strangers(args.snapshots, args)):
            write_report({**data, "snapshots": rows})
    subprocess.run([args.python, str(FIGURES), str(kept)], check=False)


if __name__ == "__main__":
    main()
