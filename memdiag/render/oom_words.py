"""The words of an out-of-memory report: causes, places and amounts, for people who meet such a message for the first time.

The terminal and markdown renderers lay out the same rows; this is where the rows are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from memdiag.oom.model import Confidence, LedgerEntry, Message, OomReport
from memdiag.render.text import plain, shorten
from memdiag.render.words import Row, percent
from memdiag.units import MIB, format_bytes, format_count, plural

# What each cause means, as a sentence without its full stop.
CAUSES = {
    "fragmentation": "the allocator held enough free memory, but in pieces that this request could not use",
    "capacity": "the program needs more memory than the device has",
    "other_process": "other programs hold the memory of this device",
    "limit": "a limit that was set stopped the program, not the device",
    "workspace_or_comm": "a library (communication, workspace) found no memory beside what the framework holds",
    "host": "the memory of the computer (RAM) ran out, not that of the device",
    "unknown": "the message does not say enough to tell the cause",
}
# The same in a few words, for lists.
SHORT_CAUSES = {
    "fragmentation": "free memory in unusable pieces",
    "capacity": "more needed than the device has",
    "other_process": "other programs hold the memory",
    "limit": "a limit that was set",
    "workspace_or_comm": "no room for a library's workspace",
    "host": "the computer's RAM ran out",
    "unknown": "cannot be told",
}
CAUSE_STYLES = {"unknown": "bold yellow"}
SURE = {
    "high": "the numbers leave little doubt",
    "medium": "the numbers fit, but do not prove it",
    "low": "a guess: the message does not decide it",
}
_FRAMEWORKS = {
    "pytorch": "PyTorch", "torch_npu": "torch_npu", "jax": "JAX", "tensorflow": "TensorFlow", "vllm": "vLLM", "sglang": "SGLang",
    "mindspore": "MindSpore", "paddle": "PaddlePaddle", "onnxruntime": "ONNX Runtime", "cupy": "CuPy", "triton": "Triton",
    "ggml": "ggml (llama.cpp)", "ollama": "Ollama", "mlx": "MLX", "nccl": "NCCL", "tensorrt": "TensorRT", "cann": "CANN", "hccl": "HCCL",
    "ray": "Ray", "cuda": "CUDA", "linux": "Linux", "numpy": "NumPy",
}  # fmt: skip
_BACKENDS = {"cuda": "CUDA", "hip": "HIP (AMD)", "npu": "Ascend NPU", "xpu": "XPU (Intel)", "mps": "MPS (Apple)", "hpu": "HPU (Gaudi)",
             "tpu": "TPU", "metal": "Metal (Apple)", "cpu": "host memory"}  # fmt: skip
_MINE = (("█", "green"), ("▒", "red"), ("▓", "blue"), ("▚", "yellow"))
_DRAWN = {"other processes": ("░", "magenta"), "free": ("·", "cyan"), "unknown": ("?", "dim")}
_BASIS = {"printed": "", "computed": "computed", "inferred": "inferred"}


class Group(NamedTuple):
    """Messages of one cause and kind."""

    messages: tuple[Message, ...]

    @property
    def first(self) -> Message:
        """The one that was printed first."""
        return self.messages[0]

    @property
    def times(self) -> int:
        """How many messages there are, repetitions included."""
        return sum(message.count for message in self.messages)


def groups(messages: Sequence[Message]) -> list[Group]:
    """Returns messages by cause and kind, in the order of their first ones."""
    found: dict[tuple[str, str, str], list[Message]] = {}
    for message in messages:
        found.setdefault((message.judgement.verdict, message.framework, message.dialect), []).append(message)
    return [Group(tuple(members)) for members in found.values()]


def ranks(numbers: Iterable[int | None]) -> str:
    """Returns ``0-7``, ``0-3, 5, 7``; "" where no rank is known."""
    known = sorted({number for number in numbers if number is not None})
    runs: list[list[int]] = []
    for number in known:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def cause_name(verdict: str) -> str:
    """Returns the name of a cause as words: ``other process``."""
    return plain(verdict).replace("_or_", " or ").replace("_", " ")


def sentence(message: Message) -> str:
    """Returns the verdict in a sentence: what happened, in plain words."""
    said = CAUSES.get(message.judgement.verdict, CAUSES["unknown"])
    return said[0].upper() + said[1:] + "."


def reasons(message: Message) -> list[str]:
    """Returns the arithmetic, a sentence each."""
    return [plain(reason) for reason in message.judgement.reasons]


def sureness(message: Message) -> str:
    """Returns how sure the verdict is, and what else it may be."""
    judgement = message.judgement
    others = [f"{cause_name(other)} ({SHORT_CAUSES.get(other, '')})" for other in judgement.alternatives]
    return f"{confidence(judgement.confidence)}" + (f". Otherwise: {', then '.join(others)}" if others else "") + "."


def confidence(level: Confidence) -> str:
    """Returns ``high: the numbers leave little doubt``."""
    return f"{level}: {SURE[level]}"


def place(message: Message) -> str:
    """Returns where a message stands: ``train.log line 10,412``."""
    line = f"line {format_count(message.line)}"
    return line if message.source in {"", "text"} else f"{'standard input' if message.source == '-' else plain(message.source)}, {line}"


def facts(message: Message) -> str:
    """Returns what a message is about, on one line."""
    framework = _FRAMEWORKS.get(message.framework, plain(message.framework))
    backend = _BACKENDS.get(message.backend, plain(message.backend))
    parts = [framework if framework == backend else f"{framework} on {backend}"]
    device = message.fields.get("device_index")
    if isinstance(device, int):
        parts.append(f"device {device}")
    if message.rank is not None:
        parts.append(f"rank {message.rank}")
    pid = message.fields.get("pid") or message.fields.get("log_pid")
    if isinstance(pid, int):
        parts.append(f"process {pid}")
    parts.append(place(message))
    if message.count > 1:
        parts.append(f"seen {plural(message.count, 'time')}")
    return " · ".join(parts)


def ledger_title(message: Message) -> str:
    """Returns what the ledger is an account of."""
    device = message.fields.get("device_index")
    where = f"device {device}" if isinstance(device, int) else "the device"
    return f"Where the memory of {where} was"


def ledger_rows(ledger: Sequence[LedgerEntry]) -> tuple[list[Row], LedgerEntry | None]:
    """Returns the parts of a ledger in the order of the bar, and the total if there is one.

    ``meaning`` says how a number is known, where it is not simply printed.
    """
    total = next((entry for entry in ledger if entry.owner == "total"), None)
    whole = total.bytes if total else None
    rows: list[Row] = []
    mine = 0
    for entry in ledger:
        if entry is total:
            continue
        glyph, style = _DRAWN.get(entry.owner) or _MINE[min(mine, len(_MINE) - 1)]
        mine += entry.owner == "this process"
        share = entry.bytes / whole if whole and entry.bytes is not None else None
        rows.append(Row(plain(entry.what), entry.bytes, share, _BASIS.get(entry.basis, ""), glyph, style))
    return rows, total


def tried(message: Message) -> str:
    """Returns what "Tried to allocate" is in this message; "" where nothing of the kind is printed."""
    wanted = message.fields.get("requested_bytes")
    if not isinstance(wanted, int):
        return ""
    size = format_bytes(wanted)
    if message.framework not in {"pytorch", "torch_npu"} or message.backend not in {"cuda", "hip", "npu", "xpu"}:
        return f"The {size} wanted is the one request that failed, not what the program needs in all."
    if wanted <= 2 * MIB:
        return f"The {size} wanted is not the size of a tensor: for any tensor up to 1 MiB, PyTorch asks the driver for 2 MiB."
    if wanted == 20 * MIB:
        return f"The {size} wanted is not the size of a tensor: for any tensor of 1 to 10 MiB, PyTorch asks the driver for 20 MiB."
    return f"The {size} wanted is one tensor (rounded up to 2 MiB), not what the program needs in all."


def wanted_range(messages: Sequence[Message]) -> str:
    """Returns the sizes asked for: ``1.50 GiB``, ``512 B to 1.50 GiB``; "" if none is known."""
    sizes = [size for message in messages if isinstance(size := message.fields.get("requested_bytes"), int)]
    if not sizes:
        return ""
    low, high = format_bytes(min(sizes)), format_bytes(max(sizes))
    return low if low == high else f"{low} to {high}"


def summary(report: OomReport) -> str:
    """Returns how many messages there are, of how many causes, and which rank was first."""
    found = groups(report.messages)
    count = sum(group.times for group in found)
    causes = len({group.first.judgement.verdict for group in found})
    failed = {message.rank for message in report.messages if message.rank is not None}
    text = f"{plural(count, 'out-of-memory message')}, {plural(causes, 'cause')}"
    if len(failed) > 1:
        text += f", {plural(len(failed), 'rank')}"
    first = report.messages[0]
    which = f"rank {report.first_rank} " if report.first_rank is not None and len(failed) > 1 else ""
    return f"{text}. First failed: {which}({place(first)})." if which else f"{text}. The first: {place(first)}."


def looked_at(report: OomReport) -> str:
    """Returns what was read: ``text, 3 lines``, ``4 files, 120,402 lines``."""
    names = ["standard input" if name == "-" else plain(name) for name in report.sources]
    where = ", ".join(names[:3]) + (f" and {plural(len(names) - 3, 'more file')}" if len(names) > 3 else "")
    return f"{where or 'nothing'} ({plural(report.num_lines, 'line')}, {format_bytes(report.num_bytes)})"


def excerpt(message: Message, limit: int) -> str:
    """Returns the message on one line, in at most ``limit`` characters."""
    return shorten(plain(" ".join(message.text.split())), limit)


def share(row: Row) -> str:
    """Returns the share of a row as text."""
    return percent(row.share)
