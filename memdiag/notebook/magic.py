"""The IPython extension: ``%load_ext memdiag``, then ``%%memdiag`` at the top of a cell records it."""

from __future__ import annotations

import ast
import shlex
import tempfile
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.notebook.html import framed
from memdiag.recorder.in_program import Recording
from memdiag.text import phrase

_CELL = "cell.pkl"


class Shown:
    """HTML that IPython displays, with a text for frontends without HTML."""

    def __init__(self, html: str, text: str) -> None:
        self._html = html
        self._text = text

    def __repr__(self) -> str:
        """Returns the text."""
        return self._text

    def _repr_html_(self) -> str:
        """Returns the HTML."""
        return self._html


def load_ipython_extension(shell: Any) -> None:
    """Registers the cell magic; IPython calls this for ``%load_ext memdiag``."""

    def memdiag(line: str, cell: str) -> Any:
        return run_cell(shell, line, cell)

    memdiag.__doc__ = run_cell.__doc__
    shell.register_magic_function(memdiag, magic_kind="cell")


def run_cell(shell: Any, line: str, cell: str) -> Any:
    """Records the memory of a cell, and shows the interactive report below it.

    ``%%memdiag [-o FOLDER] [--text] [--backend NAME]``

    -o FOLDER keeps the trace and the page, --text shows the summary instead of the page, and --backend names what to
    record: cuda, npu, xpu or cpu. Default: the accelerators that the process uses, else the CPU.

    Args:
        shell: The shell of IPython.
        line: The options.
        cell: The code.

    Returns:
        The value of the last expression.

    Raises:
        MemdiagError: An option is unknown.
    """
    folder, is_text, backends = _options(line)
    source = shell.transform_cell(cell)
    name = shell.compile.cache(source, shell.execution_count, raw_code=cell)
    tree = shell.transform_ast(ast.parse(source, name))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with tempfile.TemporaryDirectory(prefix="memdiag-") as temporary:
        path = (folder or Path(temporary)) / _CELL
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        recording = Recording(path, backends=backends)
        recording.start()
        try:
            exec(compile(tree, name, "exec"), shell.user_ns)  # noqa: S102 - the cell of the user
            code = None if last is None else compile(ast.Expression(last.value), name, "eval")
            value = None if code is None else eval(code, shell.user_ns)  # noqa: S307 - as above
        except BaseException as error:
            recording.stop()
            _show_error(error, path)
            _show(path, is_text=is_text, is_kept=folder is not None)
            raise
        recording.stop()
        _show(path, is_text=is_text, is_kept=folder is not None)
    return None if cell.rstrip().endswith(";") else value


def _options(line: str) -> tuple[Path | None, bool, tuple[str, ...]]:
    """Returns folder, whether to show text, and backends.

    Raises:
        MemdiagError: An option is unknown.
    """
    from memdiag.runs.order import settings_of

    words = shlex.split(line)
    folder, is_text, backends = None, False, []
    while words:
        word = words.pop(0)
        if word == "--text":
            is_text = True
        elif word == "-o" and words:
            folder = Path(words.pop(0))
        elif word == "--backend" and words:
            backends.append(words.pop(0))
        else:
            raise MemdiagError(phrase("notebook.option", word=word), phrase("notebook.option.hint"))
    return folder, is_text, tuple(settings_of(backends, None, 0, 0, names=True)["backends"]) if backends else ()


def _show(path: Path, *, is_text: bool, is_kept: bool) -> None:
    """Displays the report of a cell."""
    from IPython.display import display

    from memdiag.analyzers.report import build_report
    from memdiag.output_file import write_whole
    from memdiag.runs.html_page import html_page
    from memdiag.sources import load

    if not path.exists():
        display(Shown(f"<p>{phrase('notebook.nothing')}</p>", phrase("notebook.nothing")))
        return
    trace = load(path)
    report = build_report(trace)
    if is_text and not is_kept:
        display(report)
        return
    page = html_page(trace, report)
    if is_kept:
        write_whole(path.with_suffix(".html"), page)
    display(report if is_text else Shown(framed(page), report.headline))


def _show_error(error: BaseException, path: Path) -> None:
    """Displays the diagnosis of an out-of-memory error."""
    from html import escape

    from IPython.display import display

    from memdiag.runs.explaining import explain_error

    text = explain_error(error, path if path.exists() else None)
    if text:
        display(Shown(f"<pre>{escape(text)}</pre>", text))
