"""Random programs with CUDA graphs and private pools on PyTorch's allocator; recordings of them must calibrate exactly.

Predictions for other settings and smaller devices are compared with another recording of the same program, and
differences are counted. Recordings do not contain ``empty_cache`` calls that found nothing to release (each graph
begins with one) and dropped graphs.

    python -m tests.allocator.fuzz_captures --real DIR [--programs 100] [--seed 1]

DIR (or MEMDIAG_REAL_TORCH): the folder of PyTorch on a simulated device (see real_captures.py). Prints each program
that differs, with its seed, and a summary; the exit status is 1 if any recording did not calibrate.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from memdiag.allocator.calibration.calibrate import Calibration, described_best
from memdiag.allocator.replay import replay
from memdiag.allocator.result import OK
from memdiag.allocator.scenario import Beginning
from memdiag.allocator.workload import ALLOC, Workload
from memdiag.cli.loading import read_trace
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from tests.allocator.programs import MIB, cuda_conf
from tests.allocator.real_captures import Worker

AMPLE = 20480 * MIB


def recording(path: Path) -> tuple[Trace, DeviceTrace, Workload, Calibration]:
    trace = read_trace(path)
    path.unlink()
    device = max(trace.devices, key=lambda each: each.num_events)
    return trace, device, *described_best(trace, device)


def without(conf: str, *keys: str) -> str:
    """Removes settings that depend on the device memory, if that was not recorded."""
    parts = re.findall(r"\w+:(?:\[[^\]]*\]|[^,\[]+)", conf)
    return ",".join(part for part in parts if not part.startswith(keys))


def prediction_differs(
    first: Workload, second: Workload, device: DeviceTrace, found: Calibration, conf: str, total: int
) -> str:
    """Replays one recording's requests with the other run's settings, and compares address by address."""
    events = device.events
    assert found.bases is not None
    is_same = first.pools == second.pools and np.array_equal(first.streams, second.streams)
    ran = replay(
        first,
        found.policy,
        conf=conf,
        capacity=total,
        beginning=Beginning(bases=found.bases if is_same else found.bases[0]),
        log=True,
    )
    calls = np.flatnonzero(first.op == ALLOC)
    requests = np.flatnonzero(np.isin(events.action, (schema.ALLOC, schema.OOM)))
    theirs = np.where(events.action[requests] == schema.OOM, -1, events.addr[requests])
    placed = ran.status[calls] == OK
    ours = np.where(placed, ran.bases[np.maximum(ran.seg[calls], 0)] + ran.off[calls], -1)
    if len(ours) < len(theirs):
        return f"{len(ours)} requests, should be {len(theirs)}"
    ended = len(theirs)  # the other run may have ended early, out of memory
    different = np.flatnonzero(ours[:ended] != theirs)
    if len(different):
        at = int(different[0])
        return f"request {at} (event {requests[at]}): at {ours[at]:#x}, should be {theirs[at]:#x}"
    peaks = int(ran.reserved[: calls[ended - 1] + 1].max()), int(device.usage.reserved[: requests[-1] + 1].max())
    if peaks[0] != peaks[1]:
        return f"reserved peak {peaks[0]}, should be {peaks[1]}"
    return ""


def main() -> int:
    """Runs a number of programs, each with two settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, default=os.environ.get("MEMDIAG_REAL_TORCH"))
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.real is None:
        parser.error("--real DIR, or MEMDIAG_REAL_TORCH")
    tally: Counter[str] = Counter()
    keep_limit = "per_process_memory_fraction", "throw_on", "garbage_collection"
    with tempfile.TemporaryDirectory() as scratch:
        workers = {total: Worker(args.real, total, "now", Path(scratch)) for total in (AMPLE, 100 * MIB, 300 * MIB)}
        for seed in range(args.seed, args.seed + args.programs):
            chance = random.Random(seed)  # noqa: S311 - a program, not a secret
            num_calls, confs = (
                chance.choice([30, 100, 300]),
                [without(cuda_conf(chance), *keep_limit) for _ in range(2)],
            )
            total = chance.choice([100 * MIB, 300 * MIB])
            runs = [(AMPLE, confs[0]), (AMPLE, confs[1]), (total, confs[1])]
            paths = [workers[room].run(seed, num_calls, conf) for room, conf in runs]
            tally["programs"] += 1
            recorded = [None if path is None else recording(path) for path in paths]
            if recorded[0] is None:
                tally["raised"] += 1
                print(f"seed {seed}: {runs[0]} did not end", flush=True)
                continue
            for (room, conf), made in zip(runs, recorded, strict=True):
                if made is None:
                    tally["raised"] += 1
                    continue
                _, device, _, found = made
                tally["events"] += device.num_events
                tally["requests"] += found.num_requests or 0
                tally["out of memory"] += int(np.count_nonzero(device.events.action == schema.OOM))
                tally["recordings"] += 1
                if not found.is_exact:
                    tally["not exact"] += 1
                    print(f"seed {seed}: {conf!r} {room}: {found.exact} of {found.events}: {found.first}", flush=True)
                if made is not recorded[0] and seed % 2:  # recordings show dropped graphs only at release
                    first = replace(recorded[0][2], no_split=recorded[0][2].no_split | made[2].no_split)
                    tally["predicted"] += 1
                    tally["predicted to the byte"] += not prediction_differs(first, made[2], device, found, conf, room)
        for worker in workers.values():
            worker.close()
    print(f"seeds {args.seed} to {args.seed + args.programs - 1}: {dict(tally)}")
    return 1 if tally["not exact"] else 0


if __name__ == "__main__":
    sys.exit(main())
