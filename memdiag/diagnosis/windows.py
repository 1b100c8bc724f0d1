"""Lines to paste as the command prompt of Windows takes them; every surface gets them from here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import replace

from memdiag.results.finding import Finding, Fix

_UNIX_ONLY = re.compile(r"/dev/|/proc/|\$\(|\bps aux\b|\bdmesg\b|\bulimit\b|^while ")
_EXPORT, _UNSET = re.compile(r"export (?=\w+=)"), re.compile(r"unset (\w+)\Z")
_BEFORE_COMMAND = re.compile(r"([A-Z_]+=\S+) (?=\w)")
_SPECIAL = re.compile(r"[&|<>^ ]")  # the command prompt reads these inside a value, unless it is quoted


def line_for_windows(line: str) -> str:
    """Returns a line for a shell of Unix as one or several lines for the command prompt; others stay as they are."""
    if _EXPORT.match(line):
        try:
            words = shlex.split(line.partition(" ")[2])
        except ValueError:  # a quote that does not end
            return line
        return "\n".join(map(_set, words)) if all("=" in word for word in words) else line
    if removed := _UNSET.match(line):
        return f"set {removed[1]}="
    if before := _BEFORE_COMMAND.match(line):  # without the quotes, the space before && becomes part of the value
        return f'set "{before[1]}" && {line[before.end() :]}'
    return line


def _set(assignment: str) -> str:
    return f'set "{assignment}"' if _SPECIAL.search(assignment) else f"set {assignment}"


def for_windows(fix: Fix) -> Fix | None:
    """Returns a remedy as the command prompt of Windows takes it; None where it is one of Unix."""
    if _UNIX_ONLY.search(fix.change):
        return None
    change = "\n".join(map(line_for_windows, fix.change.split("\n")))
    return replace(fix, change=re.sub(r"num_workers=\d+", "num_workers=0", change))


def findings_for_windows(findings: Iterable[Finding]) -> list[Finding]:
    """Returns findings with remedies for Windows, without those of Unix."""
    return [
        replace(finding, fixes=tuple(fix for fix in map(for_windows, finding.fixes) if fix is not None))
        for finding in findings
    ]
