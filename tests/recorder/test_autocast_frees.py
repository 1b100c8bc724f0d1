"""Recordings of simulated devices have the frees of autocast in one order, whatever the host addresses are."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from memdiag.recorder.backends.autocast_frees import AutocastFrees


class Device:
    """A backend with one device, and a torch whose autocast frees blocks in a given order."""

    def __init__(self, order, *, completes=True):
        self.is_active = True
        self.trace = []
        self.completes = completes
        self.torch = SimpleNamespace(clear_autocast_cache=lambda: [self.free(addr) for addr in order])
        self.frees = AutocastFrees(self)

    def num_devices(self):
        return 1

    def allocator_state(self, device):
        assert device == 0
        actions = [entry["action"] for entry in self.trace]
        return 0, 5 + actions.count("alloc"), 3 + actions.count("free_requested")  # of blocks before the trace

    def add(self, action, addr):
        self.trace.append({"action": action, "addr": addr, "time_us": len(self.trace)})

    def alloc(self, *addresses):
        for addr in addresses:
            self.add("alloc", addr)

    def free(self, addr):
        self.add("free_requested", addr)
        if self.completes:
            self.add("free_completed", addr)

    def ordered(self):
        content = {"device_traces": [[dict(entry) for entry in self.trace]]}
        self.frees.order(content)
        return content["device_traces"][0]


def rows(trace):
    return [(entry["action"], entry["addr"]) for entry in trace]


@pytest.mark.parametrize("completes", [True, False])
def test_frees_are_ordered_by_address_and_times_remain(completes):
    device = Device([3, 1, 2], completes=completes)
    original = device.torch.clear_autocast_cache
    device.frees.install(device.torch)
    device.alloc(1, 2, 3, 7, 5)
    device.free(7)
    device.torch.clear_autocast_cache()
    device.free(5)
    found = device.ordered()
    actions = ["free_requested", "free_completed"][: 1 + completes]
    assert rows(found[5:]) == [(action, addr) for addr in (7, 1, 2, 3, 5) for action in actions]
    assert [entry["time_us"] for entry in found] == list(range(len(found)))
    device.frees.remove()
    assert device.torch.clear_autocast_cache is original


def test_frees_are_ordered_between_other_entries_only():
    """Another thread may allocate meanwhile, perhaps a block that was just freed."""
    device = Device([])

    def clear():
        for addr in (4, 3):
            device.free(addr)
        device.alloc(3)
        for addr in (2, 1):
            device.free(addr)

    device.torch.clear_autocast_cache = clear
    device.frees.install(device.torch)
    device.alloc(1, 2, 3, 4)
    device.torch.clear_autocast_cache()
    assert [addr for action, addr in rows(device.ordered()) if action != "free_completed"] == [
        *(1, 2, 3, 4),
        *(3, 4, 3, 1, 2),
    ]


def test_the_order_remains_if_entries_are_missing():
    device = Device([3, 1, 2])
    device.frees.install(device.torch)
    device.alloc(1, 2, 3)
    device.torch.clear_autocast_cache()
    del device.trace[-2:]  # the program stopped the history
    before = rows(device.trace)
    device.allocator_state = lambda _: (0, 8, 6)
    assert rows(device.ordered()) == before


def test_ends_before_the_first_entry_are_left_out():
    device = Device([3, 1, 2])
    device.frees.install(device.torch)
    for _ in range(2):
        device.alloc(1, 2, 3)
        device.torch.clear_autocast_cache()
    counts = device.allocator_state(0)
    device.allocator_state = lambda _: counts
    del device.trace[:4]  # the history has a limit
    assert [addr for _, addr in rows(device.ordered())] == [*(3, 1, 1, 2, 2), *(1, 2, 3), *(1, 1, 2, 2, 3, 3)]


def test_a_failure_is_contained_and_an_older_torch_has_no_such_function(capsys):
    device = Device([2, 1])
    device.frees.install(SimpleNamespace())
    device.frees.install(device.torch)
    device.allocator_state = lambda _: 1 / 0
    device.torch.clear_autocast_cache()
    assert rows(device.ordered()) == rows(device.trace)
    assert "memdiag" in capsys.readouterr().err


def test_two_runs_with_other_host_addresses_have_the_same_events(accelerator):
    runs = [accelerator("autocast_ends.py", accelerator.device) for _ in range(2)]
    first, second = (
        [
            (entry["action"], entry["size"], entry["addr"])
            for entry in pickle.loads(run.path().read_bytes())["device_traces"][0]
        ]
        for run in runs
    )
    assert first == second
    assert runs[0].done.stdout != runs[1].done.stdout  # other host addresses
