"""Random settings of every key, including invalid ones, in the engine and in PyTorch's own allocator.

    python -m tests.allocator.fuzz_settings --real DIR [--torch 2.13] [--programs 1000] [--seed 1] [--also KEY:VALUE]
    [--seconds N]

DIR: as for fuzz_cuda.py. Settings that the real allocator refuses must be refused, and vice versa; accepted ones must
give the same placements. Prints each text that differs, with its seed, and a summary; the exit status is 1 if any did.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from memdiag.allocator.replay import replay
from memdiag.allocator.versions.conf import Conf
from memdiag.errors import MemdiagError
from memdiag.settings.model import Key, parse_version
from memdiag.settings.tables import known
from tests.allocator.fuzz_cuda import log_differs, rows_differ
from tests.allocator.programs import MIB, Calls, Program
from tests.allocator.real_cuda import Crashed, real

_ANOTHER = "backend"  # settings for another allocator
_NUMBERS = ("0", "-1", "+5", "007", "1e3", "3.5", "0x20", "99999999999999999999", "1048577", "1", "12MB", "", "x")


def wide_conf(chance: random.Random, backend: str, version: tuple[int, int]) -> str:
    """Returns a text with a few keys of that version, in any order, sometimes repeated, with spaces, or corrupted."""
    keys = [key for name, key in known(backend, version).items() if name != _ANOTHER]
    placing = [key for key in keys if not key.host_only]
    chosen = chance.sample(placing, chance.randint(1, min(5, len(placing)))) + chance.sample(
        keys, chance.choice([0, 0, 0, 1])
    )
    parts = [f"{key.name}:{value_of(chance, key, spoiled=chance.random() < 0.03)}" for key in chosen]
    text = (" ,", ",", ", ")[chance.choice([0, 1, 1, 1, 1, 2])].join(parts)
    if chance.random() < 0.02:  # one letter more or less
        at = chance.randrange(len(text))
        text = text[:at] + chance.choice(["", ",", ":", "[", "]", "1"]) + text[at + 1 :]
    return text


def value_of(chance: random.Random, key: Key, *, spoiled: bool) -> str:
    """Returns a value that is valid for the key; with ``spoiled``, any value."""
    if spoiled:
        return chance.choice(_NUMBERS)
    if key.kind == "bool":
        return chance.choice(["True", "True", "False"])
    if key.kind == "word":
        return chance.choice(key.words or ("0.5", "3G", "0.01", "abc"))
    if key.kind == "fraction":
        real = chance.choice([chance.random(), chance.random() / 20, round(chance.random(), 2)])
        return chance.choice(
            [repr(real), f"{real:.3f}", f"{real:e}", "1", "0", "1.0"] if chance.random() < 0.3 else [repr(real)]
        )
    if key.kind == "divisions":
        return _divisions(chance)
    if key.name.endswith("_kb"):
        return str(chance.randint(0, 16))
    if key.is_power_of_two:
        return str(1 << chance.randrange(8))
    low = chance.choice([key.lowest or 0, 20, 64])
    return str(
        int(low) + chance.choice([0, 1, 2, 3, chance.randrange(20), chance.randrange(300), chance.randrange(5000)])
    )


def _divisions(chance: random.Random) -> str:
    if chance.random() < 0.3:
        return str(1 << chance.randrange(9))
    bounds = chance.sample([str(1 << k) for k in range(18)] + [">"], chance.randint(1, 4))
    if chance.random() < 0.7:
        bounds.sort(key=lambda bound: 1 << 30 if bound == ">" else int(bound))
    return "[" + ",".join(f"{bound}:{chance.choice([0, 1, 2, 4, 8, 16, 64, 512])}" for bound in bounds) + "]"


def program_of(chance: random.Random, conf: str, kinds: Sequence[int] = (0,)) -> Program:
    """Returns a short program of any level, on devices of all sizes."""
    total = chance.choice([64, 100, 513, 2048, 20480]) * MIB + chance.choice([0, 0, 511, 700_000])
    level = chance.choice([0, 1, 2])
    done = chance.choice(["now", "manual"]) if level else "now"
    return Program(
        conf, total, done, list(Calls(chance, total, level, kinds=kinds).draw(chance.choice([100, 400, 1000])))
    )


def difference(program: Program, folder: Path, version: str, tally: Counter[str]) -> str:
    """Runs one program on both; returns "" if they agree."""
    try:
        Conf.parse(program.conf, "cuda", version)
    except MemdiagError as error:
        if "does not work with expandable_segments" in str(error):
            tally["taken by the allocator, of no use"] += 1
            return ""
        tally["refused"] += 1
        try:
            real(folder, replace(program, calls=program.calls[:1]))
        except Crashed:
            return ""
        return f"taken by the allocator, refused here: {error}"
    try:
        truth = real(folder, program)
    except Crashed as crash:
        found = replay(program.workload(), "caching", conf=program.conf, torch_version=version, capacity=program.total)
        return "" if (found.status == 3).any() else f"refused by the allocator, or it crashed: {str(crash)[:300]}"
    found = replay(
        program.workload(), "caching", conf=program.conf, torch_version=version, capacity=program.total, log=True
    )
    tally["calls"] += len(program.calls)
    return rows_differ(found, truth) or log_differs(found, truth)


def main() -> int:
    """Runs a number of programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, required=True)
    parser.add_argument("--torch", default="2.13", help="the version that DIR is linked with")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--also", default="", metavar="KEY:VALUE", help="settings behind those of each program")
    parser.add_argument("--seconds", type=float, default=1e9)
    args = parser.parse_args()
    tally: Counter[str] = Counter()
    number, begin = parse_version(args.torch) or (2, 13), time.monotonic()
    for seed in range(args.seed, args.seed + args.programs):
        if time.monotonic() - begin > args.seconds:
            break
        chance = random.Random(seed)  # noqa: S311 - a program, not a secret
        conf = ",".join(filter(None, (wide_conf(chance, "cuda", number), args.also)))
        program = program_of(chance, conf)
        if number < (2, 3):
            program = replace(program, calls=[call for call in program.calls if not call.op.startswith("pool_")])
        elif number < (2, 8):
            program = replace(program, calls=[call for call in program.calls if call.op != "pool_release"])
        if said := difference(program, args.real, args.torch, tally):
            tally["differ"] += 1
            print(f"seed {seed}: {conf!r} {program.total} {program.done}: {said}", flush=True)
        tally["programs"] += 1
    print(f"torch {args.torch}, seeds from {args.seed} on: {dict(tally)}; {tally['differ']} differ")
    return 1 if tally["differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
