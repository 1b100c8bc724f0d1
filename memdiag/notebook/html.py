"""HTML of results for notebooks, and the interactive page in a frame that can reach nothing outside itself.

Every text goes through ``plain`` and is escaped: names come from traces of strangers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from memdiag.text import phrase, plain
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from memdiag.results.live import LiveTensor, LiveTensors
    from memdiag.results.prediction import Prediction
    from memdiag.results.report import Report
    from memdiag.trace.model import Trace

_HEIGHT = 760  # pixels of the page in a notebook


def _text(value: object) -> str:
    return escape(plain(str(value)))


def _bytes(value: int | None) -> str:
    return phrase("notebook.unknown") if value is None else format_bytes(value)


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{_text(each)}</th>" for each in heads)
    body = "".join("<tr>" + "".join(f"<td>{_text(each)}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def report_html(report: Report) -> str:
    """Returns the headline, the peaks and the findings; the text of the report is folded."""
    from memdiag.render import renderer

    heads = [phrase(f"notebook.{key}") for key in ("device", "reserved", "allocated", "lost")]
    rows = [
        (
            each.device,
            _bytes(each.peak.reserved_bytes),
            _bytes(each.peak_allocated.allocated_bytes),
            _bytes(each.moment.lost_bytes if each.moment else None),
        )
        for each in report.devices
    ]
    findings = "".join(f"<li><code>{_text(each.code)}</code> {_text(each.title)}</li>" for each in report.findings)
    full = "\n".join(plain(line) for line in renderer("analyze", "terminal")(report).splitlines())
    return (
        f"<div><p><b>{_text(report.headline)}</b></p>{_table(heads, rows)}<ul>{findings}</ul>"
        f"<details><summary>{_text(phrase('notebook.full'))}</summary><pre>{escape(full)}</pre></details></div>"
    )


def prediction_html(prediction: Prediction) -> str:
    """Returns the numbers of a simulated run."""
    fits = phrase({True: "notebook.yes", False: "notebook.no", None: "notebook.unknown"}[prediction.fits])
    rows = [
        (phrase("notebook.policy"), prediction.policy),
        (phrase("notebook.conf"), prediction.conf or "-"),
        (phrase("notebook.reserved"), _bytes(prediction.peak_reserved_bytes)),
        (phrase("notebook.allocated"), _bytes(prediction.peak_allocated_bytes)),
        (phrase("notebook.error"), _bytes(prediction.calibration_error_bytes)),
        (phrase("notebook.saved"), _bytes(prediction.saved_bytes)),
        (phrase("notebook.ooms"), prediction.num_ooms),
        (phrase("notebook.fits"), fits),
    ]
    return _table(("memdiag simulate", ""), rows)


def trace_html(trace: Trace) -> str:
    """Returns the origin of a trace, and the size and the peak of each device."""
    heads = [phrase(f"notebook.{key}") for key in ("device", "events", "tensors", "allocated")]
    rows = []
    for each in trace.devices:
        peak = each.usage_at(each.peak("allocated"))["allocated"]
        rows.append((each.device, f"{each.num_events:,}", f"{len(each.tensors):,}", _bytes(None if peak < 0 else peak)))
    return f"<div><p><b>{_text(trace.path)}</b> ({_text(trace.format)})</p>{_table(heads, rows)}</div>"


def live_html(found: LiveTensors) -> str:
    """Returns the table of live tensors."""
    heads = [phrase(f"notebook.{key}") for key in ("bytes", "device", "tensor", "holders")]
    rows = [(format_bytes(each.num_bytes), each.device, _tensor(each), _holders(each)) for each in found.tensors]
    lines = "".join(f"<p>{_text(line)}</p>" for line in _summary(found))
    return f"<div>{lines}{_table(heads, rows)}</div>"


def live_text(found: LiveTensors) -> str:
    """Returns the table of live tensors as text."""
    rows = [
        f"{format_bytes(each.num_bytes):>12}  {each.device:<7} {_tensor(each)}\n{'':14}{_holders(each)}"
        for each in found.tensors
    ]
    return "\n".join(plain(line) for text in [*_summary(found), *rows] for line in text.split("\n"))


def _summary(found: LiveTensors) -> list[str]:
    lines = [phrase("notebook.live", bytes=format_bytes(found.num_bytes), count=found.num_storages)]
    if found.unseen_bytes:
        lines.append(phrase("notebook.unseen", bytes=format_bytes(found.unseen_bytes)))
    if not found.is_complete:
        lines.append(phrase("notebook.incomplete"))
    return [str(line) for line in lines]


def _tensor(each: LiveTensor) -> str:
    views = f" x{each.num_tensors}" if each.num_tensors > 1 else ""
    return f"{each.dtype} {list(each.shape)}{views}" + (f" {each.graph}" if each.graph else "")


def _holders(each: LiveTensor) -> str:
    return "; ".join(each.holders) or str(phrase("notebook.no-holder"))


def framed(page: str) -> str:
    """Returns an HTML page in a frame that may run its scripts, but has no access to the notebook or to the network."""
    return (
        f'<div><iframe sandbox="allow-scripts" style="width:100%;height:{_HEIGHT}px;border:0" '
        f'srcdoc="{escape(page)}"></iframe></div>'
    )
