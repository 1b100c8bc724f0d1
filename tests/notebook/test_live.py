"""``memdiag.live()`` names the holder of every tensor that Python can see."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import memdiag
from memdiag.errors import MemdiagError
from tests.frameworks import run_program

PROGRAM = Path(__file__).parent / "programs" / "hold.py"
HOLDERS = {
    "90": "net.mask",
    "110": "captured in the closure of closure.<locals>.<lambda> (",
    "120": "held in fails (",
    "130": "a variable of the generator generator (",
    "140": "local in main (",
    "150": "pair[0] in main (",
    "190": "deep.0.0.0.0.weight",
    "180": "the autograd graph of chain in main (",
    "160": "the autograd graph of tracker.history['loss'][0]",
}


@pytest.fixture(scope="module")
def said():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch in the Python that runs the tests")
    return json.loads(run_program(sys.executable, PROGRAM).stdout)


@pytest.mark.parametrize("rows", HOLDERS)
def test_the_holder_is_named(said, rows):
    assert any(holder.startswith(HOLDERS[rows]) for holder in said["first"][rows]), said["first"][rows]


def test_parameters_gradients_and_states_are_named(said):
    assert {"net.fc.weight", "net.fc.weight.grad", "optimizer.state[Parameter]['exp_avg']"} <= set(said["all"])
    assert any(holder.startswith("deep.0.0.0.0.weight.grad in main (") for holder in said["all"])


def test_growing_lists_only_what_is_new(said):
    assert sorted(said["grown"]) == [["leaked[0]"], ["leaked[1]"], ["leaked[2]"]]


def test_the_search_is_bounded_in_time(said):
    assert said["is_complete"] == [True, False]


def test_the_search_keeps_no_tensor(said):
    assert said["freed"]


def test_the_table_has_every_holder(said):
    assert "storages of live tensors" in said["text"]
    for holder in ("net.mask", "pair[0] in main"):
        assert holder in said["text"]
        assert holder in said["html"]


def test_without_torch_live_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MemdiagError, match="has not imported torch"):
        memdiag.live()
