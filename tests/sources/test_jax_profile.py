"""Device memory profiles of JAX: live buffers with their call stacks and devices."""

from __future__ import annotations

import contextlib
import gzip
import subprocess
import sys

import pytest

from memdiag.errors import RefusedFile
from memdiag.sources import load
from memdiag.sources.jax_profile import _numbers, sniff
from tests.fuzz.forms import message
from tests.fuzz.seeds_of_logs import jax_profile

MIB = 1 << 20
# What a program with buffers of 4 MiB and 256 KiB has; run with a Python that has JAX.
PROGRAM = """
import sys
import jax, jax.numpy as jnp
large = jnp.ones((1024, 1024))
small = [jnp.full((256, 256), i, jnp.float32) for i in range(5)]
jax.block_until_ready([large, *small])
jax.profiler.save_device_memory_profile(sys.argv[1])
"""


def read(tmp_path, tree):
    path = tmp_path / "memory.prof"
    path.write_bytes(gzip.compress(message(tree)))
    return load(path)


def test_a_profile(tmp_path):
    trace = read(tmp_path, jax_profile())
    (device,) = trace.devices
    assert (trace.format, trace.backend, device.num_events, device.device) == ("jax-profile", None, 0, 0)
    assert device.end["allocated"] == 5 * 262_144 + 4 * MIB + 8192
    assert sorted(device.tensors.block_bytes.tolist()) == [8192, *[262_144] * 5, 4 * MIB]
    assert trace.stacks.label(int(device.tensors.stack[0])) == "a.py:35 f"
    assert [str(frame) for frame in trace.stacks[int(device.tensors.stack[-1])]] == [
        "executable",
        "a.py:35 f",
        "a.py:7 f",
    ]
    assert {note.code for note in trace.notes} == {"MD906", "MD910", "MD913"}


def test_an_uncompressed_profile(tmp_path):
    path = tmp_path / "memory.prof"
    path.write_bytes(message(jax_profile()))
    assert load(path).devices[0].end["allocated"] > 4 * MIB


def test_each_device_is_a_device(tmp_path):
    tree = jax_profile()
    tree.append([6, b"cuda:3"])
    other = [[1, b"\x01"], [2, b"\x01"], [2, 512], [3, message([[1, 8], [2, len(tree) - 9]])]]
    strings = [value for number, value in tree if number == 6]
    other[-1] = [3, message([[1, strings.index(b"device")], [2, strings.index(b"cuda:3")]])]
    trace = read(tmp_path, [*tree, [2, other]])
    assert [(device.device, device.end["allocated"]) for device in trace.devices][1] == (3, 512)


def test_a_profile_of_something_else_is_refused(tmp_path):
    tree = [[number, b"cpu" if value == b"space" else value] for number, value in jax_profile()]
    with pytest.raises(RefusedFile, match="not of memory") as refused:
        read(tmp_path, tree)
    assert "save_device_memory_profile" in refused.value.hint


def test_a_huge_count_takes_one_row(tmp_path):
    tree = jax_profile()
    tree[2] = [2, [[2, 1 << 40], [2, 1 << 40]]]
    trace = read(tmp_path, tree)
    assert len(trace.devices[-1].tensors) < 10


@pytest.mark.parametrize("cut", range(1, 120, 7))
def test_a_truncated_profile_is_refused_or_read(tmp_path, cut):
    path = tmp_path / "memory.prof"
    path.write_bytes(message(jax_profile())[:-cut])
    with contextlib.suppress(RefusedFile):  # without its last strings, it may still be complete
        assert load(path).devices


@pytest.mark.parametrize(
    ("head", "known"),
    [
        (message(jax_profile()), True),
        (b"\n\x04\x08\x01\x10\x02", False),
        (b"\nhello\n", False),
        (b"", False),
        (b"{}", False),
    ],
)
def test_sniff(head, known):
    assert sniff(head) is known


def test_a_profile_that_jax_writes(tmp_path):
    path = tmp_path / "memory.prof"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("needs JAX")
    (device,) = load(path).devices
    sizes = device.tensors.block_bytes.tolist()
    assert sizes.count(4 * MIB) == 1
    assert sizes.count(262_144) == 5


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (["cuda:0", "cuda:1"], [0, 1]),
        (["TFRT_CPU_3"], [3]),
        (["TPU_4(process=0,(0,1,0,0))", "TPU_0(process=0,(0,0,0,0))"], [4, 0]),
        (["StreamExecutorGpuDevice(id=5, process_index=1)"], [5]),
        (["TPU v4 2"], [2]),
        (["", "cuda:0"], [1, 0]),
        (["gpu", "", "cpu"], [0, 2, 1]),
        (["cuda:0", "cpu:0"], [0, 1]),
        ([""], [0]),
    ],
)
def test_the_number_of_a_device_is_the_one_in_its_name(names, numbers):
    assert [_numbers(names)[name] for name in names] == numbers


def test_memory_without_a_device_comes_after_the_devices(tmp_path):
    tree = jax_profile()
    tree[4] = [2, [[2, b"\x01"], [2, 8192]]]
    trace = read(tmp_path, tree)
    assert [(device.device, device.end["allocated"]) for device in trace.devices] == [
        (0, 5 * 262_144 + 4 * MIB),
        (1, 8192),
    ]
    assert "names no device" in next(note.text for note in trace.notes if note.code == "MD919")


def test_executables_with_an_impossible_size_are_counted(tmp_path):
    tree = jax_profile()
    tree[4] = [2, [[2, b"\x01"], [2, (1 << 64) - 5]]]
    trace = read(tmp_path, tree)
    assert sum(device.end["allocated"] for device in trace.devices) == 5 * 262_144 + 4 * MIB
    assert "1 row" in next(note.text for note in trace.notes if note.code == "MD916")
