"""Every row that torch's own CUDA allocator left on another stand-in, from the phantom CUDA device: place, bytes and failure of each call.

    python -m tests.phantom.cuda_rows --python VENV/bin/python [--settings 10] [--json]

The rows (../shared/data/oracle) are of torch 2.13: 39 programs of allocations under 10 settings each. Of a version with
other rules the same calls are held against the machine's replay under those rules, up to where it says that the
allocator itself stops; settings that the version does not know are left out. One process imports torch and forks for
each program.
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
UNKNOWN = "not from Python"  # what replay_cuda.py says of what this version has in C++ only
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
    """What came of one program under one setting.

    Attributes:
        program, conf: Which; of the setting, what the version knows.
        num_calls, num_failures: How many calls were compared, and how many of them fail for lack of memory.
        differs: What is not as it should be, with the first call where; empty: nothing.
        said: Why there is nothing to compare; empty: there is.
    """

    program: str
    conf: str
    num_calls: int = 0
    num_failures: int = 0
    differs: tuple[str, ...] = ()
    said: str = ""


def known(conf: str, version: str) -> str:
    """The part of a settings text that a version of torch knows."""
    kept: list[str] = []
    for part in re.findall(r"\w+:(?:\[[^\]]*\]|[^,\[]+)", conf):
        with suppress(MemdiagError):
            Conf.parse(",".join([*kept, part]), "cuda", version)
            kept.append(part)
    return ",".join(kept)


def expected(recorded, setting: int, conf: str, version: str) -> dict[str, np.ndarray]:
    """What the allocator of a version is to do, call by call, up to where it stops."""
    if rules_for("cuda", version) == rules_for("cuda", RECORDED) and conf == str(recorded["confs"][setting]):
        counts = {name: np.cumsum(recorded[f"{setting}/{name}"]) for name in FIELDS}
        return {"status": recorded[f"{setting}/status"], **counts}
    work = workload_of(recorded)
    found = replay(work, "caching", conf=conf, torch_version=version, capacity=work.capacity_bytes)
    stops = np.flatnonzero(found.status == UNDEFINED)
    end = int(stops[0]) if len(stops) else len(work.op)
    return {name: np.asarray(getattr(found, name))[:end] for name in ("status", *FIELDS)}


def differences(found, wanted: dict[str, np.ndarray]) -> list[str]:
    """What differs, with the first call where; of counters that a version does not have, nothing."""
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
    """The phantom CUDA device of a Python, asked for one program under one setting after the other; to be closed."""

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
        """Runs one program."""
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
        end = min(end, len(found["status"]))  # a version may lack what the last calls need
        wanted = {name: column[:end] for name, column in wanted.items()}
        num_failures = int((wanted["status"] == OUT_OF_MEMORY).sum())
        return Result(path.stem, conf, end, num_failures, tuple(differences(found, wanted)))

    def close(self) -> None:
        """Ends the process."""
        self._worker.communicate()
        self._folder.cleanup()


def some(num_settings: int) -> Iterator[tuple[Path, int]]:
    """So many of the settings of each program, others for each."""
    for at, path in enumerate(FILES):
        for k in range(num_settings):
            yield path, (at + k) % NUM_SETTINGS


def report(found: Sequence[Result]) -> str:
    """How much came out, in a line."""
    known = [result for result in found if UNKNOWN not in result.said]
    failing = sum(bool(result.said or result.differs) for result in known)
    calls, failures = (sum(getattr(result, name) for result in known) for name in ("num_calls", "num_failures"))
    text = f"{len(known) - failing} of {len(known)} come out, {calls:,} calls, {failures:,} of which fail; failing: {failing}"
    return text + (f"; of {len(found) - len(known)} more, calls cannot be made" if len(known) < len(found) else "")


def main() -> None:
    """Prints what does not come out, and how many do; the exit status is 1 where any does not."""
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
