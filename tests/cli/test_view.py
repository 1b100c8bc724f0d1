"""``memdiag view`` names an alternative if there is no terminal.

In a terminal, it starts, quits on q, and restores the terminal.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from memdiag.cli.main import main
from memdiag.cli.talk import say

ROOT = Path(__file__).parents[2]
EXAMPLE = "examples/gpt-train.pickle"


def test_without_a_terminal_it_names_the_other_command(capsys):
    assert main(["view", str(ROOT / EXAMPLE)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "needs a terminal" in said.err
    assert "hint: memdiag analyze" in said.err


@pytest.mark.parametrize("at", ["top", "-2", "1e3", ""])
def test_a_moment_that_is_none_is_refused(at, capsys):
    assert main(["view", str(ROOT / EXAMPLE), "--at", at]) == 2
    assert "the number of an event" in capsys.readouterr().err


def in_terminal(arguments, *, answers=(), term="xterm-256color", **environment):
    """Runs memdiag in a terminal of 80 x 24; ``answers`` are pairs of a text to wait for and the input that follows.

    Returns exit status and output.
    """
    inside, outside = pty.openpty()
    keep = {
        name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
    }
    env = {**keep, "TERM": term, "COLUMNS": "80", "LINES": "24", "PYTHONIOENCODING": "utf-8", **environment}
    child = subprocess.Popen(
        [sys.executable, "-m", "memdiag", "view", *arguments],
        cwd=ROOT,
        env=env,
        stdin=outside,
        stdout=outside,
        stderr=outside,
        start_new_session=True,
    )
    os.close(outside)
    seen, waiting = b"", list(answers)
    try:
        while True:
            try:
                part = os.read(inside, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
            if waiting and waiting[0][0].encode() in seen:
                os.write(inside, waiting.pop(0)[1].encode())
                seen = b"" if waiting else seen
        return child.wait(timeout=300), seen.decode("utf-8", "replace")
    finally:
        child.kill()
        child.wait()
        os.close(inside)


def test_a_stream_without_an_encoding_is_written_to(monkeypatch):
    """Messages reach a stream without an encoding, such as textual's replacement of stderr during ``memdiag view``."""
    lines = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=lines.append, flush=lambda: None, isatty=lambda: False))
    say("compiling → about 20 s")
    assert lines == ["compiling -> about 20 s\n"]


def test_in_a_terminal_it_comes_up_and_ends_on_q():
    code, seen = in_terminal([EXAMPLE, "--at", "peak", "--no-replay"], answers=[("5 About", ""), ("Findings (", "q")])
    assert code == 0
    assert "\x1b[?1049l" in seen  # leaves the alternate screen
    assert "Traceback" not in seen


def test_what_cannot_be_read_is_said_after_the_screen_is_gone():
    code, seen = in_terminal(["README.md"])
    assert code == 2
    after = seen.rpartition("\x1b[?1049l")[2]
    assert "error: README.md" in after
    assert "hint:" in after


def test_a_terminal_that_cannot_move_its_cursor_is_refused():
    code, seen = in_terminal([EXAMPLE], term="dumb")
    assert code == 2
    assert "TERM is dumb" in seen
    assert "memdiag analyze" in seen


def test_a_terminal_without_unicode_is_refused():
    code, seen = in_terminal([EXAMPLE], PYTHONIOENCODING="ascii")
    assert code == 2
    assert "UTF-8" in seen
