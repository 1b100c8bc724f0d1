"""Runs random programs with CUDA graphs on PyTorch's allocator; real_captures.py starts it with a Python that has
torch.

Reads one line per program: ``SEED NUM_CALLS SETTINGS PATH`` (settings in quotes). Each program runs in a separate
process, forked before the device is used, and writes a snapshot with its complete history to PATH. The seed alone
determines the calls of a program, even if some of them fail. Programs with odd seeds keep all graphs until the end.
"""

import contextlib
import os
import random
import shlex
import sys
import traceback

import torch

MIB = 1 << 20
EDGES = [512, MIB // 2, MIB, 2 * MIB, 5 * MIB, 9 * MIB, 10 * MIB, 12 * MIB, 20 * MIB, 32 * MIB]


class Program:
    """Tensors, graphs and pools of one program."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - a program, not a secret
        self.streams = [torch.cuda.Stream() for _ in range(2)]
        self.tensors: dict[int, torch.Tensor | None] = {}  # None: the allocation failed
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.handles = [torch.cuda.graph_pool_handle() for _ in range(2)]
        self.pools: list[torch.cuda.MemPool] = []
        self.callables: list[object] = []
        self.high = self.chance.choice([MIB, 4 * MIB, 40 * MIB])
        self.few = [max(1, self.chance.choice(EDGES) + self.chance.choice([0, 0, -1, 1, 512])) for _ in range(4)]
        self.num_made = 0
        self.gives_up = seed % 2 == 0

    def size(self) -> int:
        chance = self.chance
        return chance.choice(self.few) if chance.random() < 0.5 else int(1000 * (self.high / 1000) ** chance.random())

    def make(self) -> None:
        number, self.num_made = self.num_made, self.num_made + 1
        try:
            self.tensors[number] = torch.empty(self.size(), dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            self.tensors[number] = None

    def drop(self) -> None:
        recent = list(self.tensors)[-60:]
        if recent:
            del self.tensors[self.chance.choice(recent)]

    def use_elsewhere(self) -> None:
        other = self.chance.choice(self.streams)
        recent = list(self.tensors)[-5:]
        used = self.tensors[self.chance.choice(recent)] if recent else None
        if used is not None:
            used.record_stream(other)

    def some(self, most: int, *, streams: bool) -> None:
        for _ in range(self.chance.randrange(1, most)):
            luck = self.chance.random()
            if luck < 0.5:
                self.make()
            elif luck < 0.95 or not streams:
                self.drop()
            else:
                self.use_elsewhere()

    def capture(self) -> None:
        chance = self.chance
        graph = torch.cuda.CUDAGraph()
        pool = chance.choice([None, None, *self.handles, *(pool.id for pool in self.pools)])
        begin = self.num_made
        with torch.cuda.graph(graph, pool=pool, stream=chance.choice([None, *self.streams])):
            self.some(30, streams=False)
            if chance.random() < 0.7:  # most tensors of a graph are freed before its end
                for number in [number for number in self.tensors if number >= begin][:-2]:
                    del self.tensors[number]
        self.graphs.append(graph)

    def graphed(self) -> None:
        width = self.chance.choice([64, 512, 1024])
        layer = torch.nn.Sequential(
            torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width)
        ).cuda()
        sample = torch.zeros(self.chance.choice([16, 256]), width, device="cuda", requires_grad=True)
        made = torch.cuda.make_graphed_callables(layer, (sample,))
        for _ in range(2):
            made(sample).sum().backward()
        self.callables.append((layer, sample, made))

    def in_pool(self) -> None:
        if len(self.pools) < 3 and self.chance.random() < 0.5:
            self.pools.append(torch.cuda.MemPool(no_split=self.chance.random() < 0.4))
        if self.pools:
            with torch.cuda.use_mem_pool(self.chance.choice(self.pools)):
                self.some(20, streams=True)

    def on_stream(self) -> None:
        with torch.cuda.stream(self.chance.choice(self.streams)):
            self.some(10, streams=True)

    def end_graph(self) -> None:
        if self.graphs:
            graph = self.graphs.pop(self.chance.randrange(len(self.graphs)))
            graph.replay()
            graph.reset()
        elif self.callables:
            self.callables.pop()

    def run(self, num_calls: int) -> None:
        chance = self.chance
        for _ in range(num_calls):
            luck = chance.random()
            if luck < 0.55:
                self.some(12, streams=True)
            elif luck < 0.7:
                self.on_stream()
            elif luck < 0.8:
                self.capture()
            elif luck < 0.88:
                self.in_pool()
            elif luck < 0.92:
                if self.gives_up:
                    self.end_graph()
            elif luck < 0.94:
                torch.cuda.empty_cache()
            elif luck < 0.95 and os.environ.get("FAKE_CUDA_BLAS"):
                self.graphed()
            while len(self.tensors) > 150:
                self.drop()


def run(seed: int, num_calls: int, conf: str, path: str) -> None:
    os.environ.pop("PYTORCH_CUDA_ALLOC_CONF", None)
    if conf:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = conf
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=10_000_000)
    program = Program(seed)
    with contextlib.suppress(torch.OutOfMemoryError):  # some failures end the program
        program.run(num_calls)
    torch.cuda.memory._dump_snapshot(path)


for line in sys.stdin:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            seed, num_calls, conf, path = shlex.split(line)
            run(int(seed), int(num_calls), conf, path)
            status = 0
        except Exception:  # noqa: BLE001 - the parent notices the missing result; the traceback is for people
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    print(f"done {os.waitpid(child, 0)[1]}", flush=True)
