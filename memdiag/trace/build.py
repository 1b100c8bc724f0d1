"""From a file's columns to a Trace. (in progress)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memdiag.findings import Note
from memdiag.trace.layout import Layout
from memdiag.trace.model import Trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.stacks import Stacks
from memdiag.trace.table import Table


def build_trace(
    *,
    path: str,
    format: str,
    backend: str | None,
    raws: Sequence[RawDevice],
    layout: Layout | None = None,
    stacks: Stacks | None = None,
    torch_version: str | None = None,
    phantom: bool = False,
    settings: Mapping[str, object] | None = None,
    strings: Sequence[str] = (),
    annotations: Table | None = None,
    notes: Sequence[Note] = (),
) -> Trace:
    """Works out lifecycles, the state before the trace, every block's size and the bytes after every event."""
    raise NotImplementedError
