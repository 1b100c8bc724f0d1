"""Random programs for MindSpeed's allocator: calls, hooks, settings and a device, all determined by one seed.

There are two kinds: any calls with hooks in any order, and training, which repeats forward layers, their backward and
an optimizer, with an occasional different pass. There are few sizes, so that they repeat, around every boundary.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.policies.lifecycle.marks import KINDS, HookMarks
from memdiag.allocator.workload import Workload

KIB, MIB = 1 << 10, 1 << 20
SIZES = (
    1,
    512,
    513,
    100 * KIB,
    MIB - 512,
    MIB,
    MIB + 1,
    3 * MIB // 2,
    2 * MIB,
    2 * MIB + 1,
    29 * MIB // 10,
    3 * MIB,
    9 * MIB,
    10 * MIB - 1,
    10 * MIB,
    12 * MIB + 512,
    19 * MIB,
    20 * MIB,
    21 * MIB,
    22 * MIB,
    41 * MIB,
    60 * MIB,
)
HUGE = (300 * MIB, 1000 * MIB, 1400 * MIB, 1_800_000_000, 1_900_000_000, 3500 * MIB)


@dataclass(frozen=True)
class Program:
    """The program of a seed."""

    workload: Workload
    marks: HookMarks
    conf: str
    alr_max: int | None
    fraction: float | None
    total: int


class _Writer:
    def __init__(self, chance: random.Random, num_streams: int) -> None:
        self.chance, self.num_streams = chance, num_streams
        self.calls: list[tuple[int, int, int, int]] = []
        self.marks: list[tuple[int, int]] = []
        self.num_tensors = self.outside = 0

    def alloc(self, size: int) -> int:
        stream = self.chance.randrange(self.num_streams) if self.chance.random() < 0.2 else 0
        self.calls.append((w.ALLOC, self.num_tensors, size, stream))
        self.num_tensors += 1
        return self.num_tensors - 1

    def free(self, tensor: int) -> None:
        self.calls.append((w.FREE, tensor, 0, 0))

    def rare(self) -> None:
        op, size = self.chance.choice(
            [(w.EMPTY_CACHE, 0), (w.SET_FRACTION, 9 * 10**8), (w.EXTERNAL, self.outside // 2)]
        )
        if op == w.EXTERNAL:
            self.hold_outside(size // (2 * MIB) * (2 * MIB))
        else:
            self.calls.append((op, -1, size, 0))

    def hold_outside(self, size: int) -> None:
        """Lets others hold device memory: most at the beginning, since later there may be none left."""
        self.calls.append((w.EXTERNAL, -1, size, 0))
        self.outside = size

    def mark(self, *kinds: str) -> None:
        self.marks += [(len(self.calls), KINDS.index(kind)) for kind in kinds]

    def workload(self) -> Workload:
        op, tensor, size, stream = np.array(self.calls, np.int64).reshape(-1, 4).T
        count = len(self.calls)
        return Workload(
            op=op.astype(np.int8),
            tensor=tensor.astype(np.int32),
            size=size,
            stream=stream.astype(np.int32),
            pool=np.full(count, -1, np.int32),
            row=np.arange(count),
            num_rows=count,
            num_tensors=self.num_tensors + 1,
            streams=np.arange(self.num_streams, dtype=np.uint64),
        )


def program(seed: int, num_calls: int) -> Program:
    """Returns the program of a seed, with about this many calls."""
    chance = random.Random(seed)  # noqa: S311 - a program, not a secret
    sizes = chance.sample(SIZES, chance.randint(2, 9)) + (chance.sample(HUGE, 2) if chance.random() < 0.3 else [])
    writer = _Writer(chance, chance.choice([1, 1, 1, 3]))
    total = chance.choice([256, 512, 1024, 4096, 8192, 32768]) * MIB
    if chance.random() < 0.2:
        writer.hold_outside(total // chance.choice([4, 20, 100]) // (2 * MIB) * (2 * MIB))
    (_training if chance.random() < 0.6 else _wild)(writer, sizes, num_calls, total)
    conf = []
    if chance.random() < 0.25:
        conf.append(f"max_split_size_mb:{chance.choice([21, 22, 40, 100])}")
    if chance.random() < 0.2:
        conf.append(f"default_lc_threshold:{chance.choice([512, 2.5e6, 3 * MIB])}")
    if chance.random() < 0.2:
        conf.append("open_memory_optimize:true")
    return Program(
        writer.workload(),
        HookMarks.of(writer.marks),
        ",".join(conf),
        chance.choice([None, None, None, total // 2]),
        chance.choice([None, None, None, 0.94, 0.5]),
        total,
    )


def _wild(writer: _Writer, sizes: list[int], num_calls: int, total: int) -> None:
    chance = writer.chance
    live: dict[int, int] = {}
    often = chance.choice([0.02, 0.1, 0.3])
    while len(writer.calls) < num_calls:
        if chance.random() < often:
            writer.mark(chance.choice(KINDS[:6]) if chance.random() < 0.97 else "release")
        luck = chance.random()
        if luck < 0.01:
            writer.rare()
        elif luck < 0.55 or not live:
            size = chance.choice(sizes)
            live[writer.alloc(size)] = size
        else:
            tensor = chance.choice(list(live)[-50:])
            del live[tensor]
            writer.free(tensor)
        while sum(live.values()) > total:
            tensor = next(iter(live))
            del live[tensor]
            writer.free(tensor)


def _training(writer: _Writer, sizes: list[int], num_calls: int, total: int) -> None:
    chance = writer.chance
    layers = [
        [(chance.choice(sizes), chance.random() < 0.4) for _ in range(chance.randint(2, 12))]
        for _ in range(chance.randint(1, 3))
    ]
    depth, whole = chance.randint(1, 6), chance.random() < 0.3  # hooks around each layer, or around all of them
    most = max(total // max(depth, 1), 1)
    writer.mark("precise_begin")
    weights = [writer.alloc(chance.choice(sizes)) for _ in range(chance.randint(1, 20))]
    for tensor in weights[::7]:
        writer.free(tensor)
    writer.mark("precise_end", "forward_begin", "forward_end")
    is_first = True
    while len(writer.calls) < num_calls:
        writer.mark("step_begin")
        for _ in range(chance.randint(1, 3)):
            kept: list[list[int]] = []
            if whole:
                writer.mark("forward_begin")
            kept += [
                _layer(writer, layers[number % len(layers)], sizes, most, hooked=not whole) for number in range(depth)
            ]
            if whole:
                writer.mark("forward_end")
            while kept:
                _backward(writer, kept.pop(), layers[len(kept) % len(layers)])
        if is_first:
            writer.mark("release", "precise_begin")
            for _ in range(chance.randint(1, 8)):
                writer.alloc(chance.choice(sizes))
            writer.mark("precise_end")
            is_first = chance.random() < 0.2
        if chance.random() < 0.05:
            writer.rare()
        writer.mark("step_end")


def _layer(writer: _Writer, layer: list[tuple[int, bool]], sizes: list[int], most: int, *, hooked: bool) -> list[int]:
    chance = writer.chance
    kept: list[int] = []
    short: list[int] = []
    held = 0
    if hooked:
        writer.mark("forward_begin")
    for size, stays in layer:
        if held + size > most or chance.random() < 0.03:
            continue
        held += size
        if chance.random() < 0.03:
            size = chance.choice(sizes)  # a different pass
        (kept if stays else short).append(writer.alloc(size))
        if len(short) > 2 or (short and chance.random() < 0.5):
            writer.free(short.pop(0))
    for tensor in short:
        writer.free(tensor)
    if hooked:
        writer.mark("forward_end")
    return kept


def _backward(writer: _Writer, kept: list[int], layer: list[tuple[int, bool]]) -> None:
    chance = writer.chance
    if chance.random() < 0.1:  # recomputed
        kept += _layer(writer, layer, [layer[0][0]], 1 << 60, hooked=True)
    while kept:
        gradient = writer.alloc(chance.choice(layer)[0])
        writer.free(kept.pop())
        writer.free(gradient)
