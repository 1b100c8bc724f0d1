"""Answers of ``memdiag mcp`` about a trace: shorter than the report for people, with the call chains of the program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memdiag.render.support.words import value_words
from memdiag.results.finding import Evidence
from memdiag.text import plain
from memdiag.trace.stacks import Frame
from memdiag.units import format_bytes

_FRAME = re.compile(r"(?P<file>.+):(?P<line>\d+) (?P<name>.*)")
_MOST_BEFORE, _MOST_FINDINGS = 2, 4  # findings before the call sites, and altogether
_MOST_FACTS, _MOST_FIXES, _MOST_SITES = 5, 3, 7
_MOST_CALLERS = 6
_LEAST_SHARE = 0.01  # of the largest call site: smaller ones are not listed


def report(found: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of an answer about a trace.

    Args:
        found: The output of ``memdiag analyze --json``.
    """
    verdict = found["verdict"]
    if verdict:
        yield f"{str(verdict['severity']).upper()}: {verdict['summary']}"
        for name in ("loss", "remedy", "command", "prediction"):
            if verdict.get(name):
                yield f"  {_VERDICT[name]}: {verdict[name]}"
    findings = found["findings"]
    for finding in findings[:_MOST_BEFORE]:
        yield from _finding(finding)
    yield from largest(found, _MOST_SITES)
    for finding in findings[_MOST_BEFORE:_MOST_FINDINGS]:
        yield from _finding(finding)
    if len(findings) > _MOST_FINDINGS:
        rest = ", ".join(finding["code"] for finding in findings[_MOST_FINDINGS:])
        yield f"and {len(findings) - _MOST_FINDINGS} more: {rest}"


def largest(found: Mapping[str, Any], top: int = 50) -> Iterator[str]:
    """Yields the lines of code whose live tensors hold most memory, each with its callers in the program.

    Args:
        found: The output of ``memdiag analyze --json``.
        top: Number of lines of code for each device.
    """
    files: dict[str, str] = {}
    for device in found["devices"]:
        yield f"device {device['device']}, live memory by line of code, with its callers (line < caller < …):"
        sites = device["top_sites"] or []
        least = _LEAST_SHARE * max((site["bytes"] for site in sites), default=0)
        for site in sites[:top]:
            if site["bytes"] >= least:
                yield _site(site, files)
    if files:
        yield "files: " + ", ".join(f"{name} = {path}" for name, path in files.items())


_VERDICT = {"loss": "lost", "remedy": "do first", "command": "change", "prediction": "predicted"}


def _finding(finding: Mapping[str, Any]) -> Iterator[str]:
    yield f"{finding['code']} {finding['severity']}: {finding['title']}"
    for fact in finding["evidence"][:_MOST_FACTS]:
        yield f"  {value_words(Evidence(**fact))} {plain(fact['what'])}" + (
            f" ({plain(fact['where'])})" if fact["where"] else ""
        )
    for fix in finding["fixes"][:_MOST_FIXES]:
        yield f"  fix: {fix['title']}" + (f": {fix['change']}" if fix["change"] else "")


def _site(site: Mapping[str, Any], files: dict[str, str]) -> str:
    chain = _chain(site["stack"], files) or [plain(site["name"])]
    names = f" ({', '.join(map(plain, site['tensor_names'][:3]))})" if site["tensor_names"] else ""
    tensors = "1 tensor" if site["num_tensors"] == 1 else f"{site['num_tensors']} tensors"
    return f"  {format_bytes(site['bytes'])} in {tensors}: {' < '.join(chain)}{names}"


def _chain(stack: Sequence[str], files: dict[str, str]) -> list[str]:
    """Returns the frames of the program in a stack, innermost first, and notes their files."""
    frames = []
    for text in stack:
        match = _FRAME.fullmatch(text)
        if match is None or not Frame(match["file"], int(match["line"]), match["name"]).is_user:
            continue
        name = match["file"].rsplit("/", 1)[-1]
        files.setdefault(plain(name), plain(match["file"]))
        frames.append(plain(f"{name}:{match['line']} {match['name']}"))
    if len(frames) > 1 and frames[-1].endswith(" <module>"):  # it only calls the function before it
        frames.pop()
    if len(frames) > _MOST_CALLERS:  # the outermost lines are the program's own loop
        half = _MOST_CALLERS // 2
        frames = [*frames[:half], "…", *frames[-half:]]
    return frames
