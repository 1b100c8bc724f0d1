"""After a backward pass, a simulated device waits for autograd, so the order of frees is the same in each run."""

import ctypes
import threading
import time
from types import SimpleNamespace

import pytest

from memdiag.phantom.boot import threads

PR_SET_NAME = 15


@pytest.fixture
def worker():
    """Yields a function that starts a named thread which calls a function and then waits."""
    end = threading.Event()
    started = []

    def start(name, work):
        ready = threading.Event()

        def run():
            ctypes.CDLL(None).prctl(PR_SET_NAME, name)
            ready.set()
            work()
            end.wait()

        started.append(threading.Thread(target=run))
        started[-1].start()
        ready.wait()

    yield start
    end.set()
    for each in started:
        each.join()


def busy(done):
    """Computes for a moment, as a thread that frees tensors."""
    until = time.monotonic() + 0.01
    while time.monotonic() < until:
        pass
    done.append(True)


def test_the_main_thread_waits_until_autograd_sleeps(worker):
    done = []
    worker(b"pt_autograd_0", lambda: busy(done))
    threads.AutogradThreads().settle()
    assert done == [True]


def test_other_threads_and_autograd_itself_are_not_waited_for(worker):
    done, own = [], []
    worker(b"loader", lambda: time.sleep(0.01) or done.append(True))
    threads.AutogradThreads().settle()
    assert done == []
    worker(b"pt_autograd_0", lambda: own.append(threads.AutogradThreads().settle()))
    threads.AutogradThreads().settle()
    assert own == [None]


def test_the_engine_returns_and_raises_as_before():
    def engine(*values, fails=False):
        if fails:
            raise ValueError(values)
        return values

    graph = SimpleNamespace(_engine_run_backward=engine)
    threads.begin(graph)
    assert graph._engine_run_backward(1, 2) == (1, 2)
    with pytest.raises(ValueError, match="1"):
        graph._engine_run_backward(1, fails=True)
    threads.begin(SimpleNamespace())  # of an older torch
