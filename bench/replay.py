"""Times the replay engine against PyTorch's own allocator on the same calls, its starts, and ``memdiag tune``.

    python bench/replay.py --real DIR TRACE… [--conf ''] [--rounds 7] [--before CHECKOUT]

DIR: a folder with ``bin/oracle_native``, PyTorch's CUDACachingAllocator on a simulated device whose driver does almost
nothing (see tests/allocator/real_cuda.py). TRACE: .npz files of plain events, or recordings. Both sides get the
allocations, frees and calls of empty_cache of a trace, and nothing else. ``replay()`` is timed whole: rounding, the
engine, the columns of results; the times of imports and compiling are listed separately. CHECKOUT: another checkout of
memdiag, whose replays are timed in the same rounds; starts and ``memdiag tune`` are then not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from measuring import Contender, Machine, markdown_table, measure, write_report

from memdiag.allocator.calibration.from_trace import workload_of
from memdiag.allocator.replay import replay
from memdiag.allocator.workload import ALLOC, EMPTY_CACHE, FREE, FREE_REQUESTED, Workload
from memdiag.cli.loading import read_trace
from memdiag.units import GIB

TARGET, START_TARGET = 1.5, 1.5
TUNED_SETTINGS, TUNE_TARGET = 200, 250  # so many settings within so many replays
ROOT = Path(__file__).parents[1]
CALL = np.dtype([("op", "<i4"), ("stream", "<i4"), ("id", "<i8"), ("size", "<i8")])
REAL_OPS = {ALLOC: 0, FREE: 1, EMPTY_CACHE: 2}


@dataclass
class Race:
    """One trace on both sides: seconds of every round."""

    name: str
    conf: str
    num_calls: int
    real: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """How many times as fast as the real one, best against best."""
        return min(self.real) / min(self.ours)

    @property
    def ratio_before(self) -> float:
        """The ratio of the other checkout."""
        return min(self.real) / min(self.before)

    @property
    def worst_ratio(self) -> float:
        """The same for the round that was worst for us."""
        return min(real / ours for real, ours in zip(self.real, self.ours, strict=True))


def plain(path: Path) -> Workload:
    """The calls of a trace that both sides understand, from an empty allocator on."""
    trace = read_trace(path)
    work = workload_of(trace, max(trace.devices, key=lambda device: device.num_events))
    op = np.where(work.op == FREE_REQUESTED, FREE, work.op).astype(np.int8)
    made = np.zeros(work.num_tensors + 1, bool)
    made[work.tensor[(op == ALLOC) & (work.size > 0)]] = True
    rows = np.flatnonzero(((op == ALLOC) & (work.size > 0)) | ((op == FREE) & made[work.tensor]) | (op == EMPTY_CACHE))
    count = len(rows)
    return Workload(
        op=op[rows],
        tensor=work.tensor[rows],
        size=work.size[rows],
        stream=work.stream[rows],
        pool=np.full(count, -1, np.int32),
        row=np.arange(count),
        num_rows=count,
        num_tensors=work.num_tensors,
        streams=work.streams,
        done="now",
    )


def real_seconds(folder: Path, work: Workload, conf: str, total: int) -> float:
    """One run of the real allocator over the calls, from an empty cache: its own clock around its own loop."""
    calls = np.zeros(len(work.op), CALL)
    calls["op"] = [REAL_OPS[op] for op in work.op.tolist()]
    calls["id"], calls["size"], calls["stream"] = work.tensor, work.size, np.maximum(work.stream, 0)
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTORCH_") and key != "LD_PRELOAD"}
    env |= {
        "FAKE_CUDA_TOTAL_BYTES": str(total),
        "FAKE_CUDA_CONTEXT_BYTES": "0",
        "FAKE_CUDA_ADDR": "bump",
        "FAKE_CUDA_EVENTS": "now",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    } | ({"PYTORCH_CUDA_ALLOC_CONF": conf} if conf else {})
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        calls.tofile(file.name)
        done = subprocess.run(
            [folder / "bin/oracle_native", file.name, "--bench", "1"],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
    runs = json.loads(done.stdout)["bench"]
    return next(float(run["seconds"]) for run in runs if run["cache"] == "empty")


_TIMES_REPLAYS = """
import json, pathlib, sys, time
sys.path.insert(0, "bench")
import replay as bench
works = {}
for line in sys.stdin:
    path, conf, total = json.loads(line)
    work = works.get(path) or works.setdefault(path, bench.plain(pathlib.Path(path)))
    begin = time.perf_counter()
    bench.replay(work, "caching", conf=conf, capacity=total)
    print(time.perf_counter() - begin, flush=True)
"""


class OtherCheckout:
    """A process that runs the replays of another checkout of memdiag."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _TIMES_REPLAYS],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, path: Path, conf: str, total: int) -> float:
        """Returns how long one replay takes there."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the process has no pipes")
        print(json.dumps([str(path.resolve()), conf, total]), file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def end(self) -> None:
        """Ends the process."""
        self._process.communicate()


def race(
    folder: Path, traces: list[Path], confs: list[str], total: int, rounds: int, before: OtherCheckout | None
) -> list[Race]:
    """All sides in turns, trace by trace, round by round."""
    works = {path: plain(path) for path in traces}
    races = [Race(path.stem, conf, len(works[path].op)) for path in traces for conf in confs]
    for number in range(rounds):
        for one, (path, conf) in zip(races, [(path, conf) for path in traces for conf in confs], strict=True):
            one.real.append(real_seconds(folder, works[path], conf, total))
            begin = time.perf_counter()
            replay(works[path], "caching", conf=conf, capacity=total)
            one.ours.append(time.perf_counter() - begin)
            if before is not None:
                one.before.append(before.seconds(path, conf, total))
            print(
                f"round {number + 1}: {one.name} {conf!r} real {one.real[-1]:.3f} s, replay {one.ours[-1]:.3f} s",
                file=sys.stderr,
            )
    return races


def compared(races: list[Race]) -> str:
    """What the other checkout took; "": there was none."""
    if not races[0].before:
        return ""
    rows = [
        [
            f"{one.name}, {one.conf or 'defaults'}",
            f"{one.ratio_before:.2f}",
            f"{one.ratio:.2f}",
            f"{min(one.ours) / min(one.before):.2f}",
        ]
        for one in races
    ]
    whole = sum(min(one.ours) for one in races) / sum(min(one.before) for one in races)
    return f"""
The same rounds also timed another checkout of memdiag. The last column is the time of the best round here, divided by
that of the best round there.

{markdown_table(["trace and settings", "ratio of the other checkout", "ratio", "time, compared"], rows)}
Over all rows, the time is {whole:.2f} times that of the other checkout.
"""


def starts(runs: int) -> tuple[float, list[Contender]]:
    """Returns the seconds of the first replay, with compiling, and the times of later processes and bare imports."""
    code = (
        "import numpy as np; from memdiag.allocator.replay import replay; from memdiag.allocator.workload import "
        "Workload; z = np.zeros(1, np.int64); replay(Workload(op=np.ones(1, np.int8), tensor=z.astype('int32'), size=z "
        "+ 1, stream=z.astype('int32'), pool=z.astype('int32'), row=z, num_rows=1, num_tensors=1, "
        "streams=z.astype('uint64')), 'caching')"
    )
    with tempfile.TemporaryDirectory() as scratch:
        env = {**os.environ, "NUMBA_CACHE_DIR": str(Path(scratch, "cache"))}
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], env=env, check=True)
        first = time.perf_counter() - begin
        contenders = [
            Contender(
                "python -c 'import numba, numpy, typer'", [sys.executable, "-c", "import numba, numpy, typer"], env=env
            ),
            Contender("python -c 'import memdiag…; replay(one call)'", [sys.executable, "-c", code], env=env),
        ]
        measure(contenders, runs, Path(scratch))
    return first, contenders


def tuned(path: Path) -> tuple[int, float, float]:
    """Returns the number of settings that ``memdiag tune`` tried, its seconds on all cores, and those of one replay."""
    trace = read_trace(path)
    work = workload_of(trace, max(trace.devices, key=lambda device: device.num_events))
    once = []
    for _ in range(5):
        begin = time.perf_counter()
        replay(work, "caching", capacity=work.capacity_bytes)
        once.append(time.perf_counter() - begin)
    command = [
        sys.executable,
        "-c",
        "from memdiag.cli.main import main; main()",
        "tune",
        path,
        "--json",
        "--budget-seconds",
        "600",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    search = json.loads(done.stdout)["search"]
    return int(search["num_settings"]), float(search["seconds"]), min(once)


def of_races(races: list[Race], here: Machine, rounds: int) -> str:
    """The part of the report on replays."""
    rows = [
        [
            f"{one.name}, {one.conf or 'defaults'}",
            f"{one.num_calls:,}",
            f"{one.num_calls / min(one.real) / 1e6:.2f}",
            f"{one.num_calls / min(one.ours) / 1e6:.2f}",
            f"{one.ratio:.2f}",
            f"{one.worst_ratio:.2f}",
        ]
        for one in races
    ]
    met = "met" if min(one.ratio for one in races) >= TARGET else "MISSED"
    option = " --before CHECKOUT" if races[0].before else ""
    return f"""# Speed of a replay

Made by `python bench/replay.py --real DIR{option} TRACE…`. {here.sentence()}

The same calls through PyTorch's own CUDACachingAllocator (torch 2.13, on a stand-in driver that only counts) and
through `replay()`, in turns, {rounds} rounds, one thread each. The table shows millions of calls per second in the best
round of each. The ratio compares the best rounds, and the last column is the ratio of the worst round for the replay.
The time of the real allocator covers its loop only; the time of the replay covers all of `replay()`. Imports and
compilation are excluded.

{markdown_table(["trace and settings", "calls", "real, M/s", "replay, M/s", "ratio", "worst round"], rows)}
Target: {TARGET} times the real one on every trace: {met}.
{compared(races)}"""


def of_starts_and_tune(rounds: int, trace: Path) -> tuple[str, dict[str, object]]:
    """The part of the report on starts and on ``memdiag tune``, and its numbers."""
    first, contenders = starts(rounds)
    num_tried, tune_s, once_s = tuned(trace)
    tune_ratio = tune_s / num_tried * TUNED_SETTINGS / once_s
    fast, started = contenders
    start = started.best_cpu / fast.best_cpu
    text = f"""
The first replay, which compiles the code and caches it on disk, takes {first:.1f} s. A later process, with its imports
and one replay: {started.best:.2f} s, of which {started.best_cpu:.2f} s of processor time; `import numba, numpy, typer`
alone: {fast.best:.2f} s, {fast.best_cpu:.2f} s of processor time. Ratio of processor time {start:.2f}, target
{START_TARGET}: {"met" if start <= START_TARGET else "MISSED"}.

`memdiag tune` on the first trace: {num_tried} settings in {tune_s:.1f} s, one replay of it takes {once_s:.3f} s.
{TUNED_SETTINGS} settings at this rate take {tune_ratio:.0f} times as long as one replay, target {TUNE_TARGET}:
{"met" if tune_ratio <= TUNE_TARGET else "MISSED"}.
"""
    return text, {
        "first_s": first,
        "tune": {"num_settings": num_tried, "seconds": tune_s, "replay_s": once_s, "ratio": tune_ratio},
        "starts": [contender.as_dict() for contender in contenders],
    }


def main() -> None:
    """Measures and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("--real", type=Path, required=True)
    parser.add_argument(
        "--conf", action="append", help="settings, repeatable; default: none, and expandable_segments:True"
    )
    parser.add_argument("--total", type=int, default=80 * GIB, help="bytes of the device (default 80 GiB)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--before", type=Path, help="another checkout of memdiag, timed in the same rounds")
    parser.add_argument("--output", type=Path, default=ROOT / "reports" / "bench-replay", help="report, without suffix")
    args = parser.parse_args()
    here = Machine.here()
    before = OtherCheckout(args.before.resolve()) if args.before else None
    confs = args.conf or ["", "expandable_segments:True"]
    races = race(args.real, args.traces, confs, args.total, args.rounds, before)
    if before is not None:
        before.end()
    text, data = of_races(races, here, args.rounds), {"races": [asdict(one) | {"ratio": one.ratio} for one in races]}
    if before is None:
        more, found = of_starts_and_tune(args.rounds, args.traces[0])
        text, data = text + more, data | found
    write_report(args.output, text, data)


if __name__ == "__main__":
    main()
