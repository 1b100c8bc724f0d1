"""Writes remedies for good: ``memdiag_fix.py`` next to the script, and its import in the script."""

from __future__ import annotations

import ast
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.fix.base import Proposal
from memdiag.fix.run import Applied
from memdiag.fix.trial import INSIDE
from memdiag.output_file import write_whole
from memdiag.text import phrase

MODULE = "memdiag_fix"


def script_of(command: Sequence[str]) -> Path | None:
    """Returns the first word of a command that is a Python file, or None."""
    return next((Path(word) for word in command if word.endswith(".py") and Path(word).is_file()), None)


def module_text(chosen: Sequence[Proposal], variable: str) -> str:
    """Returns the module that applies remedies when it is imported.

    Args:
        chosen: The remedies.
        variable: Environment variable of the allocator settings.
    """
    lines = [
        '"""Remedies against running out of memory, written by memdiag fix: import it before torch.',
        "",
        *(f"* {each.text.in_language('en')}" for each in chosen),
        '"""',
        "",
    ]
    confs = [each.conf for each in chosen if each.conf]
    if confs:
        lines += ["import os", "", f'os.environ.setdefault("{variable}", "{confs[0]}")', ""]
    parts = [_parts(each.inside) for each in chosen if each.inside]
    imports = sorted({line for found, _ in parts for line in found} - ({"import os"} if confs else set()))
    lines += [f"{line}  # noqa: E402" if confs else line for line in imports]
    lines += [body for _, body in parts]
    if parts:
        lines += ["", ""]
    for each in chosen:
        if each.inside:
            arguments = ", ".join(f"{name}={value!r}" for name, value in each.settings.items())
            lines.append(f"{each.inside}({arguments})")
    return "\n".join(lines) + "\n"


def _parts(name: str) -> tuple[list[str], str]:
    """Returns the imports of a file of ``inside``, and the rest of it without its docstring."""
    text = (INSIDE / f"{name}.py").read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    last = max(node.end_lineno or 0 for node in imports)
    return [ast.unparse(node) for node in imports], "\n" + "\n".join(lines[last:]).rstrip()


def write(plan: Applied, command: Sequence[str]) -> tuple[str, ...]:
    """Writes the module, and imports it in the script of a command.

    Returns:
        The written files.

    Raises:
        MemdiagError: The command names no script, or one that cannot be read or changed.
    """
    script = script_of(command)
    if script is None:
        raise MemdiagError(phrase("fix.error.script"), phrase("fix.error.script.hint"))
    before = script.read_bytes()
    try:
        text = before.decode("utf-8")
        changed = with_import(text)
    except (UnicodeDecodeError, SyntaxError):
        raise MemdiagError(phrase("fix.error.script"), phrase("fix.error.script.hint")) from None
    module = script.with_name(f"{MODULE}.py")
    line = None
    if changed != text:
        line = next(number for number, each in enumerate(_lines(changed), 1) if each.startswith(f"import {MODULE}"))
    chosen = [_moved(each, script.resolve(), line) for each in plan.chosen]
    new: dict[Path, bytes | str] = {module: module_text(chosen, plan.variable)}
    if changed != text:
        new[script] = changed
    _write_all(new)
    return tuple(str(file) for file in new)


def _moved(proposal: Proposal, script: Path, line: int | None) -> Proposal:
    """Returns a remedy that names lines of a script after a new line, and the program's files by relative paths.

    Args:
        proposal: The remedy.
        script: The script.
        line: Number of the new line, or None if the script stays as it is.
    """
    calls = proposal.settings.get("calls")
    if calls is None:
        return proposal

    def place(file: Path, at: int) -> list[object]:
        if line is not None and file == script:
            at += at >= line
        is_beside = file.is_relative_to(script.parent) or file.is_relative_to(Path.cwd())
        return [Path(os.path.relpath(file, script.parent)).as_posix() if is_beside else str(file), at]

    moved = [[place(Path(file).resolve(), at) for file, at in chain] for chain in calls]
    return replace(proposal, settings={**proposal.settings, "calls": moved})


def _lines(text: str) -> list[str]:
    """Returns the lines of a script with their ends; ``splitlines`` would split at form feeds too."""
    return io.StringIO(text, newline="").readlines()


def _write_all(new: Mapping[Path, bytes | str]) -> None:
    """Writes all files, or none: after an interruption or an error they are as before."""
    before = {file: file.read_bytes() if file.exists() else None for file in new}
    try:
        for file, content in new.items():
            write_whole(file, content)
    except BaseException:
        for file, old in before.items():
            if old is None:
                file.unlink(missing_ok=True)
            elif file.read_bytes() != old:
                write_whole(file, old)
        raise


def with_import(text: str) -> str:
    """Returns a script that imports the module before anything else but ``__future__``."""
    tree = ast.parse(text)
    if any(isinstance(node, ast.Import) and node.names[0].name == MODULE for node in tree.body):
        return text
    at = 0
    for number, node in enumerate(tree.body):
        is_docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            at = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]) - 1
            break
        at = node.end_lineno or 0
    lines = _lines(text)
    end = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    return "".join([*lines[:at], f"import {MODULE}  # written by memdiag fix; before torch{end}", *lines[at:]])
