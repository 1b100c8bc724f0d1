"""When a program lets go of the tensors of forward."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from memdiag.fix import releases
from memdiag.offload.passes import BACKWARD, FORWARD
from memdiag.trace.schema import ALLOC
from memdiag.trace.stacks import Frame, Stacks

NAMES = ("attention", "attention.query", "attention.key", "norm")
SAVED = 99  # event at which backward frees what autograd keeps


def call(line, function="forward", file="model.py"):
    """Returns the frames of a module's call, innermost first."""
    return [Frame(file, line, function), Frame("torch/nn/modules/module.py", 1778, "_wrapped_call_impl")]


def recorded(*allocations):
    """Returns a trace and its device: each allocation has frames (innermost first), bytes, free and module."""
    frames, sizes, frees, modules = zip(*allocations, strict=True)
    stacks, numbers = Stacks.from_lists(frames)
    events = SimpleNamespace(
        action=np.full(len(frames), ALLOC),
        tensor=np.arange(len(frames)),
        phase=np.array([BACKWARD if name is None else FORWARD for name in modules]),
    )
    tensors = SimpleNamespace(stack=numbers, requested_bytes=np.array(sizes), free_requested_at=np.array(frees))
    device = SimpleNamespace(events=events, tensors=type("Tensors", (), {"__len__": lambda _: len(frames)})())
    device.tensors.__dict__.update(vars(tensors))
    running = np.array([-1 if name is None else NAMES.index(name) for name in modules])
    return SimpleNamespace(stacks=stacks, recorded=SimpleNamespace(names=NAMES)), device, running


@pytest.fixture
def released(monkeypatch):
    """Returns a function from allocations to the events before which the program lets go of the tensors."""

    def find(*allocations):
        trace, device, running = recorded(*allocations)
        monkeypatch.setattr(releases, "module_at", lambda *_: running)
        outputs = releases.CallOutputs(device, np.arange(SAVED + 1))  # as if backward allocates before each free
        return releases.released_at(trace, device, outputs, SimpleNamespace(rows=np.empty(0, np.int64))).tolist()

    return find


def test_the_output_of_a_call_belongs_to_its_caller(released):
    block = [Frame("model.py", 50, "block"), Frame("train.py", 9, "main")]
    attention = [*call(20), *block]
    rest = [*call(7, file="norm.py"), Frame("model.py", 51, "block"), Frame("train.py", 9, "main")]
    found = released(
        ([*call(5, file="linear.py"), *attention], 800, SAVED, "attention.query"),
        ([*call(5, file="linear.py"), *attention], 800, SAVED - 1, "attention.key"),  # from the same line of a loop
        ([Frame("model.py", 21, "forward"), *attention[1:]], 900, SAVED - 2, "attention"),
        ([Frame("model.py", 21, "forward"), *attention[1:]], 90, SAVED - 2, "attention"),  # a mask, after the output
        (rest, 800, SAVED - 3, "norm"),
        ([Frame("train.py", 10, "main")], 1, SAVED, None),
    )
    # query and key are locals of attention, its output one of the function that calls it; its statistics are its own
    assert found == [4, 4, 5, 4, 5, releases.NEVER]


def test_tensors_that_the_call_frees_itself_are_not_its_output(released):
    attention = [*call(20), Frame("train.py", 9, "main")]
    found = released(
        ([*call(5, file="linear.py"), *attention], 800, SAVED, "attention.query"),
        ([*call(5, file="linear.py"), *attention], 800, 1, "attention.query"),  # freed before the call returns
        ([Frame("model.py", 30, "forward"), *attention[1:]], 700, SAVED - 2, "attention"),
        ([Frame("train.py", 10, "main")], 1, SAVED, None),
    )
    assert found[0] == 3


def test_nothing_is_known_without_stacks(released):
    assert released(([], 800, SAVED, "attention"), ([], 1, SAVED, None)) == [releases.NEVER] * 2


SOURCE = """
def attention(self, x):
    residual = x
    x = self.norm(x)
    q = self.query(x)
    old = q
    q = q.view(2, 3)
    x = self.mix(q)
    x = self.out(x)
    if self.scale:
        old = None
    x = x + self.mlp(self.norm(x))
    del q
    x = self.last(x)
    pair = [self.query(x), self.key(x)]
    pair += [self.last(x)]
    return self.add(pair)
"""


@pytest.fixture
def lines(released, tmp_path):
    """Returns a function from (line, called module's file or "") pairs to the releases of tensors made there."""
    file = tmp_path / "model.py"
    file.write_text(SOURCE)

    def find(*made):
        frames = [
            [*([Frame(f"{part}.py", 5, "forward")] if part else []), Frame(str(file), line, "attention")]
            for line, part in made
        ]
        end = ([Frame("train.py", 10, "main")], 1, SAVED, None)
        return released(*((each, 800, SAVED - i, "attention") for i, each in enumerate(frames)), end)[:-1]

    return find


def test_a_variable_that_is_bound_again_lets_go(lines):
    made = (
        (4, "norm"),
        (5, "linear"),
        (8, "mix"),
        (9, "out"),
        (12, "norm"),
        (12, "mlp"),
        (12, ""),
        (14, "last"),
        (15, "key"),
    )
    # 4: x until line 8 has run; 5: held by old, which an "if" may not set to None, until the function returns; 8: until
    # 9 has run; 9: until 12 has run; 12: the argument of mlp until mlp has run, the product until it has been added
    assert lines(*made) == [3, 9, 4, 7, 6, 7, 8, 9, 9]


def test_what_a_list_holds_stays(lines):
    assert lines((15, "linear"), (15, "key"), (16, "last"), (17, "add")) == [4, 4, 4, 4]


def test_without_source_tensors_stay_until_the_function_returns(lines, monkeypatch):
    monkeypatch.setattr(releases, "source_of", lambda _: None)
    assert lines((4, "norm"), (8, "mix"), (9, "out")) == [3, 3, 3]
