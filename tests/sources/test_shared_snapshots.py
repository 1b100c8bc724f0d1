"""Every real snapshot opens as expected, and its bytes, blocks and split agree with the file itself."""

from __future__ import annotations

import pytest

from memdiag.sources import load
from memdiag.trace import schema

# Files that contradict themselves; all others must be fully consistent.
CONTRADICT = {
    (
        "drisspg__transformer_nuggets__test__data__mini_snapshot.pickle"
    ): "blocks that the trace never frees are inactive at the end",
    "facebookresearch__mosaic__test__snapshots__output.pickle": "allocations outside of every segment",
}
NUM_SNAPSHOTS = 70  # in the collection, without the HTML pages that contain a copy


@pytest.fixture(scope="module")
def files(request):
    shared = request.config.rootpath.parent / "shared" / "data"
    if not shared.is_dir():
        pytest.skip("the collection of real snapshots (../shared/data) is not here")
    found = sorted((shared / "snapshots").iterdir())
    assert len([f for f in found if f.suffix != ".html"]) == NUM_SNAPSHOTS
    return [*found, *sorted((shared / "npu-samples").glob("**/*.pickle"))]


@pytest.fixture(scope="module")
def traces(files):
    return [(file.name, load(file)) for file in files]


def test_every_snapshot_opens(traces):
    for name, trace in traces:
        codes = {note.code for note in trace.notes}
        assert ("MD901" in codes) == (name in CONTRADICT), (name, codes)
        assert "MD902" not in codes, name
        assert trace.format == ("memory-viz-html" if name.endswith(".html") else "torch-snapshot")
        assert trace.backend == (
            "npu" if "msinsight" in name or name.startswith(("fsdp", "train.", "oom_")) else "cuda"
        ), name


def test_bytes_at_the_end_are_those_of_the_segments(traces):
    for name, trace in traces:
        for device in trace.devices:
            assert device.end["reserved"] == device.segments.total_size.sum(), name
            for curve in ("allocated", "active"):
                said = device.segments[f"{curve}_size"]
                if (said >= 0).all():
                    assert device.end[curve] == said.sum(), (name, curve)
            if name not in CONTRADICT:
                ours = device.usage_at(device.num_events - 1)
                assert {k: ours[k] for k in ("reserved", "allocated", "active")} == {
                    k: device.end[k] for k in ("reserved", "allocated", "active")
                }, name


def test_blocks_at_the_end_are_those_of_the_file(traces):
    for name, trace in traces:
        if name in CONTRADICT:
            continue
        for device in trace.devices:
            blocks = device.topology(device.num_events - 1).blocks
            taken = blocks["tensor"] >= 0
            ours = {*zip(*(blocks[k][taken].tolist() for k in ("address", "size", "pending")), strict=True)}
            held = device.blocks.state != schema.INACTIVE
            pending = device.blocks.state[held] == schema.ACTIVE_PENDING_FREE
            theirs = {
                *zip(
                    device.blocks.address[held].tolist(),
                    device.blocks.size[held].tolist(),
                    pending.tolist(),
                    strict=True,
                )
            }
            assert ours == theirs, name
            free = {*zip(blocks["address"][~taken].tolist(), blocks["size"][~taken].tolist(), strict=True)}
            inactive = {*zip(device.blocks.address[~held].tolist(), device.blocks.size[~held].tolist(), strict=True)}
            assert free == inactive, name


def test_the_identity_holds_at_every_event(traces):
    for name, trace in traces:
        for device in trace.devices:
            usage = device.usage
            known = usage.cache >= 0
            parts = usage.cache + usage.stranded + usage.foreign
            assert ((usage.reserved - usage.active) == parts)[known].all(), name
            assert min(usage[part][known].min(initial=0) for part in ("cache", "stranded", "foreign")) >= 0, name
            requests = (device.events.action == schema.ALLOC) | (device.events.action == schema.OOM)
            assert known.all() or not requests.any(), name
