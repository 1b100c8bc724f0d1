"""A program on a simulated device that waits for a value, or makes weights on the host, is told so once after 30 s."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from memdiag.recorder import guard, long_waits
from memdiag.recorder.long_waits import LongWaits, weights_made_at
from memdiag.recorder.main_stack import calls_in, stack_of_main


@pytest.fixture
def says(monkeypatch, capsys):
    """Returns a function that runs the timer each second and returns what was printed."""
    monkeypatch.setattr(long_waits, "_warned", set())
    monkeypatch.setattr(guard, "_said", {})

    def look(seconds, reads=lambda _: {}, steps=lambda _: 0, stack=()):
        now = [0.0]
        waits = LongWaits(lambda: steps(now[0]), lambda: now[0], lambda: reads(now[0]), lambda: stack)
        for second in range(seconds + 1):
            now[0] = float(second)
            assert waits.take("timer", ()) is None
        return capsys.readouterr().err

    return look


def drawing():
    """The calls while PyTorch draws weights, called from here."""
    scope = {"stack_of_main": stack_of_main}
    exec(compile("def draw(): return stack_of_main()", "/lib/torch/nn/init.py", "exec"), scope)  # noqa: S102 - a name of a file
    return scope["draw"]()


def test_a_loop_on_synthetic_values_is_named_with_its_line_and_the_options(says):
    text = says(61, reads=lambda now: {"train.py:7 (<module>)": int(100 * now), "train.py:2 (load)": 3})
    assert text.startswith("memdiag: no training step ended in 30 s, while the program read 3,000 synthetic values")
    assert "train.py:7 (<module>)" in text
    assert "--compute small" in text
    assert text.count("\n") == 1


def test_no_loop_is_named_while_steps_end_or_few_values_are_read(says):
    assert not says(61, reads=lambda now: {"train.py:7": int(100 * now)}, steps=lambda now: int(now) // 20)
    assert not says(61, reads=lambda now: {"train.py:7": int(now) // 10})
    assert not says(29, reads=lambda now: {"train.py:7": int(100 * now)})


@pytest.mark.parametrize(
    ("file", "function", "is_wait"),
    [
        ("train.py", "check", True),
        ("torch/serialization.py", "_save", False),
        ("torch/serialization.py", "_load", True),
    ],
)
def test_a_checkpoint_that_is_saved_waits_for_no_value(says, file, function, is_wait):
    stack = [(f"/lib/{file}", 967, function), ("train.py", 7, "main")]
    assert bool(says(61, reads=lambda now: {"train.py:7": 500 if now else 0}, stack=stack)) is is_wait


def test_with_values_auto_a_loop_that_waits_is_ended(says, monkeypatch, tmp_path):
    ended = []
    monkeypatch.setattr(os, "kill", lambda *given: ended.append(given))
    monkeypatch.setenv("MEMDIAG_RECORD", json.dumps({"folder": str(tmp_path)}))
    (tmp_path / ".processes").mkdir()
    says(31, reads=lambda now: {"train.py:7": int(100 * now)})
    monkeypatch.setenv("MEMDIAG_PHANTOM_END_WAITS", "1")
    says(29, reads=lambda now: {"train.py:7": int(100 * now)})
    says(61, reads=lambda now: {"train.py:7": int(100 * now)}, steps=lambda now: int(now) // 20)
    assert not ended
    says(31, reads=lambda now: {"train.py:7": int(100 * now)})
    assert ended == [(os.getpid(), signal.SIGTERM)]
    (note,) = (tmp_path / ".processes").iterdir()
    assert json.loads(note.read_text())["pid"] == os.getpid()


def test_weights_that_are_made_on_the_host_are_named_with_the_line_of_the_program(says):
    text = says(61, stack=drawing())
    assert text.startswith(f"memdiag: PyTorch has initialized weights on the host for 30 s, at {__file__}:")
    assert "on meta" in text
    assert text.count("\n") == 1


def test_other_work_on_the_host_is_not_taken_for_weights(says):
    assert weights_made_at(stack_of_main()) == ""
    assert not says(61, stack=stack_of_main())


FREED = """
import sys, threading, weakref
from memdiag.recorder.main_stack import stack_of_main

class Tensor:
    pass

seen = []
def call():
    tensor = Tensor()
    seen.append(weakref.ref(tensor))

def look():
    while not done:
        stack_of_main()

done = []
sys.setswitchinterval(1e-6)
thread = threading.Thread(target=look)
thread.start()
late = 0
for _ in range(20000):
    call()
    late += seen.pop()() is not None
done.append(True)
thread.join()
print(late)
"""


def test_looking_at_the_stack_does_not_keep_what_a_function_lets_go():
    """While another thread has its frame, a function that returns would keep its local variables."""
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]


def test_the_stack_of_another_thread_and_names_in_other_scripts():
    text = (
        'Thread 0x00007f01 (most recent call first):\n  File "/lib/threading.py", line 9 in wait\n\n'
        "Current thread 0x00007f02 [main] (most recent call first):\n"
        '  File "/home/\\u738b/my \\xe9.py", line 12 in <module>\n  Garbage-collecting\n  ...\n'
    )
    assert calls_in(text, 0x7F02) == [("/home/\u738b/my \xe9.py", 12, "<module>")]
    assert calls_in(text, 0x7F01) == [("/lib/threading.py", 9, "wait")]
    assert calls_in(text, 5) == []
