"""Processes that share a simulated card: the sum never exceeds the card, and a killed process's memory comes back.

The header is compiled alone here; the same code is in both simulated runtimes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memdiag.phantom.sharing import SOURCES, VARIABLE, shared_cards

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)

TOTAL = 1000
WRAPPER = """
#include "cards.h"
int shared(void) { return cards_are_shared(); }
int set(int card, uint64_t bytes, uint64_t total) { return cards_set(card, bytes, total); }
uint64_t others(int card) { return cards_of_others(card); }
int behind(const char *variable, int device) { return cards_behind(variable, device); }
int count(int card) {
  int64_t pids[CARDS_SLOTS];
  uint64_t bytes[CARDS_SLOTS];
  return cards_processes(card, pids, bytes, CARDS_SLOTS);
}
"""
PROGRAM = """
import ctypes, os, sys
cards = ctypes.CDLL(sys.argv[1])
cards.others.restype = ctypes.c_uint64
cards.set.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
cards.shared()
for line in sys.stdin:
    print(eval(line), flush=True)
"""
RACE = """
import ctypes, sys
cards = ctypes.CDLL(sys.argv[1])
cards.set.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
cards.shared()
got = 0
while cards.set(0, got + 1, 1000):
    got += 1
print(got, flush=True)
sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cards")
    (folder / "wrapper.c").write_text(WRAPPER)
    flags = ["-std=gnu11", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{SOURCES}"]
    subprocess.run([shutil.which("cc"), *flags, "-o", folder / "cards.so", folder / "wrapper.c"], check=True)
    return folder / "cards.so"


@pytest.fixture
def start(library):
    """Starts processes that share cards; each answers expressions."""
    processes = []
    with shared_cards() as variable:

        def started(program=PROGRAM, environment=variable):
            process = subprocess.Popen(
                [sys.executable, "-S", "-c", program, library],
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            processes.append(process)
            return process

        yield started
        for process in processes:
            process.kill()
            process.communicate()


def ask(process, expression):
    process.stdin.write(expression + "\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def test_the_sum_never_exceeds_the_card(start):
    first, second = start(), start()
    assert ask(first, f"cards.set(0, 700, {TOTAL})") == 1
    assert ask(second, "cards.others(0)") == 700
    assert ask(second, f"cards.set(0, 301, {TOTAL})") == 0
    assert ask(second, f"cards.set(0, 300, {TOTAL})") == 1
    assert ask(first, f"cards.set(0, 701, {TOTAL})") == 0
    assert ask(first, f"cards.set(0, 100, {TOTAL})") == 1
    assert ask(second, f"cards.set(0, 900, {TOTAL})") == 1
    assert (ask(first, "cards.others(0)"), ask(second, "cards.others(0)")) == (900, 100)


def test_cards_are_independent(start):
    first, second = start(), start()
    assert ask(first, f"cards.set(0, {TOTAL}, {TOTAL})") == 1
    assert ask(second, f"cards.set(1, {TOTAL}, {TOTAL})") == 1
    assert ask(second, "cards.others(1)") == 0


def test_memory_of_a_killed_process_comes_back_before_anyone_waits_for_it(start):
    first, second = start(), start()
    assert ask(first, f"cards.set(0, 900, {TOTAL})") == 1
    assert ask(second, f"cards.set(0, 200, {TOTAL})") == 0
    first.kill()
    first.stdout.read()  # its end is closed when it is gone; nobody has waited for it
    assert ask(second, "cards.others(0)") == 0
    assert ask(second, f"cards.set(0, {TOTAL}, {TOTAL})") == 1
    third = start()
    assert ask(third, "cards.others(0)") == TOTAL


def test_a_child_of_fork_has_its_own_share(start):
    first = start()
    assert ask(first, f"cards.set(0, 400, {TOTAL})") == 1
    told = "print(cards.others(0), cards.set(0, 600, 1000), cards.count(0), flush=True)"
    forked = f"(lambda pid: os.waitpid(pid, 0)[1] if pid else ({told}, os._exit(0)))(os.fork())"
    first.stdin.write(forked + "\n")
    first.stdin.flush()
    assert first.stdout.readline().split() == ["400", "1", "2"]
    assert first.stdout.readline().split() == ["0"]
    assert ask(first, "cards.others(0)") == 0


def test_no_byte_is_handed_out_twice(start):
    racing = [start(RACE) for _ in range(4)]
    assert sum(int(process.stdout.readline()) for process in racing) == TOTAL


def test_a_process_without_the_file_is_alone(start):
    alone, gone = start(environment={VARIABLE: ""}), start(environment={VARIABLE: "/no/such/file"})
    assert ask(alone, "cards.shared()") == ask(gone, "cards.shared()") == 0


@pytest.mark.parametrize(
    ("visible", "device", "card"),
    [("", 1, 1), ("3", 0, 3), ("2,5", 1, 5), ("2,5", 2, 2), ("GPU-1234", 0, 0), ("-1", 0, 0)],
)
def test_visible_devices_choose_the_card(start, visible, device, card):
    process = start(environment={"VISIBLE": visible})
    assert ask(process, f"cards.behind(b'VISIBLE', {device})") == card


def test_the_file_is_removed_at_the_end():
    with shared_cards() as variable:
        assert Path(variable[VARIABLE]).exists()
    assert not Path(variable[VARIABLE]).exists()
