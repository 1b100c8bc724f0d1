"""The line inside a library that allocated the tensors of a call site, which is a line of the user's program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdiag.trace.moments import DEFAULT

if TYPE_CHECKING:
    from memdiag.trace.model import Trace

_MOST_STACKS = 50
_INSTALLED = ("/site-packages/", "/dist-packages/")


def innermost_lines(trace: Trace, at: str = DEFAULT, package: str = "") -> dict[str, str]:
    """Returns the innermost line inside a package for each call site; the largest stack of a call site decides.

    Args:
        trace: The trace.
        at: The moment.
        package: Name of the package; "" for any installed package. PyTorch's own lines never count.
    """
    from memdiag.analyzers.report import build_report

    found: dict[str, str] = {}
    for device in build_report(trace, at=at, replay=False, top=_MOST_STACKS).devices:
        for site in device.top_sites or ():
            line = _inside_package(site.stack, package) if package else _installed(site.stack[0] if site.stack else "")
            if line and not line.endswith(site.name):
                found.setdefault(site.name, line)
    return found


def _inside_package(stack: tuple[str, ...], package: str) -> str:
    folder = f"/{package.replace('-', '_').lower()}/"
    frame = next((frame for frame in stack if folder in frame.lower()), "")
    return frame[frame.lower().rindex(folder) + 1 :] if frame else ""


def _installed(frame: str) -> str:
    return next((frame.rpartition(folder)[2] for folder in _INSTALLED if folder in frame), "")
