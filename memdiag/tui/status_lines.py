"""The lines below the timeline: the event, the bytes after it, the causes of free memory, and the totals of tensors."""

from __future__ import annotations

from rich.text import Text

from memdiag import vocabulary
from memdiag.text import joined as joined_phrases
from memdiag.text import phrase
from memdiag.tui import total_lines
from memdiag.tui.lines import DIM, STRONG, joined, short
from memdiag.tui.models.at_cursor import Moment
from memdiag.tui.walk import Walk
from memdiag.units import format_bytes, format_us

FEWEST, NUM_LINES, WITH_BAR = 3, 4, 5
_NAMES = 40  # characters


def status(walk: Walk, width: int, rows: int = NUM_LINES, *, color: bool = True) -> list[Text]:
    """Returns ``rows`` lines of at most ``width`` columns.

    There are totals with NUM_LINES rows, and also a bar with WITH_BAR.
    """
    moment, totals = walk.moment(), walk.totals()
    lines = [
        Text(_what(walk, moment, width), style=STRONG, no_wrap=True, end=""),
        _colored(_held(moment, width), "curve", color=color),
        _colored(_free(moment, width), "part", color=color),
    ]
    if rows >= WITH_BAR:
        lines.append(total_lines.bar(totals, _free_bytes(moment), walk.by, width, color=color))
    return lines if rows <= FEWEST else [*lines, total_lines.legend(totals, walk.by, width, color=color)]


def _colored(line: str, kind: vocabulary.Kind, *, color: bool) -> Text:
    """Returns a line in which every glyph of a legend has its colour."""
    text = Text(line, no_wrap=True, end="", style="" if kind == "curve" else DIM)
    for key, style in vocabulary.STYLES[kind].items():
        at = line.find(f"{style.glyph} {_name(kind, key)} ")
        if at >= 0 and color:
            text.stylize(f"not dim {style.color}", at, at + 1)
    return text


def _name(kind: vocabulary.Kind, key: str) -> str:
    return vocabulary.name("part", "pending") if (kind, key) == ("curve", "active") else vocabulary.name(kind, key)


def _what(walk: Walk, moment: Moment, width: int) -> str:
    total = walk.here.device.num_events
    if not total:
        return joined([phrase("screen.status.last")], width)
    if moment.at < 0:
        return joined([phrase("screen.status.before", count=total)], width)
    parts: list[str] = [phrase("screen.status.event", at=moment.at, count=total)]
    what = vocabulary.action(moment.action) + (f" {format_bytes(moment.size)}" if moment.size >= 0 else "")
    parts.append(what)
    if moment.step >= 0:
        parts.append(phrase("places.step", step=str(moment.step)))
    if moment.phase != "unknown":
        parts.append(vocabulary.name("phase", moment.phase))
    if moment.since_us is not None:
        parts.append(phrase("screen.status.time", time=format_us(moment.since_us)))
    parts += [short(text, _NAMES) for text in (moment.place, moment.name) if text]
    return joined(parts, width)


def _held(moment: Moment, width: int) -> str:
    usage = moment.usage
    parts = [
        f"{_glyph('curve', name)} {_name('curve', name)} {_bytes(usage[name])}" for name in ("reserved", "allocated")
    ]
    if min(usage["active"], usage["allocated"]) >= 0:
        parts.append(
            f"{_glyph('curve', 'active')} {_name('curve', 'active')} "
            f"{format_bytes(usage['active'] - usage['allocated'])}"
        )
    parts.append(f"{_name('curve', 'requested')} {_bytes(usage['requested'])}")
    return joined(parts, width, "  ")


def _free(moment: Moment, width: int) -> str:
    free = _free_bytes(moment)
    if not free:
        return joined([phrase("screen.status.free.unknown")], width)
    whole = moment.usage["reserved"] - moment.usage["active"]
    if len(free) == 1:
        return joined([phrase("screen.status.free", bytes=format_bytes(whole))], width)
    causes = joined_phrases(
        [f"{_glyph('part', name)} {_name('part', name)} {format_bytes(size)}" for name, size in free.items()], ", "
    )
    return joined([phrase("screen.status.free.parts", bytes=format_bytes(whole), parts=causes)], width)


def _free_bytes(moment: Moment) -> dict[str, int]:
    """Returns free bytes by cause; all as ``cache`` if causes are unknown; none if the free bytes are unknown."""
    usage = moment.usage
    if min(usage["reserved"], usage["active"]) < 0:
        return {}
    parts = {name: usage[name] for name in ("cache", "stranded", "foreign")}
    return parts if min(parts.values()) >= 0 else {"cache": usage["reserved"] - usage["active"]}


def _glyph(kind: vocabulary.Kind, name: str) -> str:
    return vocabulary.STYLES[kind][name].glyph


def _bytes(value: int) -> str:
    return format_bytes(value) if value >= 0 else phrase("summary.unknown")
