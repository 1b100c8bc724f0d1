"""Reads facts about the run from the recorder's data.

They are the device memory, why the file was written, and optimizers without state.

A file from a stranger may hold anything, so invalid facts are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memdiag.sources.phantom_notes import assumed_sizes_in, expert_load_in, num_reads_in
from memdiag.sources.phantom_scratch import outside_error_in, scratch_in
from memdiag.sources.run_samples import count as _count
from memdiag.sources.run_samples import rows_in
from memdiag.trace.card import Card, MemorySample
from memdiag.trace.recording import HeldTensor, Optimizer, RecordedProcess, RecordingEnd
from memdiag.trace.schema import OCCASIONS
from memdiag.trace.table import Table

_MOST_BYTES = 1 << 50
_MOST_SAMPLES = 256
_MOST_STEPS = 1 << 31
_MOST_OPTIMIZERS = 64
_MOST_LETTERS = 80
_MOST_WORDS = 64  # of a command line
_MOST_CARDS = 256
_MOST_HELD = 64
_MOST_CHAIN = 300  # characters
_MOST_CHAINS = 3
_MOST_LINES = 64
_FUNCTIONS = ("backward", "set_per_process_memory_fraction", "zero_grad", "DistributedDataParallel")
_REASONS = frozenset({"exit", "oom", "window", "every", "demand", "signal", "ended by the program"})
_WHEN = frozenset({"start", "step", "oom", "end"})
_SETTINGS = ("amsgrad", "momentum", "centered")


def card_in(own: Mapping[str, Any], device: int, samples: Table) -> Card:
    """Returns the recorded facts about the memory of a device.

    Args:
        own: The recorder's data.
        device: The device.
        samples: Its samples (``schema.SAMPLES``).
    """
    fraction = own.get("fraction")
    is_share = isinstance(fraction, float) and 0 < fraction <= 1
    return Card(
        _samples(own, device, samples),
        float(fraction) if is_share else None,  # type: ignore[arg-type]
        outside_error_in(own),
    )


def _samples(own: Mapping[str, Any], device: int, table: Table) -> tuple[MemorySample, ...]:
    if len(table):
        columns = (table[name].tolist() for name in ("when", "step", "total", "free", "reserved"))
        return tuple(MemorySample(OCCASIONS[when], *sizes) for when, *sizes in zip(*columns, strict=True))
    given = own.get("memory")  # of recordings made before samples had a time
    rows = given[:_MOST_SAMPLES] if isinstance(given, list) else []
    found = (_sample(row) for row in rows if isinstance(row, dict) and row.get("device") == device)
    return tuple(sample for sample in found if sample is not None)


def _sample(row: Mapping[str, Any]) -> MemorySample | None:
    when, step = row.get("when"), _count(row.get("step"), _MOST_STEPS)
    total, free, reserved = (_count(row.get(f"{name}_bytes"), _MOST_BYTES) for name in ("total", "free", "reserved"))
    if (
        when not in _WHEN
        or step is None
        or total is None
        or free is None
        or reserved is None
        or not free <= total
        or not total
    ):
        return None
    return MemorySample(str(when), step, total, free, reserved)


def ended_in(own: Mapping[str, Any]) -> RecordingEnd:
    """Returns when and why the file was written."""
    reason, window = own.get("reason"), own.get("window")
    is_windowed = isinstance(window, list | tuple) and any(window)
    rows = own.get("optimizers")
    rows = rows[:_MOST_OPTIMIZERS] if isinstance(rows, list) else []
    device = own.get("phantom_device")
    return RecordingEnd(
        reason if isinstance(reason, str) and reason in _REASONS else "",
        _text(own.get("error")),
        is_windowed,
        tuple(found for row in rows if isinstance(row, dict) and (found := _optimizer(row)) is not None),
        _text(device.get("device")) if isinstance(device, dict) else "",
        scratch_in(own),
        assumed_sizes_in(own),
        num_reads_in(own),
        expert_load_in(own),
        _count(own.get("pid"), _MOST_STEPS),
        _has_needless_graph(own),
        _num_graphs_in(own),
        own.get("error_is_of_code") is True,
        _is_evaluation(own),
    )


def process_in(own: Mapping[str, Any]) -> RecordedProcess:
    """Returns the recorded process and its cards."""
    words, given = own.get("argv"), own.get("cards")
    words = words[:_MOST_WORDS] if isinstance(words, list) else []
    at = next((at for at, word in enumerate(words) if at and isinstance(word, str) and not word.startswith("-")), None)
    script, rest = ("", []) if at is None else (words[at].replace("\\", "/").rpartition("/")[2], words[at + 1 :])
    name = " ".join([script, *(word for word in rest if isinstance(word, str))])
    cards = given if isinstance(given, dict) and len(given) <= _MOST_CARDS else {}
    return RecordedProcess(
        _count(own.get("pid"), _MOST_STEPS),
        _text(name if len(name) <= _MOST_LETTERS else name[: _MOST_LETTERS - 1] + "…"),
        {
            device: name
            for device, card in cards.items()
            if _count(device, _MOST_CARDS) is not None and (name := _text(card))
        },
    )


def holders_in(own: Mapping[str, Any], num_marks: int) -> tuple[HeldTensor, ...]:
    """Returns the tensors whose holders were searched.

    Args:
        own: The recorder's key of the file.
        num_marks: Number of marks in the file.
    """
    given = own.get("holders")
    rows = given.get("rows") if isinstance(given, dict) else None
    found = (_held(row, num_marks) for row in (rows[:_MOST_HELD] if isinstance(rows, list) else []))
    return tuple(held for held in found if held is not None)


def _held(row: Any, num_marks: int) -> HeldTensor | None:
    if not isinstance(row, dict) or not isinstance(row.get("chains"), list):
        return None
    device, addr = _count(row.get("device"), _MOST_CARDS), _count(row.get("addr"), 1 << 62)
    mark, count = _count(row.get("mark"), num_marks - 1), _count(row.get("count"), _MOST_STEPS)
    nodes = _count(row.get("nodes"), _MOST_STEPS)
    chains = tuple(
        chain[:_MOST_CHAIN]
        for chain in row["chains"][:_MOST_CHAINS]
        if isinstance(chain, str) and chain and chain.isprintable()
    )
    if device is None or addr is None or mark is None or count is None or nodes is None or not chains:
        return None
    return HeldTensor(device, addr, mark, count, nodes, chains)


def calls_in(own: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Returns the lines of the program that called functions of PyTorch, by function, and how often."""
    given = own.get("calls")
    by_function = given if isinstance(given, dict) else {}
    found = {}
    for function in _FUNCTIONS:
        lines = by_function.get(function)
        pairs = list(lines.items())[:_MOST_LINES] if isinstance(lines, dict) else []
        found[function] = {
            text: times
            for line, count in pairs
            if (text := _text(line)) and (times := _count(count, _MOST_STEPS)) is not None
        }
    return found


def _has_needless_graph(own: Mapping[str, Any]) -> bool:
    """Returns whether autograd recorded a graph at the last failure although no optimizer existed."""
    failures = [*rows_in(own.get("ooms"))]
    is_recorded = bool(failures) and failures[-1].get("records_graph") is True
    return is_recorded and own.get("optimizers") == [] and own.get("steps") == 0


def _is_evaluation(own: Mapping[str, Any]) -> bool:
    """Returns whether the last failure was in a pass of an evaluation that autograd recorded."""
    failures = [*rows_in(own.get("ooms"))]
    return bool(failures) and failures[-1].get("in_evaluation") is True


def _num_graphs_in(own: Mapping[str, Any]) -> int:
    """Returns the number of forward passes if autograd recorded each of them, otherwise 0."""
    given = own.get("forwards")
    counts = [_count(each, _MOST_STEPS) or 0 for each in given[:2]] if isinstance(given, list) else []
    return counts[0] if len(set(counts)) == 1 else 0


def _optimizer(row: Mapping[str, Any]) -> Optimizer | None:
    name, size = _text(row.get("class")), _count(row.get("parameter_bytes"), _MOST_BYTES)
    states = _count(row.get("num_states"), _MOST_STEPS)
    if not name or size is None or states is None:
        return None
    settings = frozenset(key for key in _SETTINGS if row.get(key) is True)
    elements, sparse = (_count(row.get(key), _MOST_BYTES) or 0 for key in ("num_elements", "sparse_bytes"))
    return Optimizer(name, size, states, settings, elements, sparse)


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() and len(value) <= _MOST_LETTERS else ""
