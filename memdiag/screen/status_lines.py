"""The three lines below the timeline: what happened at the moment, the bytes then, and what of them is free and why."""

from __future__ import annotations

from rich.text import Text

from memdiag.screen.lines import DIM, STRONG, joined, short
from memdiag.screen.walk import Walk
from memdiag.units import format_bytes, format_count, format_us
from memdiag.views.at_cursor import Moment

NUM_LINES = 3
_NAMES = 40  # characters


def status(walk: Walk, width: int) -> list[Text]:
    """Returns the lines, each at most ``width`` columns."""
    moment = walk.moment()
    lines = [_what(walk, moment, width), _held(moment, width), _free(moment, width)]
    return [Text(line, style=style, no_wrap=True, end="") for line, style in zip(lines, (STRONG, "", DIM), strict=True)]


def _what(walk: Walk, moment: Moment, width: int) -> str:
    total = walk.here.device.num_events
    if not total:
        return joined(["the last state, as the file has it"], width)
    if moment.at < 0:
        return joined([f"before the first of {format_count(total)} events"], width)
    parts = [f"event {format_count(moment.at)} of {format_count(total)}"]
    what = moment.action.replace("_", " ") + (f" {format_bytes(moment.size)}" if moment.size >= 0 else "")
    parts.append(what)
    if moment.step >= 0:
        parts.append(f"step {moment.step}")
    if moment.phase != "unknown":
        parts.append(moment.phase)
    if moment.since_us is not None:
        parts.append(f"at {format_us(moment.since_us)}")
    parts += [short(text, _NAMES) for text in (moment.place, moment.name) if text]
    return joined(parts, width)


def _held(moment: Moment, width: int) -> str:
    usage = moment.usage
    parts = [f"{name} {_bytes(usage[name])}" for name in ("reserved", "allocated")]
    if min(usage["active"], usage["allocated"]) >= 0:
        parts.append(f"pending {format_bytes(usage['active'] - usage['allocated'])}")
    parts.append(f"requested {_bytes(usage['requested'])}")
    return joined(parts, width, "  ")


def _free(moment: Moment, width: int) -> str:
    usage = moment.usage
    if min(usage["reserved"], usage["active"]) < 0:
        return joined(["what is free is not known from this file"], width)
    parts = [f"free {format_bytes(usage['reserved'] - usage['active'])}"]
    if min(usage[name] for name in ("cache", "stranded", "foreign")) >= 0:
        parts[0] += ": " + ", ".join(f"{name} {format_bytes(usage[name])}" for name in ("cache", "stranded", "foreign"))
    return joined(parts, width)


def _bytes(value: int) -> str:
    return format_bytes(value) if value >= 0 else "unknown"
