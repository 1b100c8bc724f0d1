"""A program on a simulated device that waits for a value, or makes weights on the host, is told so once after 30 s."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest

from memdiag.recorder import guard, long_waits
from memdiag.recorder.long_waits import LongWaits, weights_made_at


@pytest.fixture
def says(monkeypatch, capsys):
    """Returns a function that runs the timer each second and returns what was printed."""
    monkeypatch.setattr(long_waits, "_warned", set())
    monkeypatch.setattr(guard, "_said", {})

    def look(seconds, reads=lambda _: {}, steps=lambda _: 0, frame=None):
        now = [0.0]
        waits = LongWaits(lambda: steps(now[0]), lambda: now[0], lambda: reads(now[0]), lambda: frame)
        for second in range(seconds + 1):
            now[0] = float(second)
            assert waits.take("timer", ()) is None
        return capsys.readouterr().err

    return look


def drawing():
    """A frame in which PyTorch draws weights, called from here."""
    scope = {}
    exec(compile("import sys\ndef draw(): return sys._getframe()", "/lib/torch/nn/init.py", "exec"), scope)  # noqa: S102 - a name of a file
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
    text = says(61, frame=drawing())
    assert text.startswith(f"memdiag: PyTorch has initialized weights on the host for 30 s, at {__file__}:")
    assert "on meta" in text
    assert text.count("\n") == 1


def test_other_work_on_the_host_is_not_taken_for_weights(says):
    assert weights_made_at(sys._getframe()) == ""
    assert not says(61, frame=sys._getframe())
