"""Threads have numbers that are used again, and their own module marks."""

import threading
from types import SimpleNamespace

from memdiag.recorder.columns import Unpacker
from memdiag.recorder.marks import NOWHERE, Marks
from memdiag.recorder.threads import PREFIX, Threads


def torch_with(said):
    """Returns a module torch whose allocator stores a text of each thread; ``said`` has all texts."""
    local = threading.local()

    def store(text):
        local.text = text
        said.append(text)

    memory = SimpleNamespace(_get_memory_metadata=lambda: getattr(local, "text", ""), _set_memory_metadata=store)
    return SimpleNamespace(cuda=SimpleNamespace(memory=memory))


def in_thread(function):
    """Calls a function in a new thread, which then ends."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_the_main_thread_has_no_text_and_others_are_numbered():
    said, numbers = [], []
    threads = Threads(torch_with(said))
    entered = [threads.enter()]
    for _ in range(2):
        in_thread(lambda: entered.append(threads.enter()))
    assert [each.number for each in entered] == [0, 1, 2]
    assert said == [f"{PREFIX}1", f"{PREFIX}2"]
    del entered[1]
    in_thread(lambda: numbers.append(threads.enter().number))
    assert numbers == [1]  # that of a thread that has ended


def test_a_thread_is_known_if_its_text_cannot_be_set(capsys):
    def fail():
        raise RuntimeError("another interface")

    memory = SimpleNamespace(_get_memory_metadata=fail, _set_memory_metadata=fail)
    threads, numbers = Threads(SimpleNamespace(cuda=SimpleNamespace(memory=memory))), []
    in_thread(lambda: numbers.append(threads.enter().number))
    assert numbers == [1]
    assert "another interface" in capsys.readouterr().err


def test_a_text_of_the_program_is_kept():
    said = []
    torch = torch_with(said)
    threads = Threads(torch)

    def work():
        torch.cuda.memory._set_memory_metadata("mine")
        threads.enter()

    in_thread(work)
    assert said == ["mine"]


def test_a_thread_that_python_did_not_start_belongs_to_the_backward(monkeypatch):
    threads = Threads(torch_with([]))
    main = threads.enter()
    threads.begin_backward(main)
    monkeypatch.setattr(threading, "main_thread", lambda: SimpleNamespace(ident=-1))
    monkeypatch.setattr(threading, "_active", {})
    assert threads.enter().number == 0
    threads.end_backward(main)
    assert threads.enter().number == 1


def test_module_marks_of_all_threads_are_written_with_their_thread():
    marks = Marks(lambda: NOWHERE)
    main, other = marks.of_modules(), marks.of_modules(3)
    main.append((10, 0))
    other.append((5, 1))
    other.place((0, 7, 6))
    table = marks.content()["modules"]
    unpacker = Unpacker(table.values())
    found = {name: list(memoryview(unpacker.unpack(column)).cast("q")) for name, column in table.items()}
    assert (found["time_ns"], found["name"], found["thread"]) == ([10, 5], [0, 1], [0, 3])
    assert (found["allocs"], found["frees"]) == ([-1, 7], [-1, 6])
