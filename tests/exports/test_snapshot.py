"""A trace written as a PyTorch snapshot reads back as the same trace, and its pickle contains no executable parts."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path

import numpy as np
import pytest

import memdiag
from memdiag.errors import MemdiagError
from memdiag.exports import snapshot
from memdiag.exports.model import Wanted
from memdiag.trace import schema

GOLDENS = Path(__file__).parents[1] / "goldens"
KINDS = [
    "cuda-2.11.0-pools",
    "cuda-2.13.0-expandable",
    "cuda-2.13.0-late",
    "cuda-2.13.0-no-trace",
    "cuda-2.13.0-oom",
    "cuda-2.13.0-recorded",
    "cuda-2.13.0-streams",
    "cuda-2.13.0-two-devices",
    "npu-2.13.0-recorded",
    "npu-2.13.0-workspace",
]
RUNS = {
    "GLOBAL",
    "STACK_GLOBAL",
    "REDUCE",
    "BUILD",
    "INST",
    "OBJ",
    "NEWOBJ",
    "NEWOBJ_EX",
    "EXT1",
    "EXT2",
    "EXT4",
    "PERSID",
    "BINPERSID",
}


@pytest.mark.parametrize("name", KINDS)
def test_read_again_it_is_the_same(name, tmp_path):
    trace = memdiag.load(GOLDENS / name / "snapshot.pickle")
    (path,) = snapshot.write(trace, tmp_path / "again.pickle", Wanted())
    assert not RUNS & {operation.name for operation, _, _ in pickletools.genops(path.read_bytes())}
    again = memdiag.load(path)
    assert (again.backend, again.torch_version, again.phantom) == (trace.backend, trace.torch_version, trace.phantom)
    assert again.bases == trace.bases
    for old, new in zip(trace.devices, again.devices, strict=True):
        kept = old.events.action < schema.WORKSPACE_SNAPSHOT
        for column in ("reserved", "allocated", "active", "requested", "cache", "stranded", "foreign"):
            assert (old.usage[column][kept] == new.usage[column]).all(), column
        for column in ("action", "addr", "size", "stream", "time_us", "phase", "step"):
            assert (old.events[column][kept] == new.events[column]).all(), column
        assert old.end == new.end
        assert (old.capacity_bytes, len(old.tensors)) == (new.capacity_bytes, len(new.tensors))
        names = [
            sorted(trace.strings[name] for name in device.tensors.name[device.tensors.name >= 0].tolist())
            for trace, device in ((trace, old), (again, new))
        ]
        assert names[0] == names[1]


@pytest.mark.parametrize("name", ["cuda-2.13.0-pools", "npu-2.13.0-expandable"])
def test_pytorchs_own_viewer_opens_it(name, tmp_path):
    viewer = pytest.importorskip("torch.cuda._memory_viz", reason="needs torch")
    (path,) = snapshot.write(memdiag.load(GOLDENS / name / "snapshot.pickle"), tmp_path / "again.pickle", Wanted())
    content = pickle.loads(path.read_bytes())
    assert all(len(draw(content)) > 1000 for draw in (viewer.trace_plot, viewer.segment_plot))
    assert all(len(tell(content)) > 50 for tell in (viewer.segsum, viewer.trace))


def test_packed_and_one_device(tmp_path):
    trace = memdiag.load(GOLDENS / "cuda-2.13.0-two-devices" / "snapshot.pickle")
    (path,) = snapshot.write(trace, tmp_path / "again.pkl.gz", Wanted(device=1))
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    again = memdiag.load(path)
    there = [device for device in again.devices if device.num_events]
    assert [device.device for device in there] == [1]
    assert np.array_equal(there[0].usage.reserved, trace.devices[1].usage.reserved)


def test_without_addresses_there_is_none(tmp_path):
    trace = memdiag.load(GOLDENS / "cpu-2.13.0-recorded" / "snapshot.pickle")
    with pytest.raises(MemdiagError, match="has no addresses, which a snapshot needs") as raised:
        snapshot.write(trace, tmp_path / "again.pickle", Wanted())
    assert "simulate" in raised.value.hint
    assert list(tmp_path.iterdir()) == []
