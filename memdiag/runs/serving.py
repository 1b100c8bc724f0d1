"""Reads the log of an inference server, with the size of its card from a device profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memdiag.results.finding import Finding
    from memdiag.results.oom import OomReport
    from memdiag.results.serving import ServingReport

_HEAD = 4 << 20  # bytes; servers start at the beginning of their log
_MOST_LOGS = 8  # whose account is read
_MOST_BYTES = 32 << 20  # of such a log, since it is read a second time
_FLAGS = ("--gpu-memory-utilization ", "--mem-fraction-static ")  # that memdiag.serving computes
_FEWEST_LINES = 2  # of an account; one pasted message needs no engine to be imported


def read_server_log(name: str, device: str | None = None) -> ServingReport:
    """Returns the memory account in a server's log.

    Args:
        name: A path, or "-" for standard input.
        device: Name of the card ("h100-80g"), if the log does not have its size.

    Raises:
        MemdiagError: The log cannot be read, no known engine wrote it, or the device is unknown.
    """
    from memdiag.serving.read import read_log  # imports the engines

    if device is None:
        return read_log(name)
    from memdiag.phantom.profiles import choose  # reads all profiles

    return read_log(name, choose(device).total_bytes)


def has_account(name: str) -> bool:
    """Returns whether the beginning of a file has the memory figures of an inference server.

    A single line, and the name of no file, have none.
    """
    path = Path(name)
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    if head.count(b"\n") < _FEWEST_LINES:
        return False
    from memdiag.serving.read import is_server_log

    return is_server_log(head.decode("utf-8", "replace"))


def with_computed_flags(report: OomReport) -> OomReport:
    """Returns the report with the values that the memory account of a server's log gives its memory fractions.

    The account has more numbers than the message, so both commands name the same value.
    """
    messages = list(report.messages)
    needed = [
        index for index, message in enumerate(messages) if any(_has_flag(finding) for finding in message.findings)
    ]
    for source in list(dict.fromkeys(messages[index].source for index in needed))[:_MOST_LOGS]:
        is_read = has_account(source) and Path(source).stat().st_size <= _MOST_BYTES
        failure = read_server_log(source).failure if is_read else None
        if failure is None:
            continue
        changes = {fix.change.split()[0]: fix.change for fix in failure.fixes if fix.change.startswith(_FLAGS)}
        for index in needed:
            message = messages[index]
            if message.source == source and message.line == failure.line:
                findings = tuple(_with_changes(finding, changes) for finding in message.findings)
                messages[index] = replace(message, findings=findings)
    return replace(report, messages=tuple(messages))


def _has_flag(finding: Finding) -> bool:
    return any(fix.change.startswith(_FLAGS) for fix in finding.fixes)


def _with_changes(finding: Finding, changes: dict[str, str]) -> Finding:
    """Returns a finding whose fixes have other values for the flags in ``changes``."""
    fixes = (
        replace(fix, change=changes.get(fix.change.split()[0], fix.change)) if fix.change.startswith(_FLAGS) else fix
        for fix in finding.fixes
    )
    return replace(finding, fixes=tuple(fixes))
