"""The marks that a recorder wrote, exactly as in the file; ``memdiag.trace.recorded`` maps them to events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memdiag.results.scratch import Scratch
from memdiag.trace.table import Array

# Number of state tensors per parameter, each of the parameter's size, by optimizer class.
_STATES = {
    "Adam": 2,
    "AdamW": 2,
    "NAdam": 2,
    "RAdam": 2,
    "Adamax": 2,
    "Adadelta": 2,
    "Rprop": 2,
    "SparseAdam": 2,
    "Lamb": 2,
    "Lion": 1,
    "ASGD": 1,
    "Adagrad": 1,
    "RMSprop": 1,
    "SGD": 0,
}


@dataclass(frozen=True)
class Optimizer:
    """An optimizer that existed when a run failed in its first step.

    Attributes:
        name: Class name; with the package if it is the name of another class in torch.optim.
        parameter_bytes: Bytes of its parameters on the device that require gradients.
        num_states: Number of parameters that already had state.
        settings: Which of "amsgrad", "momentum" and "centered" are on; each adds to the state.
        num_elements: Number of elements of these parameters; 0 if unknown.
        sparse_bytes: Bytes of those parameters that get sparse gradients.
    """

    name: str
    parameter_bytes: int
    num_states: int
    settings: frozenset[str]
    num_elements: int = 0
    sparse_bytes: int = 0

    @property
    def states_per_parameter(self) -> int | None:
        """Number of state tensors for each parameter, each of its size; None if unknown."""
        number = _STATES.get(self.name)
        return None if number is None else number + len(self.settings)


@dataclass(frozen=True)
class AssumedSizes:
    """Sizes that depend on values which a simulated device did not compute.

    Attributes:
        count: How many.
        fraction: Fraction of elements, from 0 to 1, that masks, nonzero and unique select in this run.
        place: The first place in the program, such as "train.py:17", or "" if unknown.
    """

    count: int
    fraction: float
    place: str = ""


@dataclass(frozen=True)
class RecordingEnd:
    """When and why a recording was written.

    Attributes:
        reason: "exit", "oom", "window", "every", "demand", "signal" or "ended by the program"; "" if unknown.
        error: Class of the exception that ended the program, or "" if none did or it is unknown.
        is_windowed: Whether only some steps were recorded.
        optimizers: Those that existed at a failure in the first step.
        phantom_device: The simulated device, or "" for a real or unknown one.
        scratch: Scratch memory of cuDNN on a simulated device; None if it was not used.
        sizes: Assumed sizes on a simulated device; None if there are none.
        num_reads: Other values that the program read and a simulated device did not compute. If the program skips work
            because of such a value (``if mask.any():``), the largest sizes are no upper bound.
        expert_load: How many tokens each expert was assumed to get on a simulated device, such as "balanced"; "" if no
            load was assumed.
        pid: Id of the recorded process, or None if unknown.
        has_needless_graph: Whether autograd recorded a graph at a failure although no optimizer existed.
        num_graphs: Number of forward passes if autograd recorded each of them for a backward, otherwise 0.
        error_is_of_code: Whether the error comes from the code alone, whatever the values of its tensors are.
        is_evaluation: Whether memory ran out in a pass of a model in evaluation mode that autograd recorded, although
            the training never called backward after such a pass.
    """

    reason: str = ""
    error: str = ""
    is_windowed: bool = False
    optimizers: tuple[Optimizer, ...] = ()
    phantom_device: str = ""
    scratch: Scratch | None = None
    sizes: AssumedSizes | None = None
    num_reads: int = 0
    expert_load: str = ""
    pid: int | None = None
    has_needless_graph: bool = False
    num_graphs: int = 0
    error_is_of_code: bool = False
    is_evaluation: bool = False


@dataclass(frozen=True)
class RecordedProcess:
    """The process of a recording.

    Attributes:
        pid: Its number, or None if unknown.
        name: Its script and arguments, at most 80 characters; "" if unknown.
        cards: The identity of the card behind each device, the same in all processes of a machine.
    """

    pid: int | None = None
    name: str = ""
    cards: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HeldTensor:
    """A live tensor whose holders the recorder searched, because tensors like it had become more.

    Attributes:
        device: Index of its device.
        addr: Address of its storage.
        mark: Row of the mark at which it was live.
        count: Number of tensors of its device, type and shape at that moment.
        num_nodes: Operations in the largest autograd graph of such tensors, which retain others; 0 for none.
        chains: Variables that hold it, as they would be written in Python, each with its function.
    """

    device: int
    addr: int
    mark: int
    count: int
    num_nodes: int
    chains: tuple[str, ...]


@dataclass(frozen=True)
class ProcessMarks:
    """Marks of one process.

    Attributes:
        names: Strings that the ``name`` columns (and the ``value`` of the program's own marks) refer to.
        marks: Columns time_ns, kind (phase, step, mark, look, oom), value, device, allocs, frees; -1 where unknown; and
            thread (0: the main one).
        modules: Columns time_ns, name (-1: none), device, allocs, frees, thread: from this point on, that module's code
            ran.
        tensors: Columns device, addr, category, name, first, last: seen at every mark from ``first`` to ``last`` with
            the kind and value of ``first``.
        counts: Blocks allocated and freed on each device when the file was written.
        rank, world: From the launcher of the process, or None.
        ended: When and why the file was written.
        process: The process that was recorded.
        holders: Tensors whose holders were searched; empty without ``memdiag record --holders``.
        calls: By function of PyTorch ("backward"; with memdiag fix also "zero_grad"): lines that called it, and how
            often.
        threads: Number of the thread for each text that the recorder set for the allocations of a thread, by index into
            ``Trace.strings``.
    """

    names: tuple[str, ...]
    marks: Mapping[str, Array]
    modules: Mapping[str, Array]
    tensors: Mapping[str, Array]
    counts: Mapping[int, tuple[int, int]]
    rank: int | None = None
    world: int | None = None
    ended: RecordingEnd = RecordingEnd()
    process: RecordedProcess = field(default_factory=RecordedProcess)
    holders: tuple[HeldTensor, ...] = ()
    calls: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    threads: Mapping[int, int] = field(default_factory=dict)

    def line_of(self, function: str) -> str:
        """Returns the line that called a function most often, or "" if that is unknown."""
        lines = self.calls.get(function, {})
        return max(lines, key=lambda line: lines[line], default="")
