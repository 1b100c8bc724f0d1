"""Compares PyTorch's allocator on the simulated CUDA device with recorded rows: address, bytes, failure of each call.

    python -m tests.phantom.cuda_rows --python VENV/bin/python [--settings 10] [--json]

The rows (../shared/data/oracle) were recorded with torch 2.13 and an independent driver stub: 39 allocation programs
under 10 settings each. If another torch version has different allocator rules, its calls are compared with a replay
under those rules, up to the call where the allocator itself stops. Settings that the version does not support are
skipped. One process imports torch and forks once per program.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from memdiag.allocator.replay import replay
from memdiag.allocator.result import UNDEFINED
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import rules_for
from memdiag.errors import MemdiagError
from memdiag.phantom import launch
from memdiag.phantom.installed import installed_for
from memdiag.phantom.profiles import choose
from tests.allocator.recorded_rows import workload_of

ROWS = Path(__file__).parents[3] / "shared/data/oracle"
FILES = sorted(ROWS.glob("*.npz"))
NUM_SETTINGS = 10
PROGRAM = Path(__file__).parent / "programs" / "replay_cuda.py"
RECORDED = "2.13"
OUT_OF_MEMORY = 1
UNKNOWN = "not from Python"  # replay_cuda.py prints this for calls that this version offers only in C++
FIELDS = (
    "seg",
    "off",
    "reserved",
    "allocated",
    "active",
    "requested",
    "retries",
    "ooms",
    "device_allocs",
    "device_frees",
)


@dataclass(frozen=True)
class Result:
    """The result of one program under one setting.

    Attributes:
        program, conf: Name of the program, and the part of the setting that the version supports.
        num_calls, num_failures: Number of compared calls, and how many of them are out-of-memory errors.
        differs: Fields that differ, each with its first differing call; empty if all are equal.
        said: Why the comparison was not possible; empty if it was.
    """

    program: str
    conf: str
    num_calls: int = 0
    num_failures: int = 0
    differs: tuple[str, ...] = ()
    said: str = ""


def known(conf: str, version: str) -> str:
    """Returns the part of an allocator configuration that a version of torch supports."""
    kept: list[str] = []
    for part in re.findall(r"\w+:(?:\[[^\]]*\]|[^,\[]+)", conf):
        with suppress(MemdiagError):
            Conf.parse(",".join([*kept, part]), "cuda", version)
            kept.append(part)
    return ",".join(kept)


def expected(recorded, setting: int, conf: str, version: str) -> dict[str, np.ndarray]:
    """Returns the expected fields of every call, up to the call where the allocator itself stops."""
    if rules_for("cuda", version) == rules_for("cuda", RECORDED) and conf == str(recorded["confs"][setting]):
        counts = {name: np.cumsum(recorded[f"{setting}/{name}"]) for name in FIELDS}
        return {"status": recorded[f"{setting}/status"], **counts}
    work = workload_of(recorded)
    found = replay(work, "caching", conf=conf, torch_version=version, capacity=work.capacity_bytes)
    stops = np.flatnonzero(found.status == UNDEFINED)
    end = int(stops[0]) if len(stops) else len(work.op)
    return {name: np.asarray(getattr(found, name))[:end] for name in ("status", *FIELDS)}


def differences(found, wanted: dict[str, np.ndarray]) -> list[str]:
    """Returns the fields that differ, each with its first differing call; skips counters that the version lacks."""
    wrong = []
    for name, should in wanted.items():
        seen, column = np.asarray(found[name])[: len(should)], np.asarray(should)
        if name.startswith("device_") and (seen < 0).all():
            continue
        where = np.flatnonzero(seen != column)
        if len(where):
            wrong.append(f"{name} in {len(where)} calls, first {where[0]}: {seen[where[0]]} and not {column[where[0]]}")
    return wrong


class Rows:
    """A worker process on the simulated CUDA device that runs one program under one setting at a time."""

    def __init__(self, python: str):
        installed = installed_for([python], os.environ)
        self.version = installed.version_of("torch")
        self._folder = tempfile.TemporaryDirectory()
        self._said = Path(self._folder.name, "said")
        base = {key: value for key, value in os.environ.items() if not key.startswith("PYTORCH_")}
        environment = launch.environment_for(choose("cuda:h100-80g,context=0"), [python], base)
        with self._said.open("w", encoding="utf-8") as errors:
            self._worker = subprocess.Popen(
                [python, str(PROGRAM)],
                env=environment,
                cwd=self._folder.name,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def of(self, path: Path, setting: int) -> Result:
        """Runs one program under one setting and returns the comparison."""
        recorded = np.load(path)
        conf = known(str(recorded["confs"][setting]), self.version)
        wanted = expected(recorded, setting, conf, self.version)
        end = len(wanted["status"])
        given, out = Path(self._folder.name, "given.npz"), Path(self._folder.name, "out.npz")
        np.savez(given, ops=recorded["ops"], **{name: recorded[name][:end] for name in ("op", "id", "size", "stream")})
        environment = {
            "PYTORCH_CUDA_ALLOC_CONF": conf,
            "MEMDIAG_PHANTOM_TOTAL_BYTES": str(int(recorded["total"])),
            "MEMDIAG_PHANTOM_EVENTS": str(recorded["done"]),
        }
        print(
            json.dumps({"given": str(given), "out": str(out), "environment": environment}),
            file=self._worker.stdin,
            flush=True,
        )
        status = int(self._worker.stdout.readline() or -1)
        if status:
            said = self._said.read_text(encoding="utf-8").strip()
            return Result(
                path.stem, conf, said=f"exit status {status}: {said.splitlines()[-1] if said else 'nothing was said'}"
            )
        found = np.load(out)
        end = min(end, len(found["status"]))  # a version may lack functions that the last calls need
        wanted = {name: column[:end] for name, column in wanted.items()}
        num_failures = int((wanted["status"] == OUT_OF_MEMORY).sum())
        return Result(path.stem, conf, end, num_failures, tuple(differences(found, wanted)))

    def close(self) -> None:
        """Ends the worker process."""
        self._worker.communicate()
        self._folder.cleanup()


def some(num_settings: int) -> Iterator[tuple[Path, int]]:
    """Yields ``num_settings`` settings for each program, starting at a different setting for each."""
    for at, path in enumerate(FILES):
        for k in range(num_settings):
            yield path, (at + k) % NUM_SETTINGS


def report(found: Sequence[Result]) -> str:
    """Returns a one-line summary of the results."""
    known = [result for result in found if UNKNOWN not in result.said]
    failing = sum(bool(result.said or result.differs) for result in known)
    calls, failures = (sum(getattr(result, name) for result in known) for name in ("num_calls", "num_failures"))
    text = (
        f"{len(known) - failing} of {len(known)} come out, {calls:,} calls, {failures:,} of which fail; failing: "
        f"{failing}"
    )
    return text + (f"; of {len(found) - len(known)} more, calls cannot be made" if len(known) < len(found) else "")


def main() -> None:
    """Prints the results that differ and a summary; exits with status 1 if any result differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", required=True)
    parser.add_argument("--settings", type=int, default=NUM_SETTINGS, help="so many of each program's ten")
    parser.add_argument("--json", action="store_true", help="every result on a line of its own")
    given = parser.parse_args()
    if not FILES:
        sys.exit("the recorded rows (../shared/data/oracle) are not here")
    rows, found = Rows(given.python), []
    for path, setting in some(given.settings):
        found.append(result := rows.of(path, setting))
        if given.json:
            print(json.dumps(asdict(result)), flush=True)
        elif result.said or result.differs:
            print(
                f"{result.program}, {result.conf or 'default settings'}: {result.said or '; '.join(result.differs)}",
                flush=True,
            )
    rows.close()
    print(report(found), file=sys.stderr)
    sys.exit(any(result.differs or (result.said and UNKNOWN not in result.said) for result in found))


if __name__ == "__main__":
    main()
