"""Random programs for allocators: settings of both backends, devices of all sizes, and valid call sequences.

All choices come from one ``random.Random``, so a seed determines a program, and Hypothesis can shrink it. Sizes favour
interactions of rules: many equal sizes (ties), sizes around every boundary, and sums near the capacity.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from memdiag.allocator.workload import OP_CODES, Start, Workload
from tests.allocator.rows import Call

MIB = 1 << 20
EDGES = [
    512,
    1024,
    4096,
    MIB // 2,
    MIB,
    2 * MIB,
    5 * MIB,
    9 * MIB,
    10 * MIB,
    12 * MIB,
    19 * MIB,
    20 * MIB,
    21 * MIB,
    32 * MIB,
    64 * MIB,
    100 * MIB,
]
DIVISIONS = [
    "1",
    "2",
    "4",
    "8",
    "16",
    "64",
    "256",
    "[>:8]",
    "[64:8,256:4,1024:4,>:1]",
    "[1:4,4:2,>:8]",
    "[2:16,32:0,64:2]",
    "[256:1,512:2,1024:4,>:8]",
    "[512:2,64:8,>:16]",
    "[8:4]",
    "[1:32,2:4,16:8,128:2,>:4]",
]


@dataclass
class Program:
    """Settings, a device and calls.

    Pool ids are in ``tensor``; ``size`` of a pool_begin is 1 for no_split, 2 for use_on_oom, 3 for both.
    """

    conf: str
    total: int
    done: str
    calls: list[Call] = field(default_factory=list)

    @property
    def num_streams(self) -> int:
        return (
            max(
                [call.stream for call in self.calls if call.op in {"alloc", "record_stream", "complete", "pool_begin"}],
                default=0,
            )
            + 1
        )

    def workload(self, num_streams: int = 0, start: Start | None = None) -> Workload:
        """Returns the same calls as columns.

        Args:
            num_streams: Minimum number of streams.
            start: Initial state.
        """
        start = start or Start()
        ops = np.array([OP_CODES[{"reset_peak": "nothing"}.get(c.op, c.op)] for c in self.calls], np.int8)
        ids, sizes, streams = (np.array([c[k] for c in self.calls], np.int64) for k in (1, 2, 3))
        of_pools = np.isin(ops, [OP_CODES[name] for name in ("pool_begin", "pool_end", "pool_release")])
        of_tensors = np.isin(
            ops, [OP_CODES[name] for name in ("alloc", "free", "free_requested", "free_completed", "record_stream")]
        )
        kinds = {c.tensor: c.size for c in self.calls if c.op == "pool_begin"}
        num_pools, num_tensors = int(ids[of_pools].max(initial=0)) + 1, int(ids[of_tensors].max(initial=-1)) + 1
        return Workload(
            op=ops,
            tensor=np.where(of_tensors, ids, -1).astype(np.int32),
            size=sizes,
            stream=streams.astype(np.int32),
            pool=np.where(of_pools, ids, -1).astype(np.int32),
            row=np.arange(len(ops), dtype=np.int64),
            num_rows=len(ops),
            num_tensors=max(num_tensors, int(start.block_tensor.max(initial=-1)) + 1),
            streams=np.arange(max(self.num_streams, num_streams), dtype=np.uint64),
            pools=tuple((0, k) for k in range(num_pools)),
            no_split=frozenset(pool for pool, kind in kinds.items() if kind & 1),
            stand_in=frozenset(pool for pool, kind in kinds.items() if kind & 2),
            start=start,
            done=self.done,
            capacity_bytes=self.total,
        )


def _maybe(chance: random.Random, likely: float, key: str, values: list[object]) -> list[str]:
    return [f"{key}:{chance.choice(values)}"] if chance.random() < likely else []


def cuda_conf(chance: random.Random, *, rejects: bool = True) -> str:
    """Returns settings that CUDA's parser accepts; the driver needs even pages of expandable segments."""
    expandable = chance.choice(["True", "True", "True", "False"]) if chance.random() < 0.5 else ""
    large = chance.choice([12, 30, 64, 100] if expandable == "True" else [11, 12, 15, 30, 33, 64, 25, 100])
    parts = [f"large_segment_size_mb:{large}"] if chance.random() < 0.25 else []
    large = large if parts else 20
    parts += _maybe(chance, 0.4, "max_split_size_mb", [large + more for more in (0, 1, 3, 5, 12, 40, 108)])
    parts += _maybe(chance, 0.25, "max_non_split_rounding_mb", [large + more for more in (0, 1, 2, 7, 44, 100)])
    parts += _maybe(chance, 0.35, "roundup_power2_divisions", list(DIVISIONS))
    parts += _maybe(chance, 0.45, "garbage_collection_threshold", [0.05, 0.1, 0.3, 0.5, 0.6, 0.8, 0.95])
    parts += _maybe(chance, 0.45, "per_process_memory_fraction", [0.2, 0.333, 0.5, 0.7, 0.9, 0.99, 1.0])
    parts += _maybe(chance, 0.15 if rejects else 0, "throw_on_cudamalloc_oom", [True])
    parts += [f"expandable_segments:{expandable}"] if expandable else []
    chance.shuffle(parts)
    return ",".join(parts)


def npu_conf(chance: random.Random, *, pages: bool = True) -> str:
    """Returns settings that torch_npu 2.13 accepts."""
    expandable = chance.random() < 0.5
    large = chance.choice([11, 12, 15, 30, 64, 100])
    parts = [f"large_segment_size_mb:{large}"] if chance.random() < 0.25 else []
    large = large if parts else 20
    if expandable:
        parts += ["expandable_segments:True"]
        parts += _maybe(chance, 0.4, "base_addr_aligned_kb", [0, 1, 4, 8, 16])
        parts += _maybe(chance, 0.2, "segment_size_mb", [20, 34, 128])
    else:
        parts += _maybe(chance, 0.4, "max_split_size_mb", [max(large, 20) + more for more in (0, 1, 3, 5, 12, 40, 108)])
        parts += _maybe(chance, 0.4, "garbage_collection_threshold", [0.05, 0.1, 0.3, 0.5, 0.6, 0.8, 0.95])
    parts += _maybe(
        chance, 0.25, "max_non_split_rounding_mb", [max(large, 20) + more for more in (0, 1, 2, 7, 44, 100)]
    )
    parts += _maybe(chance, 0.3, "roundup_power2_divisions", list(DIVISIONS))
    parts += _maybe(chance, 0.4, "per_process_memory_fraction", [0.2, 0.333, 0.5, 0.7, 0.9, 0.99, 1.0])
    parts += _maybe(chance, 0.1 if pages else 0, "page_size", ["1g"])
    parts += _maybe(chance, 0.15, "multi_stream_lazy_reclaim", [True])
    parts += _maybe(chance, 0.15, "throw_on_npumalloc_oom", [True])
    chance.shuffle(parts)
    return ",".join(parts)


class Sizes:
    """Source of the sizes of one program."""

    def __init__(self, chance: random.Random, total: int) -> None:
        self.chance, self.total = chance, total
        self.low = chance.choice([1, 1000, 300_000, 2 * MIB])
        self.high = max(chance.choice([4 * MIB, 30 * MIB, 64 * MIB, total // 4, total]), self.low)
        self.few = [
            max(1, chance.choice(EDGES) + chance.choice([0, 0, 0, -1, 1, -512, 512, -32, -33])) for _ in range(6)
        ]
        self.of_few = chance.choice([0, 0, 0, 0.8, 0.8])
        self.odd = [0, total, total * 2, 1, 2 * total // 3]

    def draw(self) -> int:
        if self.chance.random() < self.of_few:
            return self.chance.choice(self.few)
        if self.chance.random() < 0.01:
            return self.chance.choice(self.odd)
        return int(self.low * (self.high / self.low) ** self.chance.random())


class Calls:
    """Draws calls.

    ``level`` 0: one stream at a time, 1: pending streams, 2: private pools, 3: fractions, other processes and totals.

    ``kinds``: possible private pools (see ``Program``).
    """

    def __init__(
        self, chance: random.Random, total: int, level: int, *, npu: bool = False, kinds: Sequence[int] = (0,)
    ) -> None:
        self.chance, self.total, self.level, self.npu = chance, total, level, npu
        self.live: dict[int, int] = {}
        self.held = self.num_made = 0
        self.most = chance.choice([0.4, 0.8, 1.2]) * total
        self.num_streams = chance.choice([1, 1, 2, 4]) if level or not npu else 1
        self.sizes = Sizes(chance, total)
        self.shared = 0.4 if level else 0.0 if npu else 0.03
        self.scopes: list[int] = []
        self.known: set[int] = set()
        self.released: set[int] = set()
        self.kinds = [chance.choice(kinds) for _ in range(6)] if len(kinds) > 1 else [0] * 6

    def draw(self, num_calls: int) -> Iterator[Call]:
        for _ in range(num_calls):
            luck = self.chance.random()
            if luck < 0.47 or not self.live:
                yield from self.alloc()
            elif luck < 0.93:
                live = self.live
                yield self.free(
                    self.chance.choice(list(live)[-200:]) if self.chance.random() < 0.6 else next(reversed(live))
                )
            else:
                yield from self.rare(luck)
            while self.held > self.most and self.live:
                yield self.free(self.chance.choice(list(self.live)))

    def alloc(self) -> Iterator[Call]:
        size = max(self.sizes.draw(), int(self.npu))
        stream = 0 if self.chance.random() < 0.5 else self.chance.randrange(self.num_streams)
        yield Call("alloc", self.num_made, size, stream)
        self.live[self.num_made] = size
        self.held += size
        if self.chance.random() < self.shared:
            yield Call("record_stream", self.num_made, 0, self.chance.randrange(self.num_streams + 1))
        self.num_made += 1

    def free(self, tensor: int) -> Call:
        self.held -= self.live.pop(tensor)
        return Call("free", tensor, 0, 0)

    def rare(self, luck: float) -> Iterator[Call]:
        if luck < 0.953 and not self.npu:
            yield (
                Call("complete", 0, 0, self.chance.randrange(-1, self.num_streams + 1))
                if luck < 0.95
                else Call("sync", 0, 0, 0)
            )
        elif 0.953 <= luck < 0.956:
            yield Call("empty_cache", 0, 0, 0)
        elif luck < 0.98 and self.level >= 2:
            yield from self.scope()
        elif luck < 0.985 and self.level >= 2:
            if out := sorted(self.known - self.released - set(self.scopes)):
                self.released.add(chosen := self.chance.choice(out))
                yield Call("pool_release", chosen, 0, 0)
        elif luck > 0.994 and self.level >= 3:
            yield self.world()

    def scope(self) -> Iterator[Call]:
        scopes, chance = self.scopes, self.chance
        if scopes and chance.random() < 0.5:
            yield Call(
                "pool_end", scopes.pop() if chance.random() < 0.8 else scopes.pop(chance.randrange(len(scopes))), 0, 0
            )
        elif len(scopes) < 3 and (out := [k for k in range(1, 6) if k not in self.released and k not in scopes]):
            self.known.add(chosen := chance.choice(out))
            scopes.append(chosen)
            yield Call(
                "pool_begin",
                chosen,
                self.kinds[chosen],
                -1 if chance.random() < 0.5 else chance.randrange(self.num_streams),
            )

    def world(self) -> Call:
        luck, total = self.chance.random(), self.total
        if luck < 0.4:
            return Call("set_fraction", 0, round(self.chance.choice([0.1, 0.25, 0.5, 0.8, 1.0, 0.6]) * 1e9), 0)
        if luck < 0.8:
            return Call("external", 0, self.chance.choice([0, total // 8, total // 3]), 0)
        return Call("set_total", 0, self.chance.choice([total, total * 2, total * 3 // 4]), 0)


def cuda_program(
    chance: random.Random, num_calls: int, *, rejects: bool = True, kinds: Sequence[int] = (0,)
) -> Program:
    """Returns a program; ``kinds`` are its private pools, some of which occur if there is a choice."""
    total = chance.choice([64, 100, 256, 513, 1024, 4096, 20480]) * MIB
    total += chance.choice([1, 511, 4096, 700_000]) if chance.random() < 0.2 else 0
    level = chance.choice([0, 1, 2, 3] if len(kinds) == 1 else [2, 2, 3])
    done = chance.choice(["now", "manual"]) if level else "now"
    conf, calls = cuda_conf(chance, rejects=rejects), list(Calls(chance, total, level, kinds=kinds).draw(num_calls))
    if len(kinds) > 1 and chance.random() < 0.5:  # pool ids that collide in hash tables
        ids = dict(enumerate(chance.sample(range(1, 60), 5), 1))
        calls = [call._replace(tensor=ids[call.tensor]) if call.op.startswith("pool_") else call for call in calls]
    return Program(conf, total, done, calls)


def npu_program(chance: random.Random, num_calls: int, *, total: int = 0, done: str = "") -> Program:
    """Returns a program.

    Args:
        total, done: Properties of an existing device; settings that need more of it are then omitted.
    """
    total = total or chance.choice([64, 128, 600, 1024, 4096, 4096, 20480]) * MIB
    level = chance.choice([0, 0, 1]) if not done or done == "now" else 1
    done = done or (chance.choice(["now", "manual"]) if level else "now")
    return Program(
        npu_conf(chance, pages=total >= 4096 * MIB),
        total,
        done,
        list(Calls(chance, total, level, npu=True).draw(num_calls)),
    )
