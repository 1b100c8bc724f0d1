"""Measures ``memdiag fleet`` from 16 to 1,024 ranks: processor seconds per file, memory, and equal results.

    python bench/fleet_files.py ranks
    python bench/fleet.py ranks

The same files are read by two processes of this machine, by a Ray cluster of two nodes (both here), with processes
killed during the run, and by a command that is interrupted and started again; the reports are compared byte for byte.
Times are also given as processor seconds, because a busy machine changes them less. Memory is the highest resident set
of the command and of the largest of its processes, from /proc.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from measuring import Machine, markdown_table, write_report

BENCH = Path(__file__).parent
MB = 1_000_000
LOOK = 0.1  # seconds between two looks at the processes
WORKERS = 2
# Processor seconds a file with all files over those with the fewest, beyond the start; memory likewise: at most this is
# called flat.
FLAT = 1.25
LEAST_PROCESS = 20 * MB  # of memory, on the way to being one


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what bench/fleet_files.py has made")
    parser.add_argument("--memdiag", type=Path, default=Path(sys.executable).with_name("memdiag"))
    parser.add_argument("--sizes", default="16,64,256,1024")
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument(
        "--output", type=Path, default=BENCH.parent / "reports" / "fleet", help="report, without suffix"
    )
    return parser.parse_args()


@dataclass
class Run:
    """One run of the command.

    Attributes:
        name: What it shows.
        ranks: Files.
        wall, cpu: Seconds; of the processor all its processes together.
        command_bytes, process_bytes: Highest resident set of the command, and of the largest of its processes.
        killed: Processes that were killed on the way.
        code: Exit status of the last attempt.
    """

    name: str
    ranks: int
    wall: float = 0.0
    cpu: float = 0.0
    command_bytes: int = 0
    process_bytes: int = 0
    killed: int = 0
    code: int = 0
    report: str = field(default="", repr=False)

    def as_dict(self) -> dict[str, object]:
        """The numbers, for JSON."""
        return {
            key: round(value, 3) if isinstance(value, float) else value
            for key, value in asdict(self).items()
            if key != "report"
        }


def children_of(pid: int) -> list[int]:
    """Processes that a process has started and that are still there."""
    with contextlib.suppress(OSError):
        return [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]
    return []


def resident(pid: int) -> int:
    """The highest resident set of a process so far, bytes; 0: it is gone."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return 0


def run(
    found: Run, command: list[str], scratch: Path, meanwhile: Callable[[int, Run], None] = lambda _pid, _found: None
) -> Run:
    """Runs the command and measures; ``meanwhile`` is called with its process id again and again."""
    with (scratch / "stdout").open("wb") as stdout, (scratch / "stderr").open("wb") as stderr:
        begin = time.perf_counter()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            found.command_bytes = max(found.command_bytes, resident(child.pid))
            found.process_bytes = max([found.process_bytes, *(resident(each) for each in children_of(child.pid))])
            meanwhile(child.pid, found)
            time.sleep(LOOK)
        found.wall += time.perf_counter() - begin
    found.cpu += usage.ru_utime + usage.ru_stime
    child.returncode = found.code = os.waitstatus_to_exitcode(status)
    found.report = (scratch / "stdout").read_text()
    if found.code not in (0, 130):
        raise SystemExit(f"{found.name}: exit status {found.code}\n{(scratch / 'stderr').read_text()[-2000:]}")
    print(f"{found.name}, {found.ranks} ranks: {found.wall:.1f} s, {found.cpu:.1f} s of the processor", file=sys.stderr)
    return found


def kill_workers(store: Path, at: list[int], victims: Callable[[int], list[int]]) -> Callable[[int, Run], None]:
    """Returns a function that kills a process each time the number of results reaches the next value of ``at``."""
    left = list(at)

    def look(pid: int, found: Run) -> None:
        if left and sum(1 for _ in store.glob("ranks/*.json")) >= left[0]:
            for victim in victims(pid)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    left.pop(0)
                    found.killed += 1

    return look


def large_children(pid: int) -> list[int]:
    """The processes of the local engine that are at work."""
    return [each for each in children_of(pid) if resident(each) > LEAST_PROCESS]


def interrupt(store: Path, at: int) -> Callable[[int, Run], None]:
    """Returns a function that sends SIGINT when ``at`` results have been written."""
    done = [False]

    def look(pid: int, found: Run) -> None:
        if not done[0] and sum(1 for _ in store.glob("ranks/*.json")) >= at:
            os.kill(pid, signal.SIGINT)
            done[0] = True
            found.killed += 1

    return look


@contextlib.contextmanager
def cluster() -> Iterator[str]:
    """Starts a Ray cluster of two nodes with a processor each and gives its address."""
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "600")  # a node is slow to come on a busy machine

    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    try:
        yield nodes.address
    finally:
        nodes.shutdown()
        ray.shutdown()


def ray_workers(_: int) -> list[int]:
    """Returns the processes that read files on the cluster's nodes: the grandchildren of this process."""
    found = []
    for pid in [inner for outer in children_of(os.getpid()) for inner in children_of(outer)]:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::work"):
                found.append(pid)
    return found


def evenly(folder: Path, most: int) -> list[str]:
    """So many files, evenly spread over the ranks: the same mixture as all."""
    files = sorted(folder.glob("rank*.pkl"), key=lambda path: (len(path.name), path.name))
    return [str(files[at * len(files) // most]) for at in range(most)]


def measure_all(args: argparse.Namespace, scratch: Path) -> tuple[list[Run], list[tuple[str, bool]]]:
    """Runs everything; returns the runs, and each comparison of reports with True if they are the same."""
    base = [str(args.memdiag), "fleet", "--json", "--workers", str(WORKERS)]
    sizes = [int(size) for size in args.sizes.split(",")]
    # compiled code is built once per installation
    run(Run("warming up", sizes[0]), [*base, *evenly(args.folder, sizes[0])], scratch)
    runs = [run(Run("local", size), [*base, *evenly(args.folder, size)], scratch) for size in sizes]
    most, reference = sizes[-1], runs[-1].report
    files = evenly(args.folder, most)
    same = []

    store = scratch / "killed"
    third = [most // 4, most // 2, 3 * most // 4]
    killed = run(
        Run("local, processes killed", most),
        [*base, "-o", str(store), *files],
        scratch,
        kill_workers(store, third, large_children),
    )
    same.append((f"{killed.killed} of its processes killed on the way", killed.report == reference))

    store = scratch / "interrupted"
    again = Run("local, interrupted and begun again", most)
    run(again, [*base, "-o", str(store), *files], scratch, interrupt(store, most // 2))
    stopped_with = again.code
    run(again, [*base, "-o", str(store), *files], scratch)
    same.append((f"interrupted half-way (exit status {stopped_with}) and begun again", again.report == reference))
    runs += [killed, again]

    if not args.no_ray:
        with cluster() as address:
            on_ray = [*base, "--engine", "ray", "--address", address]
            for size in (sizes[0], most):
                runs.append(run(Run("Ray, two nodes", size), [*on_ray, *evenly(args.folder, size)], scratch))
            same.append(("read by a Ray cluster of two nodes", runs[-1].report == reference))
            store = scratch / "ray"
            killed = run(
                Run("Ray, processes killed", most),
                [*on_ray, "-o", str(store), *files],
                scratch,
                kill_workers(store, third, ray_workers),
            )
            same.append(
                (f"read by Ray, {killed.killed} of its processes killed on the way", killed.report == reference)
            )
            runs.append(killed)
    return runs, same


def growth(local: list[Run]) -> dict[str, float]:
    """Returns the growth of time per file and of memory from the fewest files to the most, without start-up time."""
    first, second, last = local[0], local[-2], local[-1]
    beyond = lambda one, other: (other.cpu - one.cpu) / (other.ranks - one.ranks)  # noqa: E731 - a slope
    return {
        "cpu_s_a_file_first": round(beyond(first, second), 4),
        "cpu_s_a_file_last": round(beyond(local[-2], last), 4),
        "time_ratio": round(beyond(local[-2], last) / beyond(first, second), 3),
        "process_memory_ratio": round(last.process_bytes / first.process_bytes, 3),
        "command_memory_ratio": round(last.command_bytes / first.command_bytes, 3),
        "command_bytes_a_rank": round((last.command_bytes - first.command_bytes) / (last.ranks - first.ranks)),
    }


NOTES = """\
The files are made by bench/fleet_files.py from examples/gpt-train.pickle (12,771 entries): {ranks:,} different \
ranks, {size:,.0f} MB
in all. Other programs ran on this machine at the same time (load {load:.1f} on {cores} cores), and the command had a \
low priority
(nice {nice}): compare processor seconds, not wall time. The numbers for Ray do not include Ray's own processes.
"""


def in_words(local: list[Run], grown: dict[str, float]) -> str:
    """The growth, for a report."""
    few, some, all_of_them = (f"{each.ranks:,}" for each in (local[0], local[-2], local[-1]))
    time_word, memory_word = (
        "flat" if grown[f"{what}_ratio"] <= FLAT else "NOT flat" for what in ("time", "process_memory")
    )
    return (
        f"From {few} to {some} ranks one more file takes {grown['cpu_s_a_file_first'] * 1000:.0f} ms of the processor, "
        f"from {some} to {all_of_them} {grown['cpu_s_a_file_last'] * 1000:.0f} ms: {grown['time_ratio']:.2f} times as "
        f"long, {time_word}. With {all_of_them} ranks a process that reads files needs "
        f"{grown['process_memory_ratio']:.2f} times the memory that it does with {few}, {memory_word}; the command "
        f"itself, which keeps the facts of all ranks, {grown['command_memory_ratio']:.2f} times "
        f"({grown['command_bytes_a_rank'] / 1000:.0f} kB a rank).\n\n"
    )


def main() -> None:
    """Measures and writes the report."""
    args = arguments()
    # a shell that starts this in the background makes it and its child processes ignore SIGINT
    signal.signal(signal.SIGINT, signal.default_int_handler)
    here = Machine.here()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        runs, same = measure_all(args, scratch)
    local = [each for each in runs if each.name == "local"]
    grown = growth(local)
    size = sum(path.stat().st_size for path in args.folder.glob("rank*.pkl")) / MB
    rows = [
        [
            each.name,
            f"{each.ranks:,}",
            f"{each.wall:.1f}",
            f"{each.wall / each.ranks * 1000:.0f}",
            "" if "Ray" in each.name else f"{each.cpu:.1f}",
            "" if "Ray" in each.name else f"{each.cpu / each.ranks * 1000:.0f}",
            f"{each.command_bytes / MB:.0f}",
            "" if "Ray" in each.name else f"{each.process_bytes / MB:.0f}",
        ]
        for each in runs
    ]
    head = [
        "",
        "ranks",
        "wall s",
        "wall ms a file",
        "processor s",
        "processor ms a file",
        "command MB",
        "largest process MB",
    ]
    text = "# memdiag fleet, measured\n\nMade by bench/fleet.py.\n\n"
    text += NOTES.format(ranks=local[-1].ranks, size=size, load=here.load_before, cores=here.cores, nice=os.nice(0))
    text += f"\n{markdown_table(head, rows)}\n"
    text += in_words(local, grown)
    text += "The report is, byte for byte, that of an undisturbed run:\n\n"
    text += "".join(f"* {what}: {'yes' if is_same else 'NO'}\n" for what, is_same in same)
    text += f"\n{here.sentence()}\n"
    data: dict[str, object] = {
        "machine": asdict(here),
        "files_mb": round(size),
        "runs": [each.as_dict() for each in runs],
        "growth": grown,
        "same": [{"what": what, "same": is_same} for what, is_same in same],
    }
    write_report(args.output, text, data)
    print(text)
    if not all(is_same for _, is_same in same):
        raise SystemExit("results differ")


if __name__ == "__main__":
    main()
