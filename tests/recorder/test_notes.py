"""Marks of the recorder itself, as at the end of a region of autocast."""

from memdiag.recorder import marks
from memdiag.recorder.marks import MARK, Marks


def test_a_note_takes_no_sample_and_their_number_is_limited(monkeypatch):
    monkeypatch.setattr(marks, "_MOST_NOTES", 3)
    sampled = []
    made = Marks(lambda: (0, 5, 4))
    made.added = lambda kind, value, position: sampled.append((kind, value, position))
    for _ in range(5):
        made.note("autocast ended")
    assert len(made) == 3
    made.note("another one")
    assert len(made) == 4
    assert not sampled
    made.add(MARK, made.name("of the program"))
    assert sampled == [(MARK, 2, (0, 5, 4))]
