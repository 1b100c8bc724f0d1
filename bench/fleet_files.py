"""Makes the files of many ranks out of one recording: each another, all of them snapshots as PyTorch writes them.

    python bench/fleet_files.py ranks --ranks 1024 --base examples/gpt-train.pickle --seed 1

The allocator model replays the recorded requests with other sizes, and the result is written as a snapshot (as
``memdiag simulate --out`` does). Of the ranks

* the first and the last eighth hold 25 % and 10 % more parameters, gradients and optimizer state (as with an embedding
  or a head);
* the sizes of inputs and activations differ by up to 2 % from rank to rank;
* one in 97 has data that is 30 % longer;
* each ends somewhere in the last tenth of the recording.

A rank's file depends on the seed and its number only. Takes about 1.3 MB for each with the base above.
"""

from __future__ import annotations

import argparse
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from memdiag import load
from memdiag.allocator.as_snapshot import snapshot
from memdiag.allocator.as_trace import as_trace
from memdiag.allocator.subject import Subject
from memdiag.allocator.workload import ALLOC, Start
from memdiag.trace.schema import CATEGORIES

ROOT = Path(__file__).parents[1]
OF_MODEL = [CATEGORIES.index(name) for name in ("parameter", "gradient", "optimizer_state")]
OF_DATA = [CATEGORIES.index(name) for name in ("activation", "input", "temporary")]
LONGER, EVERY = 1.3, 97


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where rank0.pkl … go")
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--base", type=Path, default=ROOT / "examples" / "gpt-train.pickle")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args()


@cache
def subject_of(base: Path) -> Subject:
    """The recording, made ready for replay; read once in each process."""
    trace = load(base)
    return Subject.of(trace, max(trace.devices, key=lambda device: device.num_events))


def factors_of(subject: Subject, rank: int, ranks: int, seed: int) -> np.ndarray:
    """By how much each tensor is larger than it was."""
    chance = np.random.default_rng([seed, rank])
    category = subject.device.tensors.category
    model = 1.25 if rank < ranks // 8 else 1.1 if rank >= ranks - ranks // 8 else 1.0
    data = (1 + 0.02 * chance.random()) * (LONGER if rank % EVERY == EVERY - 1 else 1.0)
    return np.where(np.isin(category, OF_MODEL), model, np.where(np.isin(category, OF_DATA), data, 1.0))


def write(work: tuple[Path, Path, int, int, int]) -> int:
    """Writes the file of one rank and returns its bytes."""
    folder, base, rank, ranks, seed = work
    subject = subject_of(base)
    own, whole = subject.recorded, subject.workload
    end = len(whole.op) - int(np.random.default_rng([seed, rank, 1]).integers(0, len(whole.op) // 10))
    columns = {name: getattr(whole, name)[:end] for name in ("op", "tensor", "size", "stream", "pool", "row")}
    factors = np.append(factors_of(subject, rank, ranks, seed), 1.0)
    tensor = columns["tensor"].astype(np.int64)
    known = (columns["op"] == ALLOC) & (tensor >= 0) & (tensor < len(factors) - 1)
    columns["size"] = np.where(
        known, (columns["size"] * factors[np.where(known, tensor, -1)]).astype(np.int64), columns["size"]
    )
    workload = replace(whole, **columns, start=Start())
    replay = subject.replayer(workload, replace(own, fraction=None), log=True)
    content = snapshot(as_trace(replay, workload, subject.trace, subject.device, kept_start=False), replay)
    content["memdiag"] |= {"rank": rank, "world": ranks}
    file = folder / f"rank{rank}.pkl"
    with file.open("wb") as opened:
        pickle.dump(content, opened, protocol=4)
    return file.stat().st_size


def make(folder: Path, base: Path, ranks: int, seed: int, processes: int) -> int:
    """Writes all files and returns their bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    work = [(folder, base.resolve(), rank, ranks, seed) for rank in range(ranks)]
    with ProcessPoolExecutor(processes) as pool:
        return sum(pool.map(write, work, chunksize=8))


def main() -> None:
    """Makes the files."""
    args = arguments()
    total = make(args.folder, args.base, args.ranks, args.seed, args.processes)
    print(f"{args.ranks:,} files, {total / 1e6:,.0f} MB, in {args.folder}")


if __name__ == "__main__":
    main()
