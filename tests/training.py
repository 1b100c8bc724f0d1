"""A handwritten training program: the log of its allocator, and the true category of every tensor."""

from __future__ import annotations

import numpy as np

from memdiag.trace import schema
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.snapshot_rows import completed
from memdiag.trace.stacks import Frame, Stacks
from memdiag.trace.table import Table

MIB = 1 << 20
SEGMENT = 1 << 36  # bytes of the only segment; no address is used twice
_TORCH = "/env/lib/python3.11/site-packages/torch/"

MAIN = Frame("/app/train.py", 90, "main")
MOVE = (Frame(_TORCH + "nn/modules/module.py", 900, "_apply"), Frame(_TORCH + "nn/modules/module.py", 1100, "to"), MAIN)
BATCH = (Frame("/app/train.py", 20, "batch"), MAIN)
STEP = (
    Frame(_TORCH + "optim/adamw.py", 100, "_multi_tensor_adamw"),
    Frame(_TORCH + "optim/adamw.py", 220, "step"),
    Frame(_TORCH + "optim/optimizer.py", 480, "wrapper"),
    MAIN,
)
STATE = (Frame(_TORCH + "optim/adamw.py", 140, "_init_group"), *STEP[1:])
ZERO_GRAD = (Frame(_TORCH + "optim/optimizer.py", 900, "zero_grad"), MAIN)
BACKWARD = (
    Frame(_TORCH + "autograd/__init__.py", 240, "backward"),
    Frame(_TORCH + "_tensor.py", 520, "backward"),
    MAIN,
)
LOSS = (Frame(_TORCH + "nn/functional.py", 3000, "cross_entropy"), Frame("/app/train.py", 30, "loss"), MAIN)
SILENT = ()  # autograd's thread
KEEP = (Frame("/app/train.py", 70, "keep"), MAIN)


def forward(layer: int) -> tuple[Frame, ...]:
    """Returns the stack of a tensor allocated in the forward of a layer."""
    return (
        Frame(_TORCH + "nn/modules/linear.py", 116, "forward"),
        Frame(_TORCH + "nn/modules/module.py", 1500, "_call_impl"),
        Frame("/app/model.py", 10 + layer, "forward"),
        Frame(_TORCH + "nn/modules/module.py", 1500, "_call_impl"),
        MAIN,
    )


class Training:
    """Writes entries; ``truth`` has (category, phase, step) of the allocation of every tensor, in allocation order."""

    def __init__(self, layers: int = 3, size: int = 4 * MIB) -> None:
        self.layers, self.size = layers, size
        self.entries: list[tuple[str, int, int, tuple[Frame, ...]]] = []
        self.phases: list[str] = []
        self.truth: list[tuple[str, str, int]] = []
        self.spans: list[tuple[str, bool, int]] = []
        self.live: dict[int, int] = {}
        self.now, self.phase, self.top = -1, "initialisation", 0
        self.stream, self.streams = 0, list[int]()
        self.parameters: list[int] = []
        self.states: list[int] = []
        self.gradients: list[int] = []
        self.batch, self.output, self.kept = -1, -1, []
        self._log("segment_alloc", 0, SEGMENT, MOVE)

    def _log(self, action: str, addr: int, size: int, frames: tuple[Frame, ...]) -> None:
        self.entries.append((action, addr, size, frames))
        self.phases.append(self.phase)
        self.streams.append(self.stream)

    def alloc(self, size: int, frames: tuple[Frame, ...], category: str) -> int:
        """Allocates a tensor and returns its address."""
        addr, self.top = self.top, self.top - (-size // 512) * 512
        self.live[addr] = size
        self.truth.append((category, self.phase, self.now))
        self._log("alloc", addr, size, frames)
        return addr

    def free(self, addr: int, frames: tuple[Frame, ...] = SILENT) -> None:
        """Frees the tensor at an address."""
        size = self.live.pop(addr)
        self._log("free_requested", addr, size, frames)
        self._log("free_completed", addr, size, SILENT)

    def passing(self, size: int, frames: tuple[Frame, ...]) -> None:
        """Allocates a tensor and frees it at once."""
        self.free(self.alloc(size, frames, "temporary"))

    def initialise(self) -> None:
        """Moves the model to the device; layer k is larger than the one before."""
        self.parameters = [self.alloc(self.size * (1 + k), MOVE, "parameter") for k in range(self.layers)]

    def span(self, name: str, start: bool) -> None:
        """Records the begin or end of a named span."""
        self.spans.append((name, start, len(self.entries)))

    def step(self, *, leak: int = 0, zero_first: bool = False, until: str = "", scale: float = 1.0) -> None:
        """Runs one training step. ``leak``: bytes that stay live; ``until``: the step ends early, after this phase."""
        self.now += 1
        self.span(f"ProfilerStep#{self.now}", True)
        self.phase = "outside"
        size = int(self.size * scale)
        batch = self.alloc(size, BATCH, "input")
        if self.batch >= 0:
            self.free(self.batch)
        self.batch = batch
        activations = self._forward(size)
        if until == "forward":
            return
        if zero_first:
            self._zero_grad()
        self._backward(activations, size)
        if until == "backward":
            return
        self._optimize()
        self.phase = "outside"
        if leak:
            self.kept.append(self.alloc(leak, KEEP, "unknown"))
        if not zero_first:
            self._zero_grad()
        self.span(f"ProfilerStep#{self.now}", False)

    def _forward(self, size: int) -> list[int]:
        self.phase = "forward"
        activations = []
        for layer in range(self.layers):
            self.passing(size // 2, forward(layer))
            activations.append(self.alloc(size * 2, forward(layer), "activation"))
        activations.append(self.alloc(size, LOSS, "activation"))
        output = self.alloc(512, LOSS, "activation")
        if self.output >= 0:
            self.free(self.output)
        self.output = output
        return activations

    def _backward(self, activations: list[int], size: int) -> None:
        self.phase = "backward"
        seed = self.alloc(4, BACKWARD, "temporary")
        self.free(activations.pop())
        for layer in reversed(range(self.layers)):
            self.passing(size * 3, SILENT)
            self.gradients.append(self.alloc(self.size * (1 + layer), SILENT, "gradient"))
            self.free(activations[layer])
        self.free(seed)

    def _optimize(self) -> None:
        self.phase = "optimizer"
        self.span("Optimizer.step#AdamW.step", True)
        if not self.states:
            for layer in range(self.layers):
                self.states += [self.alloc(self.size * (1 + layer), STATE, "optimizer_state") for _ in range(2)]
        self.passing(self.size, STEP)
        self.span("Optimizer.step#AdamW.step", False)

    def _zero_grad(self) -> None:
        before, self.phase = self.phase, "outside"
        for gradient in self.gradients:
            self.free(gradient, ZERO_GRAD)
        self.gradients, self.phase = [], before

    def fail(self, size: int, frames: tuple[Frame, ...] = SILENT) -> None:
        """Records a failed allocation."""
        self._log("oom", -1, size, frames)

    def trace(self, *, first: int = 0, stacks: bool = True, spans: str = "", backend: str = "cuda", **raw):
        """Returns the trace of the entries from ``first`` on, with the spans that begin with ``spans``; stacks are
        optional.
        """
        entries = self.entries[first:]
        if first:  # the segment is from before the trace
            left = self._final()
            raw |= left
        interned, ids = Stacks.from_lists([entry[3] for entry in entries])
        names = sorted({name for name, _, _ in self.spans if spans and name.startswith(spans)})
        chosen = [span for span in self.spans if span[0] in names and span[2] >= first]
        device = RawDevice(
            device=0,
            action=np.array([schema.ACTION_CODES[entry[0]] for entry in entries], np.int8),
            addr=np.array([entry[1] for entry in entries], np.int64),
            size=np.array([entry[2] for entry in entries], np.int64),
            stream=np.array(self.streams[len(self.streams) - len(entries) :], np.int64),
            time_us=10 * np.arange(first, first + len(entries)),
            stack=ids if stacks else None,
            **raw,
        )
        return build_trace(
            RawTrace(
                path="training",
                format="torch-snapshot",
                backend=backend,
                raws=[device],
                stacks=interned if stacks else None,
                strings=tuple(names),
                annotations=Table(
                    schema.ANNOTATIONS,
                    {
                        "name": np.array([names.index(name) for name, _, _ in chosen], np.int32),
                        "start": np.array([start for _, start, _ in chosen], bool),
                        "device": np.zeros(len(chosen), np.int32),
                        "time_us": np.array([10 * at - 5 for _, _, at in chosen], np.int64),
                    },
                ),
            )
        )

    def _final(self) -> dict[str, Table]:
        """Returns the final state, in the form of a snapshot."""
        live = sorted(self.live.items())
        segments = {name: np.zeros(1, column.dtype) for name, column in schema.SEGMENTS.items()}
        segments |= {"total_size": np.array([SEGMENT]), "stack": np.array([-1]), "forward_stack": np.array([-1])}
        rows: list[tuple[int, int, int, int]] = []
        at = 0
        for addr, size in live:
            block = -(-size // 512) * 512
            rows += [(at, addr - at, schema.INACTIVE, 0)] if addr > at else []
            rows.append((addr, block, schema.ACTIVE_ALLOCATED, size))
            at = addr + block
        rows.append((at, (SEGMENT) - at, schema.INACTIVE, 0))
        table = np.array(rows)
        blocks = {
            "segment": np.zeros(len(rows), np.int32),
            "address": table[:, 0],
            "size": table[:, 1],
            "state": table[:, 2],
            "requested_size": table[:, 3],
            "stack": np.full(len(rows), -1),
        }
        return {"segments": Table(schema.SEGMENTS, segments), "blocks": completed(schema.BLOCKS, blocks)}
