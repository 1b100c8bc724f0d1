"""Finds the files for a path, and reads and checks each."""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.lint.module import Hit, Module
from memdiag.registry import LINT_RULES
from memdiag.results.finding import Evidence, Finding, Fix, Note
from memdiag.results.lint import LintReport
from memdiag.text import catalogue, phrase

_NOT_SOURCE = frozenset({"__pycache__", "node_modules", "build", "dist", "site-packages"})
_NPU = re.compile(r"\b(torch_npu|mindspeed)\b|torch\.npu\b")  # code for Ascend: its settings have other names
_IGNORE = re.compile(r"#.*?\bmemdiag:\s*ignore(?:\[([^\]]*)\])?", re.IGNORECASE)
_LARGEST = 10 << 20  # a larger Python file was generated
_FEW = 200  # files: with fewer, starting processes takes longer than the work


def lint(
    paths: Iterable[Path], codes: frozenset[str] | None = None, excluded: tuple[str, ...] = (), processes: int = 1
) -> LintReport:
    """Checks files, and files below directories.

    Args:
        paths: Files with any name, and directories, in which every ``*.py`` file is read.
        codes: Rules to apply, or None for all.
        excluded: Shell patterns of paths to skip, matched against the whole path and each part of it.
        processes: Maximum number of worker processes.

    Raises:
        MemdiagError: A path does not exist.
    """
    files: dict[Path, bool] = {}  # and whether the file itself was named
    for path in paths:
        for each in source_files(path, excluded):
            files[each] = files.get(each, False) or each == path
    wanted = frozenset(LINT_RULES) if codes is None else codes
    work = [(path, wanted, is_named) for path, is_named in files.items()]
    if processes > 1 and len(files) > _FEW:
        with ProcessPoolExecutor(processes) as pool:
            results = list(pool.map(_check, work, chunksize=16))
    else:
        results = [_check(each) for each in work]
    findings = tuple(finding for found, _, _ in results for finding in found)
    notes = tuple(note for _, note, _ in results if note is not None)
    unchecked = tuple(str(path) for path, (_, note, _) in zip(files, results, strict=True) if note is not None)
    return LintReport(len(files), findings, sum(ignored for _, _, ignored in results), notes, unchecked)


def source_files(path: Path, excluded: tuple[str, ...] = ()) -> Iterator[Path]:
    """Returns the files for a path, sorted by name, without hidden directories, environments and builds.

    Raises:
        MemdiagError: The path does not exist.
    """
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise MemdiagError(phrase("errors.no-file", path=str(path)), phrase("errors.no-file.hint"))
    for where, names, files in os.walk(path):
        directory = Path(where)
        names[:] = sorted(name for name in names if not _is_left_out(directory / name, excluded))
        yield from (
            directory / name
            for name in sorted(files)
            if name.endswith(".py") and not _matches(directory / name, excluded)
        )


def _is_left_out(directory: Path, excluded: tuple[str, ...]) -> bool:
    name = directory.name
    return (
        name in _NOT_SOURCE
        or name.startswith(".")
        or (directory / "pyvenv.cfg").exists()
        or _matches(directory, excluded)
    )


def _matches(path: Path, excluded: tuple[str, ...]) -> bool:
    return any(fnmatch(str(path), pattern) or fnmatch(path.name, pattern) for pattern in excluded)


def _check(work: tuple[Path, frozenset[str], bool]) -> tuple[list[Finding], Note | None, int]:
    """Checks one file; a file that cannot be read or parsed only gives a note.

    In a directory, files without the word torch are not parsed: they cannot have findings, and most files are such.
    """
    path, codes, is_named = work
    try:
        if path.stat().st_size > _LARGEST:
            return [], Note("MD940", phrase("notes.lint.large", path=str(path), size=_LARGEST >> 20)), 0
        with tokenize.open(path) as file:  # with the encoding that the file declares, as Python reads it
            text = file.read()
    except (OSError, SyntaxError, UnicodeError) as error:
        return [], Note("MD940", phrase("notes.lint.unread", path=str(path), error=str(error))), 0
    try:
        if is_named:
            ast.parse(text)
        found, silenced = check_text(text, str(path), codes)
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        said = str(error.args[0] if error.args else error)
        return [], Note("MD940", phrase("notes.lint.syntax", path=str(path), line=line, error=said)), 0
    except RecursionError:
        return [], Note("MD940", phrase("notes.lint.deep", path=str(path))), 0
    return found, None, silenced


def check_text(text: str, path: str, codes: frozenset[str] = frozenset(LINT_RULES)) -> tuple[list[Finding], int]:
    """Checks the text of one file.

    Returns:
        Findings by line, and the number suppressed by ``# memdiag: ignore``.

    Raises:
        SyntaxError: It is not Python.
    """
    rules = [
        rule
        for rule in (LINT_RULES[code] for code in LINT_RULES if code in codes)
        if any(word in text for word in rule.WORDS)
    ]
    if not rules or "torch" not in text:
        return [], 0
    module = Module(ast.parse(text), text)
    hits = [(hit, rule) for rule in rules for hit in rule.check(module)]
    if not hits:
        return [], 0
    ignored = _ignored(text)
    lines = text.splitlines()
    found: dict[tuple[int, int, str], Finding] = {}
    on_npu = _NPU.search(text) is not None
    silenced = 0
    for hit, rule in hits:
        line, column = getattr(hit.node, "lineno", 1), getattr(hit.node, "col_offset", 0)
        last = getattr(hit.node, "end_lineno", None) or line
        if any(rule.CODE in ignored.get(each, ()) or "" in ignored.get(each, ()) for each in range(line, last + 1)):
            silenced += 1
            continue
        found[line, column, rule.CODE] = _finding(hit, rule, path, line, lines, on_npu=on_npu)
    return [found[key] for key in sorted(found)], silenced


def _finding(hit: Hit, rule: object, path: str, line: int, lines: list[str], *, on_npu: bool) -> Finding:
    code: str = rule.CODE  # type: ignore[attr-defined]
    for_npu = on_npu and f"{code}.fix.npu" in catalogue("lint")
    title = phrase(f"lint.{code}.fix.npu") if for_npu else phrase(f"lint.{code}.fix")
    change = hit.fix or getattr(rule, "CHANGE", "")
    shown = lines[line - 1].strip() if line <= len(lines) else ""
    return Finding(
        code,
        hit.said or phrase(f"lint.{code}"),
        "info" if hit.minor else rule.SEVERITY,  # type: ignore[attr-defined]
        evidence=(Evidence(phrase("lint.source"), shown, where=f"{path}:{line}"),),
        fixes=(Fix(title, "code", change, phrase(f"lint.{code}.for"), phrase(f"lint.{code}.but")),),
    )


def _ignored(text: str) -> dict[int, tuple[str, ...]]:
    """Returns, by line, the codes that a comment suppresses; "" stands for all."""
    found: dict[int, tuple[str, ...]] = {}
    if "memdiag" not in text:
        return found
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            match = _IGNORE.search(token.string) if token.type == tokenize.COMMENT else None
            if match:
                codes = match.group(1)
                found[token.start[0]] = (
                    ("",) if codes is None else tuple(code.strip().upper() for code in codes.split(","))
                )
    except (tokenize.TokenError, IndentationError):
        return found
    return found
