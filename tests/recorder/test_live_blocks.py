"""Blocks freed by other threads, which a CPU recording cannot see, end when another block is allocated over them."""

from __future__ import annotations

import json
import pickle
import random

from memdiag.recorder.backends.cpu_history import CpuHistory
from memdiag.recorder.backends.live_blocks import LiveBlocks


def share_a_byte(one, other):
    return one[0] < other[0] + other[1] and other[0] < one[0] + one[1]


def live_after(entries):
    """Returns the blocks that are live after all entries, and asserts that live blocks never overlap."""
    live = set()
    for entry in entries:
        block = (entry["addr"], entry["size"])
        if entry["action"] == "alloc":
            assert not [other for other in live if share_a_byte(block, other)]
            live.add(block)
        elif entry["action"] == "free_completed":
            live.remove(block)
    return live


def test_live_blocks_agree_with_a_simple_implementation():
    chance, blocks, plain = random.Random(0), LiveBlocks(), {}  # noqa: S311 - seeded
    for number in range(3000):
        addr, size = 64 * chance.randrange(200), chance.choice((1, 64, 100, 640, 6400))
        if chance.random() < 0.4:
            assert blocks.give_back(addr) == (plain.pop(addr, None) is not None)
            continue
        gone = [
            (other, there) for other, (there, _) in sorted(plain.items()) if share_a_byte((addr, size), (other, there))
        ]
        assert blocks.take(addr, size, number) == gone
        for other, _ in gone:
            del plain[other]
        plain[addr] = (size, number)
        assert list(blocks) == [(addr, *rest) for addr, rest in sorted(plain.items())]
    assert len(blocks) == len(plain)


def test_a_block_ends_when_another_is_allocated_over_it():
    history = CpuHistory()
    history.keep(100)
    for time_us, addr, size in [(1, 1000, 500), (2, 2000, 100), (3, 1400, 700), (4, 2000, -100), (5, 1400, -700)]:
        history.add(time_us, addr, size)
    told = [(entry["action"], entry["addr"], entry["size"], entry["time_us"]) for entry in history.entries()]
    assert told[2:] == [
        ("free_requested", 1000, 500, 3),
        ("free_completed", 1000, 500, 3),
        ("free_requested", 2000, 100, 3),
        ("free_completed", 2000, 100, 3),
        ("alloc", 1400, 700, 3),
        ("free_requested", 1400, 700, 5),
        ("free_completed", 1400, 700, 5),
    ]
    assert (history.unseen_frees, history.unknown_frees) == (2, 1)
    assert (history.allocs, history.frees) == (3, 3)


def test_blocks_freed_by_another_thread_end_when_replaced(cpu):
    run = cpu("freed_elsewhere.py")
    dropped, kept = (set(map(tuple, blocks)) for blocks in json.loads(run.done.stdout))
    replaced = {block for block in dropped if any(share_a_byte(block, other) for other in kept)}
    content = pickle.loads(run.path().read_bytes())
    live = live_after(content["device_traces"][0])
    assert kept <= live
    assert not replaced & live
    assert replaced, "nothing was put in their place"
    assert content["memdiag"]["unseen_frees"] >= len(replaced)
    assert "by another thread or in a gap" in " ".join(note.text for note in run.trace.notes if note.code == "MD902")
