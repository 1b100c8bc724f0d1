"""What can be recorded on a machine, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from memdiag.render.text import plain
from memdiag.units import plural

if TYPE_CHECKING:
    from memdiag.recorder.machine import Backend, Python
    from memdiag.settings.report import ConfReport


def as_text(pythons: list[Python], settings: list[ConfReport]) -> str:
    """Returns the report for a terminal."""
    return "\n".join(_lines(pythons, settings)) + "\n"


def _lines(pythons: list[Python], settings: list[ConfReport]) -> Iterator[str]:
    for python in pythons:
        yield plain(f"Python {python.facts.get('version', '')}  {python.path}")
        if python.why:
            yield plain(f"  no   {python.why}")
            yield plain(f"       -> {python.fix}")
        else:
            yield plain(f"       torch {python.facts['torch_version']}{_builds(python.facts)}")
        for backend in python.backends:
            yield from _backend_lines(backend)
        yield ""
    yield "Allocator settings in this environment"
    if not settings:
        yield "       none: the defaults"
    for report in settings:
        yield plain(f"       {report.variable}={report.text}" if report.text is not None else f"       {report.variable} is not set")
        for finding in report.findings:
            yield plain(f"       {finding.code} {finding.severity}: {finding.title}")
        yield "       memdiag conf --env says more" if report.findings else "       nothing wrong with them"
    if any(backend.works for python in pythons for backend in python.backends):
        yield ""
        yield "Record with: memdiag record -- python train.py"


def _builds(facts: dict[str, Any]) -> str:
    named = (("CUDA", facts["cuda_build"]), ("ROCm", facts["hip_build"]), ("torch_npu", facts["npu_build"]))
    return "".join(f", {name} {build}" for name, build in named if build) or ", for the CPU only"


def _backend_lines(backend: Backend) -> Iterator[str]:
    state = {True: "yes", False: "no", None: "-"}[backend.works]
    told = f"works: a test recording saw {plural(backend.num_events or 0, 'event')}" if backend.works else backend.why
    devices = f"; {', '.join(dict.fromkeys(backend.devices))}" if backend.devices else ""
    yield plain(f"  {state:<4} {backend.name:<5} {told}{devices}")
    if backend.fix:
        yield plain(f"             -> {backend.fix}")


def as_json(pythons: list[Python], settings: list[ConfReport]) -> str:
    """Returns the report as one JSON object."""
    from memdiag import __version__

    content = {
        "schema_version": 1,
        "memdiag_version": __version__,
        "pythons": [asdict(python) for python in pythons],
        "settings": [asdict(report) for report in settings],
    }
    return json.dumps(content, indent=2, default=str) + "\n"
