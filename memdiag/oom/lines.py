"""One line of a log: what the program said, and who said it as loggers and launchers write it around."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[(?:\d{1,3}(?:;\d{1,3})*)?m")
_RANK = re.compile(r"\[rank\s*(\d+)\]:?")
_PID = re.compile(r"\((\w[\w.-]*)\s+(?:rank=(\d+)\s+)?pid=(\d+)[^)]*\)")


@dataclass(frozen=True, slots=True)
class Line:
    """One line.

    Attributes:
        number: From 1, in its file.
        text: What the program said: no ANSI codes, no timestamp, rank, process or quotation mark before it.
        rank: Rank named before the text ("[rank3]:", "rank=3"); None if none is.
        local_rank: Local rank named before the text ("[default3]:").
        log_pid: Process named before the text ("(Worker pid=123)").
        key: Who speaks, to tell interleaved speakers apart; "" if the line does not say.
        repeats: How many more times Ray says that it was printed ("[repeated 6x across cluster]").
    """

    number: int
    text: str
    rank: int | None = None
    local_rank: int | None = None
    log_pid: int | None = None
    key: str = ""
    repeats: int = 0


def read_line(number: int, raw: str) -> Line:
    """Takes a line of a log apart."""
    text = _ANSI.sub("", raw)
    rank, pid = _RANK.search(text), _PID.search(text)
    number_of_rank = int(rank[1]) if rank else int(pid[2]) if pid and pid[2] else None
    text = re.sub(r"^[\s#>`-]+", "", _PID.sub("", _RANK.sub("", text)))
    return Line(number, text, number_of_rank, None, int(pid[3]) if pid else None, (rank or pid or [""])[0])
