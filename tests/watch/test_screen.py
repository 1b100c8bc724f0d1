"""The screen of ``memdiag watch`` in a pseudo-terminal: it is drawn, and its keys work."""

from __future__ import annotations

import os
import pty
import select
import struct
import subprocess
import sys
import time
from fcntl import ioctl
from termios import TIOCSWINSZ

import memdiag
from tests.watch.conftest import NOTHING, WAIT


def read_until(terminal, words):
    """Returns the terminal's output up to some words."""
    shown, until = "", time.monotonic() + WAIT
    while words not in shown:
        assert time.monotonic() < until, shown
        if select.select([terminal], [], [], 0.5)[0]:
            shown += os.read(terminal, 1 << 16).decode("utf-8", "replace")
    return shown


def test_the_screen_shows_the_card_and_its_keys_record_write_and_detach(start, tmp_path):
    program = start("cuda", armed=True)
    path = tmp_path / "trace.pkl"
    terminal, inner = pty.openpty()
    ioctl(inner, TIOCSWINSZ, struct.pack("4H", 40, 110, 0, 0))
    command = [sys.executable, "-m", "memdiag", "watch", str(program.pid), "--snapshot", str(path)]
    environment = {**os.environ, "TERM": "xterm-256color", "MEMDIAG_LANG": "en"}
    watcher = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=environment)
    os.close(inner)
    shown = read_until(terminal, "q detach")
    assert "cuda:0" in shown
    assert "cached by the allocator" in shown
    os.write(terminal, b"h")
    read_until(terminal, "call sites with the most memory")
    os.write(terminal, b"s")
    read_until(terminal, "wrote ")
    assert path.exists()
    os.write(terminal, b"q")
    assert watcher.wait(WAIT) == 0
    os.close(terminal)
    assert program.stop() == NOTHING
    assert memdiag.load(path).backend == "cuda"
