"""The devices that can be recorded on a machine, for a terminal."""

from __future__ import annotations

from typing import Any

from memdiag.render.support.line import cells
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import Cell, TerminalPage
from memdiag.results.conf import ConfReport
from memdiag.results.machine import MachineReport, Python
from memdiag.text import joined, phrase, plain

_STATE, _NAME = 6, 4  # columns


def render(report: MachineReport, look: Look = PLAIN) -> str:
    """Returns the report for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    for python in report.pythons:
        _python(page, python)
        page.gap()
    page.text(phrase("doctor.settings"), "bold")
    if not report.settings:
        page.text(phrase("doctor.settings.none"), indent=2)
    for settings in report.settings:
        _settings(page, settings)
    if any(backend.works for python in report.pythons for backend in python.backends):
        page.gap()
        page.text(phrase("doctor.record"))
    return page.finish()


def _python(page: TerminalPage, python: Python) -> None:
    page.text(plain(phrase("doctor.python", version=python.facts.get("version", ""))), "bold")
    page.text(plain(python.path), indent=2)
    if python.reason:
        _state(page, phrase("doctor.state.no"), "", python.reason, python.fix)
        return
    page.text(
        plain(phrase("doctor.torch", version=python.facts["torch_version"], builds=_builds(python.facts))), indent=2
    )
    for backend in python.backends:
        key = {True: "yes", False: "no", None: "missing"}[backend.works]
        words = phrase("doctor.works", count=backend.num_events or 0) if backend.works else backend.reason
        known = joined([words, ", ".join(dict.fromkeys(backend.devices))], "; ")
        _state(page, phrase(f"doctor.state.{key}"), backend.name, known, backend.fix)


def _state(page: TerminalPage, state: str, name: str, words: str, fix: str) -> None:
    """Adds whether a backend works, and the fix.

    Args:
        name: Name of the backend, or "" for none.
    """
    head: list[Cell] = [(state + " " * (_STATE - cells(state)), "bold"), *([name.ljust(_NAME)] if name else [])]
    page.grid(
        "l" * len(head) + "w", [[*head, plain(words)], *([[*[""] * len(head), f"-> {plain(fix)}"]] if fix else [])]
    )


def _settings(page: TerminalPage, report: ConfReport) -> None:
    written = (
        f"{report.variable}={report.text}"
        if report.text is not None
        else phrase("report.not-set", name=report.variable)
    )
    page.text(plain(written), indent=2)
    for finding in report.findings:
        head = f"{plain(finding.code)}  {phrase(f'summary.severity.{finding.severity}')}"
        page.grid("lw", [[head, plain(finding.title)]], indent=4)
    page.text(phrase("doctor.settings.more" if report.findings else "doctor.settings.fine"), indent=4)


def _builds(facts: dict[str, Any]) -> str:
    named = (("CUDA", facts["cuda_build"]), ("ROCm", facts["hip_build"]), ("torch_npu", facts["npu_build"]))
    return "".join(f", {name} {build}" for name, build in named if build) or phrase("doctor.cpu-only")
