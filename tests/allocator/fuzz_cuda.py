"""Random programs in the engine and in PyTorch's own allocator: every row and every log entry must be equal.

    python -m tests.allocator.fuzz_cuda --real DIR [--torch 2.13] [--calls 1000000] [--seed 1] [--seconds N]
    [--addresses bump]

DIR (or MEMDIAG_REAL_CUDA): the folder of the allocator on a simulated device (see real_cuda.py). Prints each program
that differs, with its seed, and a summary; the exit status is 1 if any did. Programs that crash the real allocator are
compared up to that point.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from memdiag.allocator.replay import replay
from memdiag.allocator.result import OUT_OF_MEMORY, SKIPPED, UNDEFINED, Replay
from memdiag.allocator.scenario import Beginning
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import DEFAULT_VERSION
from memdiag.errors import MemdiagError
from memdiag.settings.model import parse_version
from memdiag.trace.schema import ACTION_CODES
from tests.allocator.programs import Program, cuda_program
from tests.allocator.real_cuda import RAISED, Crashed, Rows, real
from tests.allocator.reference import Reference
from tests.allocator.rows import COUNTERS, run

# The allocator iterates streams and pools here in hash table order.
UNORDERED = tuple(ACTION_CODES[name] for name in ("free_completed", "segment_free", "segment_unmap"))
OOM = ACTION_CODES["oom"]
# First versions whose pools can be used outside captures, released one by one, lend to the default pool, and disable
# splitting.
FIRST_POOLS, FIRST_RELEASES, FIRST_STAND_IN, FIRST_NO_SPLIT = (2, 3), (2, 8), (2, 8), (2, 10)


def rows_differ(found: Replay, truth: Rows) -> str:
    """Returns the first difference between rows, or "" if there is none before undefined behaviour."""
    end = len(truth.rows)
    if (undefined := np.flatnonzero(found.status == UNDEFINED)).size:
        end = int(undefined[0])
    if (raised := np.flatnonzero(truth.rows["status"][:end] == RAISED)).size:
        return f"call {raised[0]}: the real allocator raised, the engine went on"
    first, what = end, ""
    for name in ("status", *COUNTERS, "seg", "off"):
        ours, theirs = getattr(found, name)[:end], truth.rows[name][:end]
        different = ours != theirs
        if name in {"seg", "off"}:
            different &= theirs >= 0
        if name.startswith("device_") and (theirs < 0).all():
            continue  # this version does not count them
        if len(at := np.flatnonzero(different)) and at[0] < first:
            first = int(at[0])
            what = f"call {first}: {name} is {int(ours[first])}, should be {int(theirs[first])}"
    return what


def _sorted_runs(entries: np.ndarray) -> np.ndarray:
    """Sorts the entries of each call and kind where the real order is that of a hash table."""
    action, call = entries[:, 0], entries[:, 1]
    free = np.isin(action, UNORDERED)
    run_of = np.cumsum(
        np.concatenate([[True], ~free[1:] | ~free[:-1] | (action[1:] != action[:-1]) | (call[1:] != call[:-1])])
    )
    return entries[np.lexsort((entries[:, 3], entries[:, 2], run_of))]


def log_differs(found: Replay, truth: Rows) -> str:
    """Returns the first difference between the logs, before undefined behaviour."""
    assert found.log is not None
    if not truth.rows["trace_end"][-1]:
        return ""  # this version has no log
    end = len(truth.rows)
    if (undefined := np.flatnonzero(found.status == UNDEFINED)).size:
        end = int(undefined[0])
    calls = np.searchsorted(truth.rows["trace_end"], np.arange(len(truth.log)), side="right")
    theirs = np.column_stack(
        [truth.log["action"], calls, truth.log["addr"].astype(np.int64), truth.log["size"].astype(np.int64)]
    )
    log, bases = found.log, np.append(truth.bases, 0)
    addr = bases[log["seg"]] + log["off"]
    ours = np.column_stack([log["action"], log["call"], addr, log["size"]]).astype(np.int64)
    ours, theirs = (entries[entries[:, 1] < end] for entries in (ours, theirs))
    ours[ours[:, 0] == OOM, 2] = theirs[theirs[:, 0] == OOM, 2] = 0  # free device memory: rows contain it
    if len(ours) and len(theirs):
        ours, theirs = _sorted_runs(ours), _sorted_runs(theirs)
    both = min(len(ours), len(theirs))
    different = np.flatnonzero((ours[:both] != theirs[:both]).any(axis=1))
    if not len(different) and len(ours) == len(theirs):
        return ""
    at = int(different[0]) if len(different) else both
    return (
        f"log entry {at}: {ours[at].tolist() if at < len(ours) else None}, should be "
        f"{theirs[at].tolist() if at < len(theirs) else None}"
    )


def difference(program: Program, folder: Path, version: str, addresses: str, tally: Counter[str]) -> str:
    """Runs one program on both; returns "" if they agree."""
    try:
        truth = real(folder, program, addresses=addresses)
    except Crashed as crash:
        # The reference must call a program undefined if it crashes the real allocator.
        numbers = tuple(int(part) for part in version.split(".")[:2])
        last = list(run(Reference(program.total, program.conf, numbers, program.done), program.calls))[-1]
        found = replay(
            program.workload(), policy(program), conf=program.conf, torch_version=version, capacity=program.total
        )
        tally["crashed, as foreseen"] += 1
        return "" if last[0] == UNDEFINED == found.status[-1] else f"the real allocator crashed unforeseen: {crash}"
    bases = None if addresses == "bump" else truth.bases
    found = replay(
        program.workload(),
        policy(program),
        conf=program.conf,
        torch_version=version,
        capacity=program.total,
        log=True,
        beginning=Beginning(bases=bases),
    )
    tally["calls"] += len(program.calls)
    tally["allocations"] += int((truth.rows["addr"] >= 0).sum())
    tally["out of memory"] += int((truth.rows["status"] == OUT_OF_MEMORY).sum())
    tally["retries"] += int(truth.rows["retries"][-1])
    tally["skipped"] += int((truth.rows["status"] == SKIPPED).sum())
    tally["ended undefined"] += bool((found.status == UNDEFINED).any())
    tally["ranges given back"] += int(truth.rows["device_frees"][-1])
    return rows_differ(found, truth) or log_differs(found, truth)


def of_version(program: Program, version: str) -> Program:
    """Removes settings that the parser of a version refuses, and private pools that it does not support."""
    kept: list[str] = []
    for part in re.findall(r"\w+:(?:\[[^\]]*\]|[^,\[]+)", program.conf):
        with suppress(MemdiagError):
            Conf.parse(",".join([*kept, part]), "cuda", version)
            kept.append(part)
    number = parse_version(version) or DEFAULT_VERSION
    kinds = (2 if number >= FIRST_STAND_IN else 0) + (1 if number >= FIRST_NO_SPLIT else 0)
    calls = [call._replace(size=call.size & kinds) if call.op == "pool_begin" else call for call in program.calls]
    names = "pool_" if number < FIRST_POOLS else "pool_release" if number < FIRST_RELEASES else "\0"
    return replace(program, conf=",".join(kept), calls=[call for call in calls if not call.op.startswith(names)])


def policy(program: Program) -> str:
    return "expandable" if "expandable_segments:True" in program.conf else "caching"


def main() -> int:
    """Runs until there were enough calls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, default=os.environ.get("MEMDIAG_REAL_CUDA"))
    parser.add_argument("--torch", default="2.13", help="the version that DIR is linked with")
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument(
        "--kinds", action="store_true", help="private pools with no_split and use_on_oom, which DIR must know"
    )
    parser.add_argument("--addresses", default="bump", choices=["bump", "first", "lifo", "down"])
    args = parser.parse_args()
    if args.real is None:
        parser.error("--real DIR, or MEMDIAG_REAL_CUDA")
    tally: Counter[str] = Counter()
    seed, begin = args.seed, time.monotonic()
    while tally["calls"] < args.calls and time.monotonic() - begin < args.seconds:
        chance = random.Random(seed)  # noqa: S311 - a program, not a secret
        kinds = (0, 1, 2, 3) if args.kinds else (0,)
        program = of_version(cuda_program(chance, chance.choice([300, 1500, 4000, 12000]), kinds=kinds), args.torch)
        if said := difference(program, args.real, args.torch, args.addresses, tally):
            tally["differ"] += 1
            print(
                f"seed {seed}: {program.conf!r} {program.total} {program.done}, {len(program.calls)} calls: {said}",
                flush=True,
            )
        tally["programs"] += 1
        seed += 1
        if tally["programs"] % 100 == 0:
            print(f"{time.monotonic() - begin:.0f} s", dict(tally), file=sys.stderr, flush=True)
    print(
        f"torch {args.torch}, addresses {args.addresses}, seeds {args.seed} to {seed - 1}: {dict(tally)}; "
        f"{tally['differ']} differ"
    )
    return 1 if tally["differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
