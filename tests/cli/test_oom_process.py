"""``memdiag oom`` in a process of its own: what it loads, pipes, interruption, the width of a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.test_oom import MESSAGE

ROOT = Path(__file__).parents[2]


HEAVY = (
    "numpy",
    "pandas",
    "numba",
    "llvmlite",
    "torch",
    "pydantic",
    "rich",
    "memdiag.trace",
    "memdiag.sources",
    "memdiag.analyzers",
)


def run(*arguments, stdin=subprocess.DEVNULL, **variables):
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "MEMDIAG_DEBUG"}
    }
    return subprocess.Popen(
        [sys.executable, "-m", "memdiag", "oom", *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**environment, "PYTHONUTF8": "1", **variables},
        cwd=ROOT,
    )


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_message_loads_nothing_heavy(form):
    program = (
        f"import sys; from memdiag.cli.main import main; code = main({['oom', MESSAGE, *form]!r})\n"
        "print('\\0'.join(['', *sys.modules]), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(done.stderr.rstrip().split("\0")[1:])
    assert [name for name in HEAVY if name in modules] == []


def test_a_reader_that_goes_away(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("".join(f"[rank{rank}]: {MESSAGE}\n" for rank in range(3000)))
    with run(path, "--all") as child:
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == ""
        assert child.wait(60) == 0


def test_nothing_on_standard_input():
    out, err = run().communicate(timeout=60)
    assert out.startswith("No out-of-memory message was found.")
    assert err == ""


def test_control_c(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    child = run(fifo)
    with fifo.open("wb") as writer:  # the command waits for more input
        writer.write(b"step\n")
        writer.flush()
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert (out, err) == ("", "")


@pytest.mark.parametrize("width", ["60", "80", "160"])
def test_the_report_fits_and_holds_no_control_characters(width):
    out, _ = run(MESSAGE.replace("GPU 0", "GPU\x1b[31m 0") + "\n内存不足 \x07", COLUMNS=width).communicate(timeout=60)
    assert "FRAGMENTATION" in out
    assert not {char for char in out if char != "\n" and not char.isprintable()}


def test_ascii_and_colour():
    out, _ = run(MESSAGE, PYTHONIOENCODING="ascii", PYTHONUTF8="0").communicate(timeout=60)
    assert out.isascii()
    assert "### " not in out.split("Memory of")[0]
    coloured, _ = run(MESSAGE, FORCE_COLOR="1").communicate(timeout=60)
    assert "\x1b[1;31mFRAGMENTATION" in coloured
    plain, _ = run(MESSAGE, FORCE_COLOR="1", NO_COLOR="1").communicate(timeout=60)
    assert "\x1b" not in plain
