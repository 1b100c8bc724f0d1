"""The memory account of an inference server, read from its start-up log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from memdiag.results.finding import Fix

PartKind = Literal[
    "weights",
    "weights_and_other",
    "kv_cache",
    "activations",
    "activations_and_other",
    "graphs",
    "other",
    "before_start",
    "free",
    "free_or_outside",
    "unknown",
    "rounding",
    "overlap",
]
PART_KINDS: tuple[PartKind, ...] = get_args(PartKind)
Whole = Literal["card", "free_at_start", "unknown"]
UseConclusion = Literal["preempted", "full", "limited", "ample", "fits"]


@dataclass(frozen=True, slots=True)
class ServingPart:
    """One part of the memory of a card.

    Attributes:
        kind: "weights", "weights_and_other" (with the memory outside PyTorch, if the log does not divide them),
            "kv_cache", "activations" (the peak of the profile run; for llama.cpp and Ollama the compute buffer),
            "activations_and_other" (if the log does not divide them), "graphs", "other" (outside PyTorch, or not named
            by the engine), "before_start" (in use before the server loaded anything), "free", "free_or_outside" (free,
            or in use by other processes), "unknown", "rounding" (difference of rounded figures) or "overlap" (negative:
            figures that count the same memory twice).
        bytes: Size of the part; null: unknown.
        basis: "printed" (the log has the number), "computed" (from printed numbers) or "given" (with the size of the
            card from ``--device``).
        line: Line of the log that has the number, from 1; 0: none.
        text: The words of that line.
    """

    kind: PartKind
    bytes: int | None
    basis: Literal["printed", "computed", "given"]
    line: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class ServingCard:
    """The account of one card.

    Attributes:
        who: Name of the worker or device in the log ("TP0", "CUDA1"); "" if the log names none.
        whole: What the parts sum up to: "card", "free_at_start" (the memory that was free when loading began) or
            "unknown".
        total_bytes: Sum of the parts; null: the log does not have it.
        total_line: Line of the log that has ``total_bytes``, from 1; 0: none.
        budget_bytes: Memory that the engine allows itself; null: unknown.
        parts: The parts. They sum up to ``total_bytes`` if it is known.
    """

    who: str
    whole: Whole
    total_bytes: int | None
    total_line: int
    budget_bytes: int | None
    parts: tuple[ServingPart, ...]

    @property
    def sum_bytes(self) -> int:
        """Sum of the parts with a known size."""
        return sum(part.bytes or 0 for part in self.parts)


@dataclass(frozen=True, slots=True)
class ServingFailure:
    """The failure of a server to start.

    Attributes:
        line: Line of the message, from 1.
        dialect: Form of the message, as in ``memdiag oom --json``.
        text: The message, at most 400 characters.
        missing_bytes: Memory that was missing; null: unknown.
        fixes: Flags to change, with the value that fits, the best first.
    """

    line: int
    dialect: str
    text: str
    missing_bytes: int | None
    fixes: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True)
class UsePoint:
    """Use of the KV cache in one line of the log.

    Attributes:
        line: The line, from 1.
        time: Time of the line, as in the log; "" if it has none.
        usage: Share of the KV cache in use, 0 to 1.
        running: Running requests.
        waiting: Waiting requests.
    """

    line: int
    time: str
    usage: float
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class ServingUse:
    """Use of the KV cache while the server ran, from the lines that the engine writes at intervals.

    Attributes:
        num_samples: Number of these lines.
        peak_usage: Largest share of the KV cache in use, 0 to 1; null: no line has it.
        peak_line: Line of the log with the largest share, from 1; 0: none.
        peak_time: Time of that line, as in the log; "" if it has none.
        running_at_peak: Running requests in that line.
        waiting_at_peak: Waiting requests in that line.
        max_running: Largest number of running requests.
        max_waiting: Largest number of waiting requests.
        num_preemptions: Requests that the engine stopped for lack of KV cache (SGLang: retracted); at least this many.
        conclusion: "preempted" (the KV cache was too small), "full" (requests waited for KV cache), "limited" (requests
            waited although the KV cache had room), "ample" (at most 60 % was in use, and no request waited) or "fits".
        needed_bytes: For "ample": KV cache of a card for the peak and a quarter more; null: unknown.
        fixes: Flags to change.
        points: The use over time, at most 60 points: the first and the last of these lines, and the line with the
            largest share of each equal part of the lines between them.
    """

    num_samples: int
    peak_usage: float | None
    peak_line: int
    peak_time: str
    running_at_peak: int
    waiting_at_peak: int
    max_running: int
    max_waiting: int
    num_preemptions: int
    conclusion: UseConclusion
    needed_bytes: int | None
    fixes: tuple[Fix, ...] = ()
    points: tuple[UsePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingReport:
    """The memory of an inference server.

    Attributes:
        source: Name of the log; "-" is standard input.
        engine: "vllm", "vllm-ascend", "sglang", "tensorrt-llm", "llama.cpp" or "ollama"; "" if none was recognised.
        program: Display name of the engine.
        version: Version of the engine; "" if the log does not have it.
        cards: One account for each card, in the order of the log.
        kv_tokens: Tokens in the KV cache; null: unknown.
        kv_blocks: Blocks in the KV cache; null: unknown.
        max_concurrency: Requests of ``max_model_len`` tokens that the KV cache holds; null: unknown.
        max_model_len: Longest request in tokens; null: unknown.
        settings: Memory settings that the log names, by their flag.
        failure: Why the server did not start; null if the log has no failure.
        num_lines: Lines read.
        is_truncated: Whether the log is longer than the part that was read.
        use: Use of the KV cache while the server ran; null if the log does not have it.
    """

    source: str
    engine: str
    program: str
    version: str
    cards: tuple[ServingCard, ...]
    kv_tokens: int | None
    kv_blocks: int | None
    max_concurrency: float | None
    max_model_len: int | None
    settings: Mapping[str, float]
    failure: ServingFailure | None
    num_lines: int
    is_truncated: bool = False
    use: ServingUse | None = None
