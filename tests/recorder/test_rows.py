"""Tables of numbers, and what marks drop when there are too many."""

from __future__ import annotations

from array import array

from memdiag.recorder import marks as module
from memdiag.recorder.columns import Unpacker
from memdiag.recorder.marks import GRADIENT, NOWHERE, PARAMETER, PHASE, Marks
from memdiag.recorder.rows import NumberRows


def numbers(content, table):
    unpacker = Unpacker(content[table].values())
    return {name: list(array("q", unpacker.unpack(column))) for name, column in content[table].items()}


def test_rows_grow_and_shrink_as_a_whole():
    rows = NumberRows("time", "name")
    for number in range(4):
        rows.append((number, 10 * number))
    rows.pad(5)
    assert len(rows) == 5
    assert list(rows[1]) == [1, 10]
    assert {name: list(column) for name, column in rows.columns().items()} == {
        "time": [0, 1, 2, 3, -1],
        "name": [0, 10, 20, 30, -1],
    }
    append = rows.append
    rows.drop(1)
    rows.retain((0, 2))
    append((7, 8))  # the function remains valid
    assert list(rows.values) == [1, 10, 3, 30, 7, 8]


def test_the_oldest_module_marks_are_dropped_with_their_positions(monkeypatch):
    monkeypatch.setattr(module, "_MOST_MODULE_MARKS", 3)
    marks = Marks(lambda: NOWHERE)
    modules = marks.of_modules()
    for number in range(4):
        modules.append((number, number))
        if number == 2:
            modules.place((0, 5, 6))
    marks.trim()
    assert numbers(marks.content(), "modules") == {
        "time_ns": [2, 3],
        "name": [2, 3],
        "device": [0, -1],
        "allocs": [5, -1],
        "frees": [6, -1],
        "thread": [0, 0],
    }


def test_old_gradients_are_dropped_and_later_rows_are_found_again(monkeypatch):
    monkeypatch.setattr(module, "_MOST_SEEN", 3)
    marks = Marks(lambda: NOWHERE)
    first = marks.add(PHASE, 1)
    for addr, category in ((1, PARAMETER), (2, GRADIENT), (3, GRADIENT), (4, GRADIENT)):
        marks.see(0, addr, category, addr, first)
    marks.trim()
    second = marks.add(PHASE, 1)
    assert [marks.see(0, addr, category, addr, second) for addr, category in ((1, PARAMETER), (4, GRADIENT))] == [0, 2]
    seen = numbers(marks.content(), "tensors")
    assert (seen["addr"], seen["first"], seen["last"]) == ([1, 3, 4], [first] * 3, [second, first, second])
