"""Random programs in the engine and in torch_npu's own allocator: addresses, failures, counters and logs must be equal.

    python -m tests.allocator.fuzz_npu --real DIR [--calls 1000000] [--seed 1] [--seconds N] [--wide]

DIR (or MEMDIAG_REAL_NPU): the folder of the allocator on a simulated runtime (see real_npu.py). Prints each program
    that
differs, with its seed, and a summary; the exit status is 1 if any did.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from memdiag.allocator.replay import replay
from memdiag.allocator.result import OK, UNDEFINED, Replay
from memdiag.allocator.versions.conf import Conf
from memdiag.errors import MemdiagError
from memdiag.trace.schema import ACTION_CODES
from tests.allocator.fuzz_settings import wide_conf
from tests.allocator.programs import Program, npu_program
from tests.allocator.real_npu import RAISED, Done, Worker
from tests.allocator.rows import COUNTERS

# torch_npu orders streams by the addresses of their objects, which change from run to run.
UNORDERED = tuple(ACTION_CODES[name] for name in ("free_completed", "segment_free", "segment_unmap"))
OOM = ACTION_CODES["oom"]
A_PROGRAM_A_WORKER = 60


def bases_of(found: Replay, addr: np.ndarray) -> np.ndarray:
    """Returns the real address of each range, inferred from its first block; -1 for ranges without blocks."""
    bases = np.full(len(found.bases) + 1, -1, np.int64)
    placed = np.flatnonzero((found.seg >= 0) & (addr >= 0))
    seg, first = np.unique(found.seg[placed], return_index=True)
    bases[seg] = (addr - found.off)[placed][first]
    return bases


def difference(program: Program, truth: Done) -> str:
    """Replays one program; returns the first difference from the real allocator, or "" if they agree."""
    found = replay(program.workload(), "npu", conf=program.conf, capacity=program.total, log=True)
    raised = np.flatnonzero(truth.status == RAISED)
    end = int(raised[0]) if len(raised) else len(truth.status)
    if len(raised) and (found.status[end:] != UNDEFINED).any():
        return f"call {end} {program.calls[end]}: the real allocator raised, the engine went on"
    bases = bases_of(found, truth.addr)
    addr = np.where(found.seg >= 0, bases[found.seg] + found.off, -1)
    for name, ours, theirs in (("status", found.status, truth.status), ("addr", addr, truth.addr)):
        if len(at := np.flatnonzero(ours[:end] != theirs[:end])):
            return f"call {at[0]} {program.calls[at[0]]}: {name} is {int(ours[at[0]])}, should be {int(theirs[at[0]])}"
    for k, name in enumerate(COUNTERS):
        ours, theirs = getattr(found, name)[truth.checked], truth.values[:, k]
        if len(at := np.flatnonzero((ours != theirs) & (theirs >= 0) & (truth.checked < end))):
            return f"call {truth.checked[at[0]]}: {name} is {int(ours[at[0]])}, should be {int(theirs[at[0]])}"
    return "" if len(raised) else log_differs(found, truth, bases)


def log_differs(found: Replay, truth: Done, bases: np.ndarray) -> str:
    """Returns the first difference between the logs, or "" if they agree."""
    log = found.log
    assert log is not None
    ours = np.column_stack(
        [log["action"], np.where(bases[log["seg"]] >= 0, bases[log["seg"]] + log["off"], -1), log["size"]]
    ).astype(np.int64)
    theirs = truth.log.copy()
    if len(ours) != len(theirs):
        return f"{len(ours)} log entries, should be {len(theirs)}"
    theirs[ours[:, 1] < 0, 1] = ours[ours[:, 1] < 0, 1]  # the address of a range without blocks is unknown
    ours[ours[:, 0] == OOM, 1] = theirs[theirs[:, 0] == OOM, 1] = 0
    free = np.isin(ours[:, 0], UNORDERED)
    begins = np.concatenate([[True], ~free[1:] | ~free[:-1] | (ours[1:, 0] != ours[:-1, 0])])
    run_of = np.cumsum(begins)
    ours, theirs = (entries[np.lexsort((entries[:, 2], entries[:, 1], run_of))] for entries in (ours, theirs))
    if len(at := np.flatnonzero((ours != theirs).any(axis=1))):
        return f"log entry {at[0]}: {ours[at[0]].tolist()}, should be {theirs[at[0]].tolist()}"
    return ""


def is_refused(conf: str) -> bool:
    """Returns whether memdiag's model of torch_npu's parser refuses the settings."""
    try:
        Conf.parse(conf, "npu", "2.13")
    except MemdiagError:
        return True
    return False


def main() -> int:
    """Runs until there were enough calls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, default=os.environ.get("MEMDIAG_REAL_NPU"))
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument(
        "--wide", action="store_true", help="settings of every key, as in fuzz_settings.py, also such as are refused"
    )
    args = parser.parse_args()
    if args.real is None:
        parser.error("--real DIR, or MEMDIAG_REAL_NPU")
    tally: Counter[str] = Counter()
    seed, begin = args.seed, time.monotonic()
    while tally["calls"] < args.calls and time.monotonic() - begin < args.seconds:
        # The device of a worker is that of its first program.
        first = npu_program(random.Random(seed), 10)  # noqa: S311 - a program, not a secret
        with tempfile.TemporaryDirectory() as scratch:
            worker = Worker(args.real, first.total, first.done, Path(scratch))
            for _ in range(A_PROGRAM_A_WORKER):
                chance = random.Random(seed)  # noqa: S311
                program = npu_program(
                    chance, chance.choice([300, 1500, 4000, 12000]), total=first.total, done=first.done
                )
                if args.wide:
                    program = replace(program, conf=wide_conf(chance, "npu", (2, 13)))
                truth = worker.run(program)
                if args.wide and is_refused(program.conf):
                    tally["refused"] += 1
                    said = (
                        ""
                        if truth is None or not (truth.status == OK).any()
                        else "taken by the allocator, refused here"
                    )
                else:
                    said = "the process of the real allocator ended" if truth is None else difference(program, truth)
                if said:
                    tally["differ"] += 1
                    print(
                        (
                            f"seed {seed} (worker {first.total} {first.done}): {program.conf!r}, {len(program.calls)} "
                            f"calls: {said}"
                        ),
                        flush=True,
                    )
                tally["programs"] += 1
                tally["calls"] += len(program.calls)
                if truth is not None:
                    tally["allocations"] += int((truth.addr >= 0).sum())
                    tally["out of memory"] += int((truth.status == 1).sum())
                    tally["log entries"] += len(truth.log)
                    tally["ended undefined"] += bool((truth.status == RAISED).any())
                seed += 1
            worker.close()
        print(f"{time.monotonic() - begin:.0f} s", dict(tally), file=sys.stderr, flush=True)
    print(f"torch_npu 2.13, seeds {args.seed} to {seed - 1}: {dict(tally)}; {tally['differ']} differ")
    return 1 if tally["differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
