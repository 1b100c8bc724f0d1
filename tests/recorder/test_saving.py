"""The recorder samples host memory before and after checkpoints are saved, and changes nothing else."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from memdiag.recorder import saving
from memdiag.recorder.pinned_tensors import _block, pinned_tensors
from memdiag.recorder.saving import SaveWrappers

MIB = 1 << 20


def module(save, name="torch"):
    return SimpleNamespace(__name__=name, save=save, serialization=SimpleNamespace(save=save))


def test_a_save_has_a_sample_before_and_after(monkeypatch):
    clock = iter(range(100, 200, 5))
    monkeypatch.setattr(saving.time, "perf_counter", lambda: next(clock))
    taken = []
    torch = module(taken.append)
    SaveWrappers(taken.append).wrap(torch)
    torch.save("one")
    torch.serialization.save("two")
    assert taken == ["save", "one", "saved", "save", "two", "saved"]


def test_nested_saves_and_those_that_follow_at_once_are_one():
    taken = []
    torch = module(lambda value: torch.serialization.save(value - 1) if value else taken.append(0))
    SaveWrappers(taken.append).wrap(torch)
    for _ in range(3):
        torch.save(2)
    assert taken == ["save", 0, "saved", 0, 0]


def test_an_error_of_the_save_reaches_the_program():
    taken = []
    torch = module(lambda: pickle.dumps(test_an_error_of_the_save_reaches_the_program.missing))
    SaveWrappers(taken.append).wrap(torch)
    with pytest.raises(AttributeError):
        torch.save()
    assert taken == ["save", "saved"]


def test_a_sample_that_fails_does_not_stop_the_save(capsys):
    torch = module(lambda: 5)
    SaveWrappers(lambda _: 1 / 0).wrap(torch)
    assert torch.save() == 5
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_the_functions_are_restored_unless_others_have_wrapped_them():
    def original():
        pass

    torch, other = module(original), module(original, "safetensors.torch")
    watch = SaveWrappers(lambda _: None)
    watch.wrap(torch)
    watch.wrap(other)  # it has no save_file
    assert other.save is original
    theirs = torch.save = lambda: None
    watch.remove()
    assert (torch.save, torch.serialization.save) == (theirs, original)


@pytest.mark.parametrize(
    ("size", "threshold", "block"),
    [(80 * MIB, None, 128 * MIB), (128 * MIB, None, 128 * MIB), (80 * MIB, 64 * MIB, 80 * MIB), (3, 64, 4)],
)
def test_blocks_are_powers_of_two_up_to_the_threshold(size, threshold, block):
    assert _block(size, threshold) == block


class Storage:
    def __init__(self, size):
        self.size = size

    def nbytes(self):
        return self.size

    def data_ptr(self):
        return id(self)


class Tensor:
    """A stand-in for a tensor; views share the storage."""

    def __init__(self, storage, pinned=True, device="cpu"):
        self.storage, self.pinned = storage, pinned
        self.device = SimpleNamespace(type=device)
        self.tracked = []  # the garbage collector follows objects with containers

    def untyped_storage(self):
        if self.storage is None:
            raise RuntimeError("no storage")
        return self.storage

    def is_pinned(self):
        return self.pinned


def test_pinned_tensors_are_counted_once_for_each_storage(monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "pinned_max_round_threshold_mb: 10")
    shared = Storage(20 * MIB)
    held = [Tensor(shared), Tensor(shared), Tensor(Storage(3 * MIB)), Tensor(Storage(100)), Tensor(None)]
    held += [Tensor(Storage(5 * MIB), pinned=False), Tensor(Storage(5 * MIB), device="cuda")]
    assert pinned_tensors(SimpleNamespace(Tensor=Tensor)) == (23 * MIB, 24 * MIB)
    del held
