"""Times ``memdiag analyze FILE --json`` against other readers of the same snapshot, and with a larger input.

    python bench/analyze.py big.pickle --big big10.pickle --pt-snap PATH/pt-snap --ptmem PATH/ptmem

The snapshot: any large one recorded by torch.cuda.memory._record_memory_history. The committed report used the real
allocator of PyTorch on a simulated CUDA runtime without hardware, training a GPT of 24 layers, width 1024, 16 heads,
batch 4 for 110 steps (682,310 entries, 67 MB), and for ``--big`` the same with 1,100 steps and a history without bound
(max_entries=100_000_000). On a GPU, examples/train_gpt.py with more layers and steps gives the like.

The others, each measured only if its program is given:

* bare: bench/bare_load.py, a restricted pickle.load and nothing else, garbage collector on;
* pt-snap-cli: ``pt-snap import`` into its database (PyPI: pt-snap-cli);
* ptmem: ``ptmem -s``, its summary (PyPI: ptmem);
* other checkout: the same command with another checkout of memdiag.

pt-snap keeps a database and ptmem a cache next to the snapshot. Both are removed before every run, because the table
compares first runs. Mosaic's peak analysis is not on PyPI, so it is not compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from measuring import Contender, Machine, markdown_table, measure, write_report

BENCH = Path(__file__).parent
MB = 1_000_000
OTHER_CHECKOUT = "other checkout"
# memdiag's time (or peak memory) over another's: at most this.
TIME_TARGETS = {"bare": 1.5, "pt-snap": 0.25, "ptmem": 0.6, OTHER_CHECKOUT: 1.05}
MEMORY_TARGETS = {"bare": 1.5}
# Seconds per entry on the large input over those on the small one: at most this is called linear.
LINEAR = 1.25


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("snapshot", type=Path)
    parser.add_argument("--big", type=Path, help="a larger snapshot of the same kind, for the growth of time")
    parser.add_argument("--runs", type=int, default=5, help="measured runs of each (default 5)")
    parser.add_argument("--big-runs", type=int, default=3, help="measured runs on the larger snapshot (default 3)")
    parser.add_argument("--memdiag", type=Path, default=Path(sys.executable).with_name("memdiag"))
    parser.add_argument("--pt-snap", type=Path, help="the program pt-snap")
    parser.add_argument("--ptmem", type=Path, help="the program ptmem")
    parser.add_argument("--before", type=Path, help="another checkout of memdiag")
    parser.add_argument(
        "--output", type=Path, default=BENCH.parent / "reports" / "bench-analyze", help="report, without suffix"
    )
    return parser.parse_args()


def contenders(snapshot: Path, args: argparse.Namespace, scratch: Path) -> list[Contender]:
    """Returns the programs to measure on one snapshot: memdiag, the bare load, and the given peers."""
    chosen = [
        Contender("memdiag", [str(args.memdiag), "analyze", str(snapshot), "--json"]),
        Contender("bare", [sys.executable, "-I", str(BENCH / "bare_load.py"), str(snapshot)]),
    ]
    if args.pt_snap:
        home, database = scratch / "home", scratch / "database"
        home.mkdir(exist_ok=True)
        command = [str(args.pt_snap.absolute()), "import", str(snapshot), "--no-focus", "-o", str(database)]
        env = {**os.environ, "HOME": str(home)}
        chosen.append(
            Contender("pt-snap", command, env=env, prepare=lambda: shutil.rmtree(database, ignore_errors=True))
        )
    if args.ptmem:
        folder = scratch / "ptmem"  # ptmem writes its cache next to the snapshot, so it reads a copy
        folder.mkdir(exist_ok=True)
        shutil.copyfile(snapshot, folder / snapshot.name)

        def forget() -> None:
            for cache in folder.glob(".*.memcache"):
                cache.unlink()

        command = [str(args.ptmem.absolute()), "-s", snapshot.name]
        chosen.append(Contender("ptmem", command, cwd=folder, prepare=forget))
    if args.before:
        env = {**os.environ, "PYTHONPATH": str(args.before.resolve())}
        chosen.append(Contender(OTHER_CHECKOUT, chosen[0].command, env=env))
    return chosen


def num_events(memdiag: Contender) -> int:
    """Entries of the snapshot, as memdiag's own JSON says; a check that it did its work."""
    report = json.loads(memdiag.output)
    count = report["source"]["num_events"]
    if not count or not report["devices"]:
        raise SystemExit("memdiag found no events: not the snapshot to measure with")
    return int(count)


@dataclass(frozen=True)
class Ratio:
    """One number of memdiag's over another's."""

    what: str
    over: str
    ratio: float
    target: float | None

    @property
    def verdict(self) -> str:
        """Whether the target is met; "" without one."""
        return "" if self.target is None else "met" if self.ratio <= self.target else "MISSED"


def ratios(us: Contender, others: list[Contender]) -> list[Ratio]:
    """All of memdiag's numbers over each other's."""
    found = []
    for other in others:
        time, memory = TIME_TARGETS.get(other.name), MEMORY_TARGETS.get(other.name)
        found.append(Ratio("time, best", other.name, us.best / other.best, time))
        found.append(Ratio("time, median", other.name, us.median / other.median, time))
        found.append(Ratio("peak memory", other.name, us.peak_bytes / other.peak_bytes, memory))
    return found


@dataclass(frozen=True)
class Growth:
    """How time and memory grow from a small to a large input, both of one kind."""

    entries_ratio: float
    time_ratio: float
    peak_memory_ratio: float
    us_per_entry_small: float
    us_per_entry_large: float

    @classmethod
    def between(cls, small: Contender, large: Contender) -> Growth:
        """From memdiag's runs on both."""
        num_small, num_large = num_events(small), num_events(large)
        return cls(
            num_large / num_small,
            large.median / small.median,
            large.peak_bytes / small.peak_bytes,
            small.median / num_small * 1e6,
            large.median / num_large * 1e6,
        )

    @property
    def linear(self) -> bool:
        """True if the time per entry is about the same for the large and the small input."""
        return self.us_per_entry_large <= LINEAR * self.us_per_entry_small

    def sentence(self) -> str:
        """All of it, for a report."""
        return (
            f"{self.entries_ratio:.1f} times the entries take memdiag {self.time_ratio:.1f} times as long "
            f"({self.us_per_entry_small:.2f} and {self.us_per_entry_large:.2f} us an entry, start-up included) and "
            f"{self.peak_memory_ratio:.1f} times the memory: {'linear' if self.linear else 'NOT linear'} "
            f"(at most {LINEAR} times the time an entry)."
        )


def describe(snapshot: Path, memdiag: Contender, runs: int) -> str:
    """Names the snapshot and the number of runs."""
    return (
        f"{num_events(memdiag):,} trace entries, {snapshot.stat().st_size / MB:.0f} MB; {runs} runs each, whole "
        "processes, in turns"
    )


def times_table(runners: list[Contender]) -> str:
    """Times and memory of every contender."""
    rows = [
        [c.name, f"{c.best:.2f}", f"{c.median:.2f}", f"{max(c.walls):.2f}", f"{c.peak_bytes / MB:.0f}"] for c in runners
    ]
    return markdown_table(["", "best s", "median s", "worst s", "peak MB"], rows)


def ratio_table(found: list[Ratio]) -> str:
    """All ratios, with their targets."""
    rows = [[f"memdiag / {r.over}: {r.what}", f"{r.ratio:.2f}", str(r.target or ""), r.verdict] for r in found]
    return markdown_table(["", "ratio", "at most", ""], rows)


NOTES = """\
One run of each, not counted, comes first: it warms the page cache, and memdiag's compiled code, which is built once per
installation. `bare` is a restricted pickle.load and nothing else, garbage collector on; of its time {load:.2f} s is \
the load alone,
the rest is starting Python and freeing the objects. pt-snap imports into its database, ptmem prints its summary \
(`-s`); their caches
are removed before each run. Mosaic's peak analysis is not on PyPI and was not measured.{missing}
"""


def main() -> None:
    """Measures and writes the report."""
    args = arguments()
    here = Machine.here()
    snapshot = args.snapshot.absolute()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        runners = contenders(snapshot, args, scratch)
        measure(runners, args.runs, scratch)
        memdiag, bare = runners[:2]
        found = ratios(memdiag, runners[1:])
        option = " --before CHECKOUT" if args.before else ""
        missing = "" if args.pt_snap and args.ptmem else " Not every peer was measured in this run."
        text = (
            f"# memdiag analyze, measured\n\nMade by bench/analyze.py{option}: "
            f"{describe(snapshot, memdiag, args.runs)}.\n\n"
        )
        text += NOTES.format(load=float(bare.output), missing=missing)
        text += f"\n{times_table(runners)}\n{ratio_table(found)}"
        data: dict[str, object] = {
            "machine": asdict(here),
            "entries": num_events(memdiag),
            "file_bytes": snapshot.stat().st_size,
            "contenders": [runner.as_dict() for runner in runners],
            "bare_load_alone_s": float(bare.output),
            "ratios": [asdict(ratio) for ratio in found],
        }
        if args.big:
            big = args.big.absolute()
            alone = argparse.Namespace(**{**vars(args), "pt_snap": None, "ptmem": None})
            large = contenders(big, alone, scratch)
            measure(large, args.big_runs, scratch)
            growth = Growth.between(memdiag, large[0])
            text += (
                f"\n## With a larger input\n\n{describe(big, large[0], args.big_runs)}.\n\n{times_table(large)}\n"
                f"{growth.sentence()}\n"
            )
            data["big"] = {
                "entries": num_events(large[0]),
                "file_bytes": big.stat().st_size,
                "contenders": [runner.as_dict() for runner in large],
                "growth": {**asdict(growth), "linear": growth.linear},
            }
        text += f"\n{here.sentence()}\n"
        write_report(args.output, text, data)
        print(text)


if __name__ == "__main__":
    main()
