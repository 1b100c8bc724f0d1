"""The words of an out-of-memory report: its heading, its reasons, and where a message was printed.

The terminal and markdown renderers show the same texts. ``oom_account`` makes the rows of the account of memory,
``oom_actions`` chooses remedies and next steps, ``oom_many`` summarizes many messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.results.finding import Fix
from memdiag.results.oom import Message
from memdiag.text import Phrase, joined, language, phrase, plain

_BACKENDS = {
    "cuda": "CUDA",
    "hip": "ROCm",
    "npu": "Ascend NPU",
    "xpu": "XPU",
    "mps": "MPS",
    "hpu": "Gaudi",
    "tpu": "TPU",
    "metal": "Metal",
    "vulkan": "Vulkan",
    "directml": "DirectML",
}
_CARDS = {"cuda": "GPU", "hip": "GPU", "npu": "NPU", "tpu": "TPU", "hpu": "HPU", "xpu": "XPU"}
# Names that begin a sentence in lower case.
_LOWER_CASE = frozenset(
    {
        "torch",
        "jax",
        "numpy",
        "ggml",
        "hbm",
        "vmem",
        "smem",
        "nccl",
        "vllm",
        "pip",
        "dmesg",
        "systemd",
        "earlyoom",
        "torchrun",
    }
)
_NO_BACKEND = frozenset({"torch_npu", "kubernetes", "slurm", "lsf", "pbs"})  # the name includes the location
_SENTENCE_ENDS = (".", "!", "?", ":", "…", "。", "\uff01", "\uff1f", "\uff1a")  # the last three: full-width punctuation


def is_shortage(message: Message) -> bool:
    """Returns whether the message means that memory ran out at all."""
    return message.judgement.verdict != "unknown" or message.judgement.confidence != "high"


def cause_name(verdict: str) -> Phrase:
    """Returns the name of a cause in lower case: ``other processes``."""
    return phrase(f"oom.cause.{verdict}")


def cause_of(message: Message) -> Phrase:
    """Returns the name of the cause of a message."""
    return cause_name(message.judgement.verdict) if is_shortage(message) else phrase("oom.cause.none")


def heading(message: Message) -> str:
    """Returns ``FRAGMENTATION (confidence high)``."""
    level = phrase(f"oom.confidence.{message.judgement.confidence}")
    return phrase("oom.heading", cause=str(cause_of(message)).upper(), confidence=phrase("oom.confidence", level=level))


def meaning(message: Message) -> Phrase:
    """Returns the meaning of the cause as a sentence."""
    verdict, confidence = message.judgement.verdict, message.judgement.confidence
    if not is_shortage(message):
        return phrase("oom.means.none")
    if verdict == "host" and confidence != "high":
        return phrase("oom.means.host.low") if confidence == "low" else phrase("oom.means.host.medium")
    if verdict == "host" and "limit" in message.judgement.alternatives:
        return phrase("oom.means.host.limit")
    free, requested = message.fields.get("free_bytes"), message.fields.get("requested_bytes")
    if verdict == "limit" and not (isinstance(free, int) and isinstance(requested, int) and free >= requested):
        return phrase("oom.means.limit.own")  # the message does not show that the device has more
    return phrase(f"oom.means.{verdict}")


def reasons(message: Message) -> list[str]:
    """Returns the reasons for the verdict, a sentence each, the decisive one first."""
    return [as_sentence(plain(reason)) for reason in message.judgement.reasons if reason.strip()]


def explanation(message: Message) -> list[str]:
    """Returns the sentences below the heading in order of importance.

    They are the reasons, preceded by the meaning if the reasons alone do not state it.
    """
    known = reasons(message)
    certain = message.judgement.verdict not in {"unknown", "host"} and bool(known)
    return known if certain else [meaning(message), *known]


def as_sentence(text: str) -> str:
    """Returns a text with a capital letter and a full stop."""
    if not text:
        return text
    end = "" if text.endswith(_SENTENCE_ENDS) else "。" if language() == "zh" else "."
    first = text.split(" ", 1)[0].rstrip(",:;")
    is_word = first.isascii() and first.isalpha() and first.islower() and first not in _LOWER_CASE
    return (text[:1].upper() if is_word else text[:1]) + text[1:] + end


def caveat(fix: Fix) -> str:
    """Returns the cost and conditions of a remedy as a sentence, or "" if there are none."""
    return as_sentence(plain(fix.caveat, 400)) if fix.caveat else ""


def doubts(message: Message) -> str:
    """Returns the other possible causes as a sentence, or "" if there are none."""
    others = [cause_name(other) for other in message.judgement.alternatives if other != "unknown"]
    return phrase("oom.doubts", causes=joined(others, ", ")) if others else ""


def card(message: Message) -> str:
    """Returns ``GPU 3``, ``the NPU``, ``the host``, ``the device``."""
    if message.backend == "cpu":
        return phrase("oom.card.host")
    name, device = _CARDS.get(message.backend, ""), message.fields.get("device_index")
    if isinstance(device, int):
        return (
            phrase("oom.card.number", name=name, number=str(device))
            if name
            else phrase("oom.card.device.number", number=str(device))
        )
    return phrase("oom.card", name=name) if name else phrase("oom.card.device")


def place(message: Message) -> str:
    """Returns the place of a message.

    It is ``train.log:10412``, or "" for the first line of a text and for a failure in a trace.
    """
    name, line = plain(message.source), message.line
    if name == "-":
        return phrase("oom.place.stdin", line=str(line))
    if name in {"", "text"}:
        return phrase("oom.place.line", line=str(line)) if line > 1 else ""
    return f"{name}:{line}" if line > 0 else name


def where(messages: Sequence[Message]) -> str:
    """Returns the device, the ranks and the place of the first of several messages."""
    first = messages[0]
    ranks = {message.rank for message in messages if message.rank is not None}
    rank = "" if first.rank is None else phrase("oom.where.rank", rank=str(first.rank))
    at = joined([rank, place(first)], ", ")
    parts: list[str] = [card(first)] if isinstance(first.fields.get("device_index"), int) else []
    if len(messages) > 1:
        parts.append(
            phrase("oom.where.ranks", count=len(ranks))
            if len(ranks) > 1
            else phrase("oom.where.messages", count=sum(message.count for message in messages))
        )
        at = phrase("oom.where.first", place=at) if at else at
    return joined([*parts, at], ", ")


def framework_name(message: Message, limit: int = 0) -> str:
    """Returns the name of the program that printed a message."""
    if message.framework == "shell":
        return phrase("oom.facts.shell")
    return plain(message.program or message.framework, limit)


def facts(message: Message) -> str:
    """Returns the origin of the message, on one line."""
    framework = framework_name(message)
    backend = (
        phrase("oom.facts.host") if message.backend == "cpu" else _BACKENDS.get(message.backend, plain(message.backend))
    )
    alone = str(backend) in framework or message.framework in _NO_BACKEND
    parts = [framework if alone else phrase("oom.facts.on", framework=framework, backend=backend)]
    if isinstance(message.fields.get("device_index"), int):
        parts.append(card(message))
    if message.rank is not None:
        parts.append(phrase("oom.where.rank", rank=str(message.rank)))
    pid = message.fields.get("pid", message.fields.get("log_pid"))
    if isinstance(pid, int):
        parts.append(phrase("oom.facts.process", pid=str(pid)))
    parts.append(place(message))
    if message.count > 1:
        parts.append(phrase("oom.facts.times", count=message.count))
    return " · ".join(part for part in parts if part)
