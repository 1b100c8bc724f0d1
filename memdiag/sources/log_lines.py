"""Lines of a program's log: split piecewise within limits, with the time that a prefix may contain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memdiag.sources.growing import ByteLimit
from memdiag.sources.text_files import open_text

_LONGEST = 64 * 1024  # characters of a line
_LINE = 8  # budget bytes charged for every line, to limit the work
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T-](\d\d):(\d\d):(\d\d)(?:[.,:](\d{1,6})(?:\.(\d{3}))?)?")
_SEARCHED = 200  # characters at the beginning of a line that may contain its time
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def lines_of(path: Path, budget: ByteLimit) -> Iterator[str]:
    """Yields the lines of a text file; the rest of a line of more than 64 KiB is another line.

    Raises:
        RefusedFile: The budget is exhausted, or a gzip expands to an absurd size.
    """
    with open_text(path, errors="replace") as text:
        while line := text.readline(_LONGEST):
            budget.spend(_LINE)
            yield line


def time_in(line: str) -> int:
    """Returns the time at the beginning of a line in microseconds since 1970 (as if it were UTC), or -1 if none."""
    match = _TIME.search(line[:_SEARCHED])
    if match is None:
        return -1
    year, month, day, hour, minute, second = (int(group) for group in match.groups()[:6])
    fraction = f"{match[7] or ''}{match[8] or ''}"[:6].ljust(6, "0")
    try:
        moment = datetime(year, month, day, hour, minute, second, int(fraction), tzinfo=UTC)
    except ValueError:
        return -1
    return max((moment - _EPOCH) // timedelta(microseconds=1), -1)
