"""Compares torch_npu's allocator on the simulated NPU with recorded rows: address, bytes and failure of each call.

    python -m tests.phantom.npu_rows [--python VENV/bin/python] [--json]

The rows (../shared/data/oracle-npu) were recorded with torch_npu 2.13 and an independent driver stub: 14 allocation
programs under 9 settings each. Settings that another torch_npu version does not support are counted separately, and its
rows may differ where its allocator rules do. One process per device size imports torch_npu and forks once per program.
A full run takes minutes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from memdiag.phantom import launch
from memdiag.phantom.profiles import choose

ROOT = Path(__file__).parents[2]
ROWS = ROOT.parent / "shared/data/oracle-npu"
FILES = sorted(ROWS.glob("*.npz"))
NUM_SETTINGS = 9
PROGRAM = Path(__file__).parent / "programs" / "replay.py"
UNKNOWN = ("Unrecognized CachingAllocator option", "Unrecognized key")  # before 2.10, and since 2.10


@dataclass(frozen=True)
class Result:
    """The result of one program under one setting.

    Attributes:
        program, conf: Name of the program, and the setting.
        num_calls, num_failures: Number of calls, and how many of them were out-of-memory errors in the recording.
        differs: Columns that differ ("oom", "addr", "reserved", "allocated"), each with its first differing call;
            empty if all are equal.
        said: Why the comparison was not possible; empty if it was.
    """

    program: str
    conf: str
    num_calls: int
    num_failures: int
    differs: tuple[str, ...] = ()
    said: str = ""

    @property
    def is_unknown(self) -> bool:
        """Returns whether this version of torch_npu rejected the setting as unknown."""
        return any(words in self.said for words in UNKNOWN)


def device_of(path: Path) -> str:
    """Returns the simulated device that has the memory of the recorded one."""
    return f"npu:910b-64g,total={int(np.load(path)['total'])},context=0"


def differences(path: Path, setting: int, rows: np.ndarray) -> list[str]:
    """Returns the columns in which the rows of replay.py differ from the recording, each with its first such call."""
    expected = np.load(path)
    failed, address, reserved, allocated = rows.T
    lowest = address[address >= 0].min(initial=np.iinfo(np.int64).max)
    used = expected["op"] == 0
    columns = {
        "oom": failed,
        "addr": np.where(address >= 0, address - lowest, -1),
        "reserved": reserved,
        "allocated": allocated,
    }
    wrong = []
    for name, found in columns.items():
        recorded = expected[f"{setting}/{name}"]
        # Counters were recorded only after some of the calls.
        counts = {"oom": np.ones(len(found), bool), "addr": used}.get(name, recorded >= 0)
        where = np.flatnonzero(counts & (found != recorded))
        if len(where):
            wrong.append(f"{name} in {len(where)} calls, first {where[0]}")
    return wrong


def results(python: str, only: str = "") -> Iterator[Result]:
    """Runs every program whose name contains ``only`` under every recorded setting on the simulated NPU.

    Args:
        python: A Python with torch_npu.
        only: Part of the names of the programs to run.

    Yields:
        One result per program and setting.
    """
    with tempfile.TemporaryDirectory() as scratch:
        for device, paths in groupby(sorted((path for path in FILES if only in path.stem), key=device_of), device_of):
            environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTORCH_")}
            environment = launch.environment_for(choose(device), [python], environment)
            said = Path(scratch, "said")
            with said.open("w", encoding="utf-8") as into, said.open(encoding="utf-8") as errors:
                command = [python, str(PROGRAM)]
                worker = subprocess.Popen(
                    command,
                    env=environment,
                    cwd=scratch,
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=into,
                )
                for path in paths:
                    yield from _of_program(worker, path, Path(scratch), errors)
                worker.communicate()


def _of_program(worker, path, scratch, errors):
    expected = np.load(path)
    given, out = scratch / "given.npz", scratch / "out.npz"
    np.savez(given, **{name: expected[name] for name in ("op", "id", "size")})
    for setting, conf in enumerate(expected["confs"].tolist()):
        if f"{setting}/oom" not in expected:
            continue
        print(json.dumps({"given": str(given), "out": str(out), "conf": conf}), file=worker.stdin, flush=True)
        status = int(worker.stdout.readline() or -1)
        facts = path.stem, conf, len(expected["op"]), int(expected[f"{setting}/oom"].sum())
        said = errors.read().strip()
        if status:
            why = next(
                (line for line in said.splitlines() if any(words in line for words in UNKNOWN)),
                f"exit status {status}: {said[-200:]}",
            )
            yield Result(*facts, said=why)
        else:
            yield Result(*facts, differs=tuple(differences(path, setting, np.load(out)["rows"])))
            out.unlink()


def summary(found: Sequence[Result]) -> str:
    """Returns a one-line summary of the results."""
    known = [result for result in found if not result.is_unknown]
    good = sum(not result.differs and not result.said for result in known)
    calls, ooms = (sum(getattr(result, name) for result in known) for name in ("num_calls", "num_failures"))
    text = f"{good} of {len(known)} come out ({calls:,} calls, {ooms:,} of which fail), failing: {len(known) - good}"
    others = len(found) - len(known)
    return f"{text}; of {others} more, this version does not know a setting" if others else text


def main() -> None:
    """Prints the results that differ and a summary; exits with status 1 if any result differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default=str(ROOT / ".venv-npu/bin/python"))
    parser.add_argument("--only", default="", help="programs whose name holds this")
    parser.add_argument("--json", action="store_true", help="every result on a line of its own")
    given = parser.parse_args()
    if not FILES:
        sys.exit("the recorded rows (../shared/data/oracle-npu) are not here")
    found = []
    for result in results(given.python, given.only):
        found.append(result)
        if given.json:
            print(json.dumps(asdict(result)), flush=True)
        elif result.said or result.differs:
            print(
                f"{result.program}, {result.conf or 'default settings'}: {result.said or '; '.join(result.differs)}",
                flush=True,
            )
    print(summary(found), file=sys.stderr)
    sys.exit(any(result.differs or (result.said and not result.is_unknown) for result in found))


if __name__ == "__main__":
    main()
