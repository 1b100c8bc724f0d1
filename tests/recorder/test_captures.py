"""The recorder marks each captured CUDA graph of an inference engine with its batch size."""

from __future__ import annotations

import types

import pytest

from memdiag.recorder.captures import Captures
from memdiag.recorder.marks import NOWHERE, Marks

VLLM = """
def capture(descs):
    for desc in descs:
        with graph(pool=7):
            pass
"""
PIECES = """
class Wrapper:
    runtime_mode = FULL

    def __call__(self, batch_descriptor):
        with graph(pool=7):
            pass

def capture(descs):
    for each in descs:
        Wrapper()(each)
"""
SGLANG = """
def capture_one_batch_size(bs):
    with graph():
        pass

def capture(descs):
    for each in descs:
        capture_one_batch_size(each.num_tokens)
"""
FREES = """
import weakref

class Large:
    pass

def capture(descs):
    desc, large = descs[0], Large()
    reference = weakref.ref(large)
    with graph():
        pass
    del large
    desc.is_freed = reference() is None
"""


class Graph:
    """The context in which a program captures, as torch.cuda.graph."""

    def __init__(self, pool=None):
        self.pool = pool

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class Described:
    """What vLLM captures."""

    def __init__(self, num_tokens, mode=None):
        self.num_tokens = num_tokens
        self.cg_mode = mode


FULL = types.SimpleNamespace(name="FULL")


@pytest.fixture
def engine():
    """Returns a function that runs a program as a file of an engine, and returns the names of the marks."""
    marks = Marks(lambda: NOWHERE)
    graph = type("graph", (Graph,), {"__enter__": lambda self: self})
    captures = Captures(types.SimpleNamespace(cuda=types.SimpleNamespace(graph=graph)), marks)
    captures.install()

    def run(path, source, *descs):
        names = {"graph": graph, "FULL": FULL}
        exec(compile(source, path, "exec"), names)  # noqa: S102
        names["capture"](descs)
        return marks.names

    yield run
    captures.remove()
    assert run("/x/vllm/graphs.py", VLLM, Described(99)) == marks.names


@pytest.mark.parametrize(
    ("path", "source", "first", "second"),
    [
        ("/x/vllm/graphs.py", VLLM, "8 tokens, FULL", "4 tokens"),
        ("/x/vllm/wrapper.py", PIECES, "8 tokens, FULL", "4 tokens, FULL"),
        ("/x/sglang/runner.py", SGLANG, "8 requests", "4 requests"),
    ],
)
def test_a_capture_has_the_batch_size_of_the_engine(engine, path, source, first, second):
    descs = (Described(8, FULL), Described(8, FULL), Described(4))
    assert engine(path, source, *descs) == [f"graph capture: {first}", f"graph capture: {second}"]


def test_programs_that_are_no_engine_get_no_marks(engine):
    assert engine("/x/train.py", VLLM, Described(8)) == []


def test_a_capture_of_unknown_size_ends_the_one_before(engine):
    engine("/x/vllm/graphs.py", VLLM, Described(8))
    found = engine("/x/vllm/encoder.py", VLLM, object())
    assert found == ["graph capture: 8 tokens", "graph capture: unknown size"]


def test_variables_of_the_engine_are_not_kept_alive(engine):
    desc = Described(8)
    engine("/x/vllm/graphs.py", FREES, desc)
    assert desc.is_freed
