"""Measures wall time and peak memory of whole processes in turns, so that a busy moment affects all alike.

Peak memory is ru_maxrss of the child as wait4 gives it (the largest resident set of the process or of one it waited
for). On Linux a child also counts what its parent held when it was made, so this module imports little.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

# No measured program starts another one in the background; the run that warms the caches waits for the compiler.
os.environ.setdefault("MEMDIAG_COMPILE", "now")

MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass
class Contender:
    """One command to measure.

    Attributes:
        name: Short name for tables.
        command: Program and arguments.
        cwd: Where it runs; None: here.
        env: Its environment; None: ours.
        prepare: Called before each run, outside of the measured time (removes a cache of the run before).
        walls: Seconds of each run.
        cpus: Seconds of processor time of each run: what a busy machine lengthens less.
        peaks: Peak resident bytes of each run.
        output: What the last run printed to stdout.
    """

    name: str
    command: Sequence[str]
    cwd: Path | None = None
    env: dict[str, str] | None = None
    prepare: Callable[[], None] = lambda: None
    walls: list[float] = field(default_factory=list)
    cpus: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)
    output: str = ""

    @property
    def best(self) -> float:
        """Seconds of the fastest run."""
        return min(self.walls)

    @property
    def best_cpu(self) -> float:
        """Seconds of processor time of the run that took least."""
        return min(self.cpus)

    @property
    def median(self) -> float:
        """Seconds of the middle run."""
        return median(self.walls)

    @property
    def peak_bytes(self) -> int:
        """Median over the runs of the peak resident bytes."""
        return int(median(self.peaks))

    def run(self, scratch: Path, *, keep: bool = True) -> None:
        """Runs once; with ``keep`` the result counts.

        Args:
            scratch: A folder for what the command prints.
            keep: False for a first run that warms caches.

        Raises:
            SystemExit: The command failed: a number from it would mean nothing.
        """
        self.prepare()
        out, err = scratch / "stdout", scratch / "stderr"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            begin = time.perf_counter()
            child = subprocess.Popen(
                self.command, cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )
            _, status, usage = os.wait4(child.pid, 0)
            wall = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            tail = err.read_text(errors="replace")[-2000:] + out.read_text(errors="replace")[-500:]
            raise SystemExit(f"{self.name}: exit status {child.returncode}: {' '.join(self.command)}\n{tail}")
        self.output = out.read_text(errors="replace")
        if keep:
            self.walls.append(wall)
            self.cpus.append(usage.ru_utime + usage.ru_stime)
            self.peaks.append(usage.ru_maxrss * MAXRSS_UNIT)

    def as_dict(self) -> dict[str, object]:
        """The numbers, for JSON."""
        return {
            "name": self.name,
            "runs": len(self.walls),
            "best_s": round(self.best, 4),
            "median_s": round(self.median, 4),
            "worst_s": round(max(self.walls), 4),
            "best_cpu_s": round(self.best_cpu, 4),
            "peak_bytes": self.peak_bytes,
        }


def measure(contenders: Sequence[Contender], runs: int, scratch: Path) -> None:
    """Runs every contender once unmeasured, then ``runs`` times, one after another in turns.

    Progress goes to stderr.
    """
    for contender in contenders:
        print(f"warming up: {contender.name}", file=sys.stderr)
        contender.run(scratch, keep=False)
    for number in range(1, runs + 1):
        for contender in contenders:
            contender.run(scratch)
            print(f"run {number} of {runs}: {contender.name} {contender.walls[-1]:.2f} s", file=sys.stderr)


@dataclass(frozen=True)
class Machine:
    """What the numbers depend on: processor, cores, system, versions, load. No names and no paths."""

    processor: str
    cores: int
    system: str
    python: str
    packages: dict[str, str]
    load_before: float

    @classmethod
    def here(cls) -> Machine:
        """This machine, now."""
        model = platform.processor() or platform.machine()
        info = Path("/proc/cpuinfo")
        if info.exists():
            lines = (line for line in info.read_text().splitlines() if line.startswith("model name"))
            model = next(lines, model).rpartition(":")[2].strip()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        packages = {name: package_version(name) for name in ("memdiag", "numpy", "numba", "typer", "rich")}
        return cls(model, cores, platform.system(), platform.python_version(), packages, os.getloadavg()[0])

    def sentence(self) -> str:
        """All of it, for a report; with the load now."""
        versions = ", ".join(f"{name} {number}" for name, number in self.packages.items())
        return (
            f"{self.processor}, {self.cores} cores, {self.system}, Python {self.python}, {versions}; load average "
            f"{self.load_before:.2f} before, {os.getloadavg()[0]:.2f} after (of which 1 is the measured program "
            "itself)."
        )


def package_version(name: str) -> str:
    """The installed version of a package, or "not installed"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table; all columns but the first are aligned right."""
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows)) + "\n"


def write_report(stem: Path, text: str, data: dict[str, object]) -> None:
    """Writes ``stem``.md and ``stem``.json."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".md").write_text(text, encoding="utf-8")
    stem.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {stem}.md and {stem}.json", file=sys.stderr)
