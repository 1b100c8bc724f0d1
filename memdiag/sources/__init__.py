"""Input formats: one file per format, with ``FORMAT`` (its name), ``sniff(head) -> bool`` and ``read(path) -> Trace``.

``head`` is the first 64 KiB, decompressed. ``read`` raises ``RefusedFile`` if the file cannot be opened, and reports
data that the format lacks in notes (codes MD9xx).
"""

from __future__ import annotations

from codecs import BOM_UTF16_BE, BOM_UTF16_LE, getincrementaldecoder
from os import PathLike
from pathlib import Path

from memdiag.errors import RefusedFile
from memdiag.quoting import file_argument
from memdiag.redaction import is_on
from memdiag.registry import SOURCES
from memdiag.sources.files import read_head
from memdiag.sources.known_files import refuse_known, resaved
from memdiag.sources.redacted import redacted
from memdiag.text import Phrase, phrase
from memdiag.trace.model import Trace

_OF_A_CHROME_TRACE = (b'"traceEvents"', b'"ph"')


def load(path: str | PathLike[str]) -> Trace:
    """Reads a trace of any known format. Nothing in the file is executed.

    Args:
        path: A PyTorch or torch_npu snapshot (.pickle, .pkl, .gz), a memory_viz page, a profiler trace, an Ascend
            profiler or msmemscope file, a lifespans csv, or an .npz of plain events.

    Raises:
        RefusedFile: The file is unsafe, damaged, or contains no memory trace; the message says which.
    """
    file = Path(path)
    head = read_head(file)
    for name, is_known in SOURCES.attempts(lambda source: source.sniff(head)):
        if is_known:
            try:
                trace: Trace = SOURCES.call(name, lambda source: source.read(file))
            except RefusedFile as error:
                if name == "chrome-trace" and not any(mark in head for mark in _OF_A_CHROME_TRACE):
                    raise RefusedFile(error.message, _hint_for_text(file)) from None  # perhaps a log in JSON
                raise
            return redacted(trace) if is_on() else trace
    refuse_known(head, file)
    for key, before in resaved(head):
        if _is_known(before):
            raise RefusedFile(
                phrase("errors.resaved", path=str(file), what=phrase(f"errors.resaved.{key}")),
                phrase("errors.resaved.hint"),
            )
    hint = _hint_for_text(file) if _is_text(head) else phrase("sources.forms")
    raise RefusedFile(phrase("errors.no-trace", path=str(file)), hint)


def _hint_for_text(file: Path) -> Phrase:
    return phrase("sources.text.hint", file=file_argument(str(file)), forms=phrase("sources.forms"))


def _is_known(head: bytes) -> bool:
    """Returns whether a source reads a file that begins like this."""
    return any(is_known for _, is_known in SOURCES.attempts(lambda source: source.sniff(head)))


def _is_text(head: bytes) -> bool:
    """Returns whether a file is text, such as the output of a program, which PowerShell writes in UTF-16."""
    if head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return True
    if b"\0" in head:
        return False
    try:
        getincrementaldecoder("utf-8")().decode(head)  # the last character may be truncated
    except UnicodeDecodeError:
        return False
    return True
