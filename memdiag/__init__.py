"""Finds out why an accelerator ran out of memory, and how to prevent it.

>>> import memdiag
>>> report = memdiag.analyze(memdiag.load("trace.pkl"))  # doctest: +SKIP
>>> report.headline  # doctest: +SKIP

Names are imported on first use, so ``import memdiag`` (and ``memdiag --help``) does not load numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memdiag.analyzers.report import build_report as analyze
    from memdiag.notebook.live import live
    from memdiag.notebook.magic import load_ipython_extension as load_ipython_extension
    from memdiag.recorder.in_program import arm, mark, recording
    from memdiag.results.report import Report
    from memdiag.sources import load
    from memdiag.trace.model import Trace
    from memdiag.version import __version__

__all__ = ["Report", "Trace", "__version__", "analyze", "arm", "live", "load", "mark", "recording"]

_PUBLIC = {
    "analyze": "memdiag.analyzers.report:build_report",
    "load": "memdiag.sources:load",
    "Report": "memdiag.results.report:Report",
    "Trace": "memdiag.trace.model:Trace",
    "__version__": "memdiag.version:__version__",
    "arm": "memdiag.recorder.in_program:arm",
    "live": "memdiag.notebook.live:live",
    "load_ipython_extension": "memdiag.notebook.magic:load_ipython_extension",  # for %load_ext memdiag
    "mark": "memdiag.recorder.in_program:mark",
    "recording": "memdiag.recorder.in_program:recording",
}


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from memdiag.registry import resolve

    value: object = resolve(_PUBLIC[name])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
