"""Counts the live tensors of programs of other people without memdiag, into bench/programs_counted.json.

    python bench/programs_counted.py --sources FOLDER --python VENV/bin/python [--only "mnist;gat"]

Each program of programs_of_others.toml runs unchanged on the CPU, below programs/live_storages.py, in which memdiag
takes no part: once as on the CPU, and once as on a GPU (programs/cpu_as_gpu.py), if it has rows for these devices.
FOLDER and VENV are those of programs_of_others.py. Of several processes, the one with the largest peak counts. The file
has for each program:

* all: for the CPU, the parts of the peak with the scratch memory of its kernels;
* tensors: the parts of the peak of the tensors alone, in which an optimizer updates all parameters together, as on a
  GPU or NPU. Those as on a GPU lack tensors that stay on the host;
* threads: "forward" and "backward" if matrices are multiplied there: cuBLAS has a workspace for each of these threads;
* convolves: whether a convolution runs, for which cuDNN has workspaces.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from others_table import AS_ON_GPU, COUNTED, HERE, Program, read_table, unpack
from programs_of_others import run


def count(program: Program, kind: str, given: argparse.Namespace, commits: dict[str, str]) -> dict[str, object] | None:
    """Runs one program, once or twice; None if it fails."""
    if kind == "cuda":
        found = run_once(program, kind, given, commits, "--foreach")
        return found and {key: found[key] for key in ("tensors", "threads", "convolves")}
    found = run_once(program, kind, given, commits)
    if not found or not found.pop("has_optimizer"):
        return found
    on_devices = run_once(program, kind, given, commits, "--foreach")
    return on_devices and {**found, "tensors": on_devices["tensors"]}


def run_once(
    program: Program, kind: str, given: argparse.Namespace, commits: dict[str, str], *options: str
) -> dict[str, Any] | None:
    """Runs one program with options of live_storages.py.

    Returns:
        The count of the process with the largest peak; None if the program fails.
    """
    with tempfile.TemporaryDirectory(prefix="count-") as scratch:
        ready = unpack(program, kind, given, commits, Path(scratch) / "source")
        result = Path(scratch) / "result"
        counter = [str(HERE / "programs" / "live_storages.py"), *options]
        if kind == "cuda":
            counter += ["--gpus", str(program.ranks or program.devices or 1)]
        at = 1 + len(program.launcher)
        command = [*ready.words[:at], *counter, str(result), *ready.words[at:]]
        if kind == "cpu":
            command += program.counted.split()
        environment = {**ready.environment, "CUDA_VISIBLE_DEVICES": ""}
        status, _, took, said = run(command, ready.folder, environment, given.seconds)
        if status:
            print(f"{program.family} {program.name}: exit status {status}: {said[-given.said :]}", file=sys.stderr)
            return None
        found = [json.loads(file.read_text(encoding="utf-8")) for file in result.glob("*.json")]
        print(f"{program.family} {program.name}: {took:.0f} s of a processor, {len(found)} processes", flush=True)
        largest: dict[str, Any] = max(found, key=lambda one: sum(one["tensors"].values()))
        return largest


def main() -> None:
    """Counts the programs that have no count, and writes the file after each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--only", default="", help="programs whose family or name holds one of these, by ;")
    parser.add_argument("--again", action="store_true", help="also programs that have a count")
    parser.add_argument("--said", type=int, default=300, help="characters to print of the output of a failed program")
    parser.add_argument("--seconds", type=int, default=600, help="limit of one run")
    given = parser.parse_args()
    commits, programs = read_table()
    for program in programs:
        for kind in program.counts:
            name = f"{program.family} {program.name}{AS_ON_GPU if kind == 'cuda' else ''}"
            known = json.loads(COUNTED.read_text(encoding="utf-8")) if COUNTED.exists() else {}
            is_chosen = any(part in name for part in given.only.split(";"))
            if is_chosen and (given.again or name not in known):
                found = count(program, kind, given, commits)
                if found is not None:
                    known = json.loads(COUNTED.read_text(encoding="utf-8")) if COUNTED.exists() else {}  # another run
                    known[name] = found
                    COUNTED.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
