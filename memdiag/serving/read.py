"""From a server's log to its memory account."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.oom.read import read_text
from memdiag.oom.streams import chunks_of_file
from memdiag.results.oom import Message
from memdiag.results.serving import ServingCard, ServingFailure, ServingReport
from memdiag.serving.case import FailedStart
from memdiag.serving.engines import ENGINES, Engine
from memdiag.serving.rules import LogValue, LogValues, ValueCollector
from memdiag.serving.use import use_of
from memdiag.text import phrase

MOST_BYTES = 256 << 20  # a start-up log is far smaller
LONGEST_LINE = 100_000  # vLLM and SGLang print their configuration on one line
LONGEST_MESSAGE = 400
_COLOURS = re.compile(r"\x1b?\[\d{1,2}(?:;\d{1,3})*m")  # of a terminal; the clipboard may lose the escape character
_TABLE_OF_NVIDIA_SMI = re.compile(r"\d+MiB / +(\d+)MiB")


def read_log(name: str, total_bytes: int | None = None) -> ServingReport:
    """Returns the memory account in a log.

    Args:
        name: A path, or "-" for standard input; compressed files are decompressed.
        total_bytes: Memory of the card, if the log does not have it; None if unknown.

    Raises:
        MemdiagError: The log cannot be read, or no engine that memdiag knows wrote it.
    """
    if name != "-" and not Path(name).is_file():
        raise MemdiagError(phrase("serving.missing", name=name), phrase("serving.missing.hint"))
    data = bytearray()
    for chunk in chunks_of_file(name):
        data += chunk
        if len(data) > MOST_BYTES:
            break
    is_truncated = len(data) > MOST_BYTES
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"
    text = bytes(data[:MOST_BYTES]).decode(encoding, "replace")
    report = read_log_text(text, total_bytes, name)
    return replace(report, is_truncated=is_truncated)


def read_log_text(text: str, total_bytes: int | None = None, source: str = "text") -> ServingReport:
    """Returns the memory account in the text of a log.

    Raises:
        MemdiagError: No engine that memdiag knows wrote it.
    """
    engine = engine_of(text)
    if engine is None:
        raise MemdiagError(
            phrase("serving.no-engine", name=source),
            phrase("serving.no-engine.hint", engines=", ".join(each.PROGRAM for each in ENGINES.values())),
        )
    lines = text.splitlines()
    collector, found = _accounts(engine, lines, _total(total_bytes, text))
    cards = tuple(card for _, card in found)
    if len(cards) == 1 and cards[0].who.startswith("pid "):
        cards = (replace(cards[0], who=""),)
    facts = engine.facts(collector.server, [values for values, _ in found])
    report = ServingReport(
        source,
        engine.NAME,
        engine.PROGRAM,
        facts.version,
        cards,
        facts.kv_tokens,
        facts.kv_blocks,
        facts.max_concurrency,
        facts.max_model_len,
        facts.settings,
        None,
        len(lines),
        use=use_of(lines, engine.START, engine.NAME, _kv_bytes(cards)),
    )
    message = next(iter(read_text(text).messages), None)
    if message is None or message.is_warning:
        return report
    total = next((card.total_bytes for card in cards if card.whole == "card"), None)
    fields = message.fields
    if total is None and isinstance(fields.get("total_bytes"), int):
        total = int(str(fields["total_bytes"]))
    first = found[0] if found else (LogValues(), None)
    case = FailedStart(
        message.dialect,
        fields,
        _text_around(lines, message),
        first[1],
        first[0],
        collector.server,
        facts,
        total or total_bytes,
    )
    return replace(report, failure=_failure(engine, case, message))


def _kv_bytes(cards: tuple[ServingCard, ...]) -> int | None:
    """Returns the KV cache of the card that has the smallest one."""
    sizes = (part.bytes for card in cards for part in card.parts if part.kind == "kv_cache")
    return min((size for size in sizes if size), default=None)


def is_server_log(text: str) -> bool:
    """Returns whether a text has the memory figures of an inference server."""
    engine = engine_of(text)
    return engine is not None and bool(_accounts(engine, text.splitlines(), None)[1])


def engine_of(text: str) -> Engine | None:
    """Returns the engine whose signs are in a log, or None."""
    for _, engine in ENGINES.attempts(lambda each: each if any(sign in text for sign in each.SIGNS) else None):
        return engine
    return None


def _text_around(lines: list[str], message: Message) -> str:
    """Returns a message with the 60 lines before it: its traceback names the phase of the start."""
    first = max(message.line - 60, 0)
    return "\n".join([*lines[first : message.line], message.text])


def _accounts(
    engine: Engine, lines: list[str], given: LogValue | None
) -> tuple[ValueCollector, list[tuple[LogValues, ServingCard]]]:
    """Returns all values of a log, and those of each card with its account."""
    collector = ValueCollector(engine.RULES, engine.START, engine.KEPT)
    for number, line in _lines(lines, engine):
        collector.read(number, line)
    total = _shared_total(collector) or given
    alone = [reading for values in collector.cards.values() if (reading := values.get("only_free")) is not None]
    if len(alone) == 1:  # the lines name the card in another way than those of the buffers
        collector.server.found["only_free"] = alone[0]
    ordered = [collector.cards[who] for who in sorted(collector.cards, key=_natural)]
    accounts = ((values, engine.card(values, collector.server, total)) for values in ordered)
    found = [(values, card) for values, card in accounts if card is not None]
    whole = [each for each in found if any(part.kind == "weights" for part in each[1].parts)]
    if whole:  # lines of the launcher, which name no device, repeat some values of a worker
        found = [each for each in found if each in whole or each[0].is_device]
    return collector, found


def _natural(who: str) -> list[tuple[int, str]]:
    """Returns a key that sorts TP2 before TP10."""
    return [(int(part or -1) if part.isdigit() else -1, part) for part in re.split(r"(\d+)", who)]


def _lines(lines: list[str], engine: Engine) -> Iterator[tuple[int, str]]:
    """Yields the lines that may have a value, with their number."""
    anchored = re.compile("|".join(map(re.escape, engine.ANCHORS)))
    started = engine.START
    for number, raw in enumerate(lines, 1):
        if anchored.search(raw) or (started is not None and started.search(raw)):
            yield number, _COLOURS.sub("", raw[:LONGEST_LINE])


def _shared_total(collector: ValueCollector) -> LogValue | None:
    """Returns the size of a card that a line without a worker names, if all cards may have it."""
    totals = {
        (reading.bytes): reading for values in collector.cards.values() if (reading := values.get("total")) is not None
    }
    return next(iter(totals.values())) if len(totals) == 1 else None


def _total(given: int | None, text: str) -> LogValue | None:
    """Returns the size of the card: the user's, else that of a table of nvidia-smi in the log."""
    if given is not None:
        return LogValue(given, 0, "--device")
    sizes = {int(size) for size in _TABLE_OF_NVIDIA_SMI.findall(text)}
    if len(sizes) != 1:
        return None
    match = _TABLE_OF_NVIDIA_SMI.search(text)
    line = text.count("\n", 0, match.start()) + 1 if match else 0
    return LogValue(sizes.pop() << 20, line, match[0] if match else "")


def _failure(engine: Engine, case: FailedStart, message: Message) -> ServingFailure:
    return ServingFailure(
        message.line,
        message.dialect,
        " ".join(message.text.split())[:LONGEST_MESSAGE],
        case.missing_bytes,
        tuple(engine.fixes(case)),
    )
