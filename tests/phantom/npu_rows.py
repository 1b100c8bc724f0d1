"""Every row that torch_npu's own allocator left on another stand-in, from the phantom NPU: address, bytes and failure of each call.

    python -m tests.phantom.npu_rows [--python VENV/bin/python] [--json]

The rows (../shared/data/oracle-npu) are of torch_npu 2.13: 14 programs of allocations under 9 settings each. Of another
version, settings that it does not know are told apart, and rows may differ by the rules of that version. One process
imports torch_npu for each size of the device and forks for each program, so that all of it takes minutes.
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
UNKNOWN = ("Unrecognized CachingAllocator option", "Unrecognized key")  # before 2.10, and since


@dataclass(frozen=True)
class Result:
    """What came of one program under one setting.

    Attributes:
        program, conf: Which.
        num_calls, num_failures: How many calls it made, and how many of them failed in the record for lack of memory.
        differs: What is not as recorded ("oom", "addr", "reserved", "allocated"), with the first call where; empty:
            nothing.
        said: Why there is nothing to compare; empty: there is.
    """

    program: str
    conf: str
    num_calls: int
    num_failures: int
    differs: tuple[str, ...] = ()
    said: str = ""

    @property
    def is_unknown(self) -> bool:
        """Whether this version of torch_npu does not know a setting, and says so."""
        return any(words in self.said for words in UNKNOWN)


def device_of(path: Path) -> str:
    """The phantom device that a program was recorded on."""
    return f"npu:910b-64g,total={int(np.load(path)['total'])},context=0"


def differences(path: Path, setting: int, rows: np.ndarray) -> list[str]:
    """What differs between the recorded columns of a setting and the rows that replay.py wrote, with the first call where."""
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
        counts = {"oom": np.ones(len(found), bool), "addr": used}.get(
            name, recorded >= 0
        )  # counters were recorded now and then
        where = np.flatnonzero(counts & (found != recorded))
        if len(where):
            wrong.append(f"{name} in {len(where)} calls, first {where[0]}")
    return wrong


def results(python: str, only: str = "") -> Iterator[Result]:
    """All programs (whose name holds ``only``) under all settings that were recorded, on the phantom NPU of a Python with torch_npu."""
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
    """How many come out, in words."""
    known = [result for result in found if not result.is_unknown]
    good = sum(not result.differs and not result.said for result in known)
    calls, ooms = (sum(getattr(result, name) for result in known) for name in ("num_calls", "num_failures"))
    text = f"{good} of {len(known)} come out ({calls:,} calls, {ooms:,} of which fail), failing: {len(known) - good}"
    others = len(found) - len(known)
    return f"{text}; of {others} more, this version does not know a setting" if others else text


def main() -> None:
    """Prints what does not come out, and how many do; the exit status is 1 where any does not."""
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
