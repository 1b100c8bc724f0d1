"""The words of an out-of-memory report: causes, places and amounts, for people who meet such a message for the first time.

The terminal and markdown renderers lay out the same rows; this is where the rows are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from memdiag.findings import Finding, Fix
from memdiag.oom.model import Message, OomReport
from memdiag.quoting import file_argument
from memdiag.render.text import plain, shorten
from memdiag.render.words import Row
from memdiag.units import MIB, format_bytes, format_count, plural

# What each cause means, in a sentence.
CAUSES = {
    "fragmentation": "Enough memory was free inside the program, but in pieces that this request could not use.",
    "capacity": "The program needs more memory than is there.",
    "other_process": "Other programs hold the memory of this device.",
    "limit": "A limit that was set stopped the program; the device itself has more.",
    "workspace_or_comm": "A library (communication, workspace, CUDA graphs) found no room beside what the framework holds.",
    "host": "The memory of the computer (RAM) ran out, not that of the device.",
    "unknown": "The message does not say enough to tell the cause.",
}
_LIMIT_OF_ITS_OWN = "A limit stopped the program: a share of the memory, a pool, or the size of one piece."
_PERHAPS_HOST = {
    "medium": "Probably the memory of the computer (RAM) ran out, not that of the device.",
    "low": "Perhaps the memory of the computer (RAM) ran out, perhaps a process crashed.",
}
_SHARE_OF_HOST = "The memory of the computer (RAM) ran out, or the part of it that this program may use; not that of the device."
_NO_SHORTAGE = "No memory ran out: the size that was asked for is wrong, or something is broken."
# Written small wherever they stand.
_SMALL = frozenset(
    {"torch", "jax", "numpy", "ggml", "hbm", "vmem", "smem", "nccl", "vllm", "pip", "dmesg", "systemd", "earlyoom", "torchrun"}
)
# The same in a few words, for lists and alternatives.
SHORT_CAUSES = {
    "fragmentation": "free memory in unusable pieces",
    "capacity": "more needed than there is",
    "other_process": "other programs hold the memory",
    "limit": "a limit that was set",
    "workspace_or_comm": "no room for a library",
    "host": "the computer's RAM ran out",
    "unknown": "cannot be told",
}
SURE = {"high": "little doubt", "medium": "likely, but not proven", "low": "the message does not decide it"}
_FRAMEWORKS = {
    "pytorch": "PyTorch", "torch_npu": "PyTorch (torch_npu)", "torch7": "Torch 7", "jax": "JAX", "xla": "XLA", "tensorflow": "TensorFlow",
    "tensorflow-ge": "TensorFlow (Ascend GE)", "mindspore": "MindSpore", "paddle": "PaddlePaddle", "onnxruntime": "ONNX Runtime",
    "vllm": "vLLM", "sglang": "SGLang", "cupy": "CuPy", "triton": "Triton", "ollama": "Ollama", "mlx": "MLX", "nccl": "NCCL",
    "cann": "CANN", "cann-hccl": "HCCL (CANN)", "tensorrt": "TensorRT", "ray": "Ray", "slurm": "Slurm", "linux": "Linux",
    "shell": "the shell", "numpy": "NumPy", "cuda": "CUDA", "python": "Python", "kubernetes": "Kubernetes", "lsf": "LSF", "pbs": "PBS",
    "numba": "Numba", "opencv": "OpenCV", "pycuda": "PyCUDA", "rapids": "RAPIDS", "sycl": "SYCL",
    "xgboost": "XGBoost", "faiss": "Faiss", "mxnet": "MXNet", "ctranslate2": "CTranslate2", "lightgbm": "LightGBM", "dali": "DALI",
    "caffe": "Caffe", "theano": "Theano", "warp": "Warp", "taichi": "Taichi", "rocm": "ROCm", "tgi": "TGI", "exllama": "ExLlama",
    "cpp": "C++", "rust": "Rust", "java": "Java", "go": "Go", "node": "Node.js", "r": "R", "julia": "Julia", "arrow": "Arrow",
    "yarn": "YARN", "dask": "Dask", "docker": "Docker", "sge": "Grid Engine", "vertex": "Vertex AI", "mindie": "MindIE",
    "hami": "HAMi", "flashinfer": "FlashInfer", "thrust": "Thrust",
}  # fmt: skip
# Whose messages are about one tensor, not about a model or a pool.
_ALLOCATORS = frozenset({"pytorch", "torch_npu", "jax", "tensorflow", "mindspore", "paddle", "onnxruntime", "cupy", "mlx"})
_BACKENDS = {
    "cuda": "CUDA", "hip": "ROCm", "npu": "Ascend NPU", "xpu": "XPU", "mps": "MPS", "hpu": "Gaudi", "tpu": "TPU", "metal": "Metal",
    "vulkan": "Vulkan", "directml": "DirectML", "cpu": "the host",
}  # fmt: skip
_CARDS = {"cuda": "GPU", "hip": "GPU", "npu": "NPU", "tpu": "TPU", "hpu": "HPU", "xpu": "XPU", "cpu": "host"}
_MINE = (("█", "green"), ("▒", "red"), ("▓", "blue"), ("▚", "yellow"))
_DRAWN = {"other processes": ("░", "magenta"), "free": ("·", "cyan"), "unknown": ("?", "dim")}
_BASIS = {"computed": "computed", "inferred": "inferred"}
# Sizes that a message prints, for those that have no ledger.
_SIZES = {
    "requested_bytes": "wanted", "free_bytes": "free", "limit_bytes": "the limit", "total_bytes": "in all", "allocated_bytes": "allocated",
    "reserved_bytes": "reserved", "process_bytes": "held by this process", "anon_rss_bytes": "held in RAM by the killed process",
    "total_vm_bytes": "address space of the killed process", "program_bytes": "needed by the program", "static_bytes": "static",
}  # fmt: skip
RECORD = "memdiag record -- python train.py"
_RECORDS_THIS = "memdiag record -- "  # the program that failed; "memdiag record --phantom" records another
LONGEST_PART = 300  # characters of what a part of the account is
MOST_REASONS = 4
EXAMPLES = (
    "CUDA out of memory. Tried to allocate …",
    "NPU out of memory. Tried to allocate …",
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate … bytes",
    "Out of memory: Killed process … (python)",
)


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
    """Returns what the verdict means."""
    verdict, sure = message.judgement.verdict, message.judgement.confidence
    if verdict == "unknown" and sure == "high":
        return _NO_SHORTAGE
    if verdict == "host" and sure != "high":
        return _PERHAPS_HOST[sure]
    if verdict == "host" and "limit" in message.judgement.alternatives:
        return _SHARE_OF_HOST
    said = CAUSES.get(verdict, CAUSES["unknown"])
    free, wanted = message.fields.get("free_bytes"), message.fields.get("requested_bytes")
    if verdict == "limit" and not (isinstance(free, int) and isinstance(wanted, int) and free >= wanted):
        said = _LIMIT_OF_ITS_OWN  # that the device has more is not printed
    return f"Perhaps {said[:1].lower()}{said[1:]}" if sure == "low" and verdict != "unknown" else said


def reasons(message: Message, most: int = 0) -> list[str]:
    """Returns the arithmetic, a sentence each: the first ``most`` of them, all for 0."""
    given = [reason for reason in message.judgement.reasons if reason.strip()]
    return [_as_sentence(plain(reason)) for reason in given[: most or None]]


def _as_sentence(text: str) -> str:
    first, end = text.split(" ", 1)[0], "" if text.endswith((".", "!", "?", ":", "…")) else "."
    starts_small = first.rstrip(",:;").isalpha() and first.islower() and first.rstrip(",:;") not in _SMALL
    return (text[:1].upper() if starts_small else text[:1]) + text[1:] + end


def sureness(message: Message) -> str:
    """Returns how sure the verdict is, and what else it may be."""
    judgement = message.judgement
    others = [f"{cause_name(other)} ({SHORT_CAUSES.get(other, '')})" for other in judgement.alternatives if other != "unknown"]
    return f"{judgement.confidence}: {SURE[judgement.confidence]}." + (f" If not that: {', or '.join(others)}." if others else "")


def card(message: Message) -> str:
    """Returns ``GPU 3``, ``the NPU``, ``the host``, ``the device``."""
    name, device = _CARDS.get(message.backend, "device"), message.fields.get("device_index")
    return f"{name} {device}" if isinstance(device, int) and name != "host" else f"the {name}"


def place(message: Message) -> str:
    """Returns where a message stands: ``train.log:10412``; "" for the first line of a text, and for what comes from a trace."""
    name, line = plain(message.source), message.line
    if name == "-":
        return f"standard input, line {format_count(line)}"
    if name in {"", "text"}:
        return f"line {format_count(line)}" if line > 1 else ""
    return f"{name}:{line}" if line > 0 else name


def facts(message: Message) -> str:
    """Returns whose message it is, on one line."""
    framework = _FRAMEWORKS.get(message.framework, plain(message.framework))
    backend = _BACKENDS.get(message.backend, plain(message.backend))
    alone = backend in framework or message.framework in {"torch_npu", "kubernetes", "slurm", "lsf", "pbs"}
    parts = [framework if alone else f"{framework} on {backend}"]
    if isinstance(message.fields.get("device_index"), int):
        parts.append(card(message))
    if message.rank is not None:
        parts.append(f"rank {message.rank}")
    pid = message.fields.get("pid", message.fields.get("log_pid"))
    if isinstance(pid, int):
        parts.append(f"process {pid}")
    parts.append(place(message))
    if message.count > 1:
        parts.append(f"printed {plural(message.count, 'time')}")
    return " · ".join(part for part in parts if part)


def total_of(message: Message) -> int | None:
    """Returns what the ledger adds up to; None where that is not known."""
    return next((entry.bytes for entry in message.ledger if entry.owner == "total"), None)


def scale_of(message: Message) -> int | None:
    """Returns what the bar is a bar of: the total, else what the parts that are known add up to; None where it would show nothing."""
    if all(entry.owner in {"unknown", "total"} for entry in message.ledger):
        return None
    parts = [entry.bytes for entry in message.ledger if entry.owner != "total" and entry.bytes]
    return total_of(message) or (sum(parts) if len(parts) > 1 else None)


def ledger_title(message: Message) -> str:
    """Returns what the ledger is an account of."""
    if not scale_of(message):
        return "What the message says"
    return f"Where the memory of {card(message)} was" + ("" if total_of(message) else " (its size is not known)")


def ledger_rows(message: Message) -> list[Row]:
    """Returns the parts of a device's memory in the order of the bar; where there is no bar, the sizes that are printed.

    ``meaning`` says how a number is known where it is not simply printed.
    """
    whole = scale_of(message)
    if not whole:
        sizes = ((what, message.fields.get(name)) for name, what in _SIZES.items())
        return [Row(what, size, None, "", " ") for what, size in sizes if isinstance(size, int)]
    rows: list[Row] = []
    mine = 0
    for entry in message.ledger:
        if entry.owner != "total":
            glyph, style = _DRAWN.get(entry.owner) or _MINE[min(mine, len(_MINE) - 1)]
            mine += entry.owner == "this process"
            share = entry.bytes / whole if entry.bytes is not None else None
            rows.append(Row(plain(entry.what, LONGEST_PART), entry.bytes, share, _BASIS.get(entry.basis, ""), glyph, style))
    return rows


def tried(message: Message) -> str:
    """Returns what "Tried to allocate" is in this message; "" where nothing of the kind is printed."""
    wanted = message.fields.get("requested_bytes")
    if not isinstance(wanted, int) or not wanted:
        return ""
    size = format_bytes(wanted)
    if message.framework not in _ALLOCATORS or "workspace" in message.dialect:
        return f"{size} is one operator's scratch memory, not what the program needs in all." if "workspace" in message.dialect else ""
    if message.framework == "jax" and message.backend != "cpu":
        return f"{size} is one buffer. For a compiled step it usually holds all its temporaries together."
    if message.framework not in {"pytorch", "torch_npu"} or message.backend not in {"cuda", "hip", "npu", "xpu"}:
        return f"{size} is the one request that failed, not what the program needs in all."
    if wanted == 2 * MIB:
        return f"{size} is no tensor's size: for any tensor of up to 1 MiB, PyTorch asks the driver for 2 MiB."
    if wanted == 20 * MIB:
        return f"{size} is probably no tensor's size: for any tensor of 1 to 10 MiB, PyTorch asks the driver for 20 MiB."
    return f"{size} is the size of one tensor, the one that failed (rounded up); not what the program needs in all."


def wanted_range(messages: Sequence[Message]) -> str:
    """Returns the sizes asked for: ``1.50 GiB``, ``512 B to 1.50 GiB``; "" if none is known."""
    sizes = [size for message in messages if isinstance(size := message.fields.get("requested_bytes"), int)]
    if not sizes:
        return ""
    low, high = format_bytes(min(sizes)), format_bytes(max(sizes))
    return low if low == high else f"{low} to {high}"


def summary(report: OomReport) -> str:
    """Returns how many messages there are, of which ranks and how many causes, and which was first."""
    first, found = report.messages[0], groups(report.messages)
    failed = {message.rank for message in report.messages if message.rank is not None}
    causes = {group.first.judgement.verdict for group in found}
    parts = [plural(sum(group.times for group in found), "out-of-memory message")]
    if failed:
        parts.append(shorten(f"rank{'s' * (len(failed) > 1)} {ranks(failed)}", 40))
    parts.append("one cause" if len(causes) == 1 else f"{len(causes)} causes")
    who = f"rank {first.rank}" if first.rank is not None and len(failed) > 1 else ""
    where = ", ".join(part for part in (who, place(first)) if part)
    return ", ".join(parts) + "." + (f" First: {where}." if where else "")


def overview(report: OomReport, *, every: bool, top: int, width: int = 200) -> tuple[list[str], list[list[str]], str]:
    """Returns the head and the rows of a table of many messages, and a sentence on what it leaves out.

    Args:
        report: The messages.
        every: A row for each message, rather than for groups of them.
        top: Rows, at most; every message has its row with ``every``.
        width: Columns of the page: narrow ones get fewer columns of the table.
    """
    rows = [Group((message,)) for message in report.messages] if every else groups(report.messages)
    shown = rows if every else rows[:top]
    table: dict[str, list[str]] = {"times": [format_count(group.times) for group in shown]}
    if any(message.rank is not None for message in report.messages):
        table["rank" if every else "ranks"] = [shorten(ranks(message.rank for message in group.messages), 16) for group in shown]
    table["cause"] = [cause_name(group.first.judgement.verdict) for group in shown]
    if width >= 80:
        table["wanted"] = [wanted_range(group.messages) for group in shown]
    if width >= 100:
        table["whose"] = [_FRAMEWORKS.get(group.first.framework, plain(group.first.framework, 20)) for group in shown]
    table["first at"] = [place(group.first) for group in shown]
    left = len(rows) - len(shown)
    cells = [list(row) for row in zip(*table.values(), strict=True)]
    return list(table), cells, f"and {plural(left, 'more kind')} (--top {len(rows)})" if left else ""


def nothing(report: OomReport) -> list[str]:
    """Returns what to say where no message was found: what was looked at, and what such messages look like."""
    if report.trace:
        said = [f"No request failed in the trace {plain(report.trace)}. What filled it: memdiag analyze {plain(report.trace)}"]
        if not report.num_bytes:
            return said
    elif report.num_bytes:
        said = []
    else:
        said = ["There is nothing in it. Did the program write to stderr? Then: python train.py > train.log 2>&1"]
    return [f"Looked at {looked_at(report)}.", *said, "Such a message says that memory ran out, in words like these:"]


def others(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Returns name and decisive reason of the causes that the first message does not have."""
    first = messages[0].judgement.verdict
    found = [group.first for group in groups(messages)]
    named: dict[str, Message] = {}
    for message in found:
        named.setdefault(message.judgement.verdict, message)
    rows = [(cause_name(verdict), message) for verdict, message in named.items() if verdict != first]
    return [(name, " ".join([*reasons(message)[:1], f"({place(message)})" if place(message) else ""]).strip()) for name, message in rows]


def left_out(report: OomReport) -> str:
    """Returns what the report does not show, as a sentence; "" if that is nothing."""
    parts = [plural(report.num_warnings_left_out, "warning") + " after which the program went on"] if report.num_warnings_left_out else []
    parts += [plural(report.num_left_out, "message") + " more"] if report.num_left_out else []
    return f"Left out: {' and '.join(parts)}." if parts else ""


def looked_at(report: OomReport) -> str:
    """Returns what was read: ``text, 3 lines``, ``4 files, 120,402 lines``."""
    names = ["standard input" if name == "-" else plain(name) for name in report.sources]
    where = ", ".join(names[:3]) + (f" and {plural(len(names) - 3, 'more file')}" if len(names) > 3 else "")
    return f"{where or 'nothing'} ({plural(report.num_lines, 'line')}, {format_bytes(report.num_bytes)})"


def excerpt(message: Message, limit: int) -> str:
    """Returns the message on one line, in at most ``limit`` characters."""
    return shorten(plain(" ".join(message.text.split())), limit)


def caveat(fix: Fix) -> str:
    """Returns what to know about a remedy (its price, its conditions) as a sentence; "" if there is nothing."""
    return _as_sentence(plain(fix.caveat, 400)) if fix.caveat else ""


def remedies(finding: Finding) -> list[Fix]:
    """Returns what to do about a finding, without how to record the run: that is a next step."""
    return [fix for fix in finding.fixes if fix.kind != "record"]


def next_steps(message: Message, trace: str = "") -> list[tuple[str, str]]:
    """Returns pairs of a purpose and the lines to paste: how to see what filled the memory, where that helps. Each line runs as printed.

    Args:
        message: The message that is explained.
        trace: The trace that was read with it; "" if there was none.
    """
    if trace:
        file = file_argument(plain(trace))
        if message.moment:
            return [("see everything that held memory at that moment", f"memdiag analyze {file} {message.moment}")]
        return [("see what filled the memory in the trace", f"memdiag analyze {file}")]
    judgement = message.judgement
    no_shortage = judgement.verdict == "unknown" and judgement.confidence == "high"
    if message.dialect == "trace" or judgement.verdict in {"other_process", "host"} or no_shortage:
        return []
    recording = [fix for finding in message.findings for fix in finding.fixes if fix.kind == "record"]
    on_torch = message.framework in {"pytorch", "torch_npu"} and message.backend in {"cuda", "hip", "npu"}
    runs = [fix.change.splitlines() for fix in recording if fix.change.startswith(_RECORDS_THIS)]
    if not runs and (recording or not on_torch):
        return [(_in_a_sentence(fix.title), fix.change) for fix in recording[:1]]
    line = runs[0][0] if runs else RECORD
    log = plain(message.source)
    given = file_argument(log) + " " if log not in {"", "-", "text"} else ""
    after = [fix for fix in recording if fix.change.startswith(f"{line}\nmemdiag simulate")]
    return [
        ("see which tensors and lines of code filled the memory: run it once more, as you start it now, under", line),
        ("then see what held the memory when it failed", f"memdiag oom {given}--from-trace ."),
        *((f"then {_in_a_sentence(fix.title)}", fix.change.split("\n", 1)[1]) for fix in after),
    ]


def _in_a_sentence(title: str) -> str:
    return title[:1].lower() + title[1:]
