"""Messages of a command on stderr: errors with a hint, automatic choices, and progress."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from memdiag.errors import MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.render.support.look import Look


_LABEL = 10  # columns of the labels of a summary


def say(text: str) -> None:
    """Prints one line on stderr; a closed stderr is no error."""
    if sys.stderr is None:  # it was closed when Python started
        return
    from memdiag.redaction import is_on, redact_text
    from memdiag.text import in_ascii, plain

    line = plain(redact_text(text) if is_on() else text)
    if not _takes_unicode(sys.stderr):
        line = in_ascii(line)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def say_row(label: str, text: str) -> None:
    """Prints one line of a summary on stderr: a column with the label, then the text.

    The label "" continues the row above.
    """
    from memdiag.render.support.line import cells

    say(f"  {label}{' ' * max(_LABEL - cells(label), 0)} {text}")


def say_error(message: str, hint: str = "") -> None:
    """Prints ``error: …`` and, if there is one, ``hint: …``."""
    say(phrase("errors.label", text=message))
    if hint:
        say(phrase("errors.hint", text=hint))


@contextlib.contextmanager
def busy(text: str) -> Iterator[None]:
    """Shows a text on a terminal while the work inside the context runs; prints nothing elsewhere.

    This is a plain line instead of a spinner, because the work holds the interpreter lock and a spinner would not turn.
    """
    shown = is_terminal()
    if shown:
        import shutil

        from memdiag.text import in_ascii, plain

        width = max(shutil.get_terminal_size().columns - 2, 20)
        sys.stderr.write(in_ascii(plain(text, width)))
        sys.stderr.flush()
    try:
        yield
    finally:
        if shown:
            wipe_line()


def wipe_line() -> None:
    """Clears the line of ``busy`` on a terminal."""
    if is_terminal():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def is_terminal() -> bool:
    """Returns whether stderr is a terminal on which a line can be cleared."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def look_of(stream: TextIO | None) -> Look:
    """Returns width, colour and character set for ``stream`` (None: it was closed when Python started).

    ``NO_COLOR`` turns colour off, ``FORCE_COLOR`` turns it on without a terminal, ``COLUMNS`` sets the width.
    """
    import shutil

    from memdiag.render.support.look import Look

    if stream is None:
        return Look()
    terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    color = not os.environ.get("NO_COLOR") and (terminal or bool(os.environ.get("FORCE_COLOR")))
    return Look(width=shutil.get_terminal_size((80, 24)).columns, color=color, unicode=_takes_unicode(stream))


def _takes_unicode(stream: TextIO) -> bool:
    try:  # the object that replaces stderr during memdiag view has no encoding
        "█▒…".encode(getattr(stream, "encoding", None) or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def do_without_unicode() -> None:
    """Lets stdout and stderr replace characters that their encoding lacks, also in help texts and tracebacks."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not _takes_unicode(stream) and hasattr(stream, "reconfigure"):
            from memdiag.text import FALLBACK

            stream.reconfigure(errors=FALLBACK)


def write_out(text: str) -> None:
    """Writes data to stdout; a closed pipe (``| head``) is not an error.

    Characters that the encoding of stdout lacks are replaced by ASCII.
    """
    from memdiag.redaction import is_on, redact_text
    from memdiag.text import FALLBACK

    stream = sys.stdout
    if stream is None:
        raise MemdiagError(phrase("errors.stdout-closed"), phrase("errors.stdout-closed.hint"))
    text = redact_text(text) if is_on() else text
    try:
        stream.write(text.encode(stream.encoding or "ascii", FALLBACK).decode(stream.encoding or "ascii"))
        stream.flush()
    except BrokenPipeError:
        # Python flushes stdout again at exit, which would fail on the closed pipe.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except OSError as error:
        raise MemdiagError(
            phrase("errors.stdout", value=str(error.strerror or error)), phrase("errors.stdout.hint")
        ) from None


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Sends what the command and the programs that it starts write to stdout to stderr: stdout is for JSON only."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
