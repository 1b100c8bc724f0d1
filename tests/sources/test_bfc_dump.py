"""Lists of chunks that TensorFlow and JAX print when they run out of memory."""

from __future__ import annotations

import pytest

from memdiag.analyzers.report import build_report
from memdiag.errors import RefusedFile
from memdiag.sources import load
from memdiag.sources.bfc_dump import sniff
from memdiag.trace import schema
from tests.fuzz.seeds_of_logs import bfc_dump

GB = 1_000_000_000
HEAD = "2026-11-22 10:00:00.754214: I external/xla/xla/tsl/framework/bfc_allocator.cc:1114] "


def read(tmp_path, lines):
    path = tmp_path / "program.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return load(path)


def test_a_list_of_chunks(tmp_path):
    trace = read(tmp_path, ["Epoch 1/5", *bfc_dump(), "Traceback"])
    (device,) = trace.devices
    assert (trace.format, trace.backend, device.device, device.num_events) == ("bfc-dump", None, 0, 1)
    assert device.usage.reserved[0] == 4_194_304 + 2_097_152
    assert device.usage.allocated[0] == 1280 + 2_096_128 + 2_097_152
    assert device.events.action.tolist() == [schema.OOM]
    labels = {trace.stacks.label(stack) for stack in device.tensors.stack.tolist()}
    assert labels == {"ScratchBuffer", "Conv2D", ""}
    assert "17.69 GiB" in next(note.text for note in trace.notes if note.code == "MD913")


def test_fragmentation_is_told_from_capacity(tmp_path):
    full = [
        f"{HEAD}Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.72GiB (rounded to {4 * GB})requested by",
        f"{HEAD}BFCAllocator dump for GPU_0_bfc",
        f"{HEAD}Next region of size {19 * GB}",
        *[f"{HEAD}InUse at {0x7000_0000_0000 + 4 * GB * number:x} of size {4 * GB} next 1" for number in range(4)],
        f"{HEAD}Free  at {0x7000_0000_0000 + 16 * GB:x} of size {3 * GB} next 1",
    ]
    report = build_report(read(tmp_path, full))
    assert report.findings[0].code == "MD206"
    assert report.devices[0].fragmentation.stranded_bytes == 3 * GB
    stretch = 0x7000_0000_0000
    pieces = [
        f"{HEAD}{'InUse' if number % 2 else 'Free '} at {stretch + GB * number:x} of size {GB} next 1"
        for number in range(12)
    ]
    report = build_report(read(tmp_path, [*full[:3], *pieces]))
    assert report.findings[0].code == "MD201"


def test_the_last_list_of_an_allocator_counts(tmp_path):
    second = [line.replace("of size 1280", "of size 1024") for line in bfc_dump()]
    trace = read(tmp_path, [*bfc_dump(), *second])
    assert 1024 in trace.devices[0].tensors.block_bytes.tolist()


def test_allocators_of_two_devices(tmp_path):
    trace = read(tmp_path, [*bfc_dump(), *(line.replace("GPU_0", "GPU_1") for line in bfc_dump())])
    assert [device.device for device in trace.devices] == [0, 1]


def test_old_logs_call_chunks_in_use_chunks(tmp_path):
    trace = read(
        tmp_path,
        [
            "I tensorflow/core/common_runtime/bfc_allocator.cc:661] BFCAllocator dump for GPU_0_bfc",
            "I tensorflow/core/common_runtime/bfc_allocator.cc:680] Chunk at 0x10208000000 of size 1280",
            "I tensorflow/core/common_runtime/bfc_allocator.cc:689] Free at 0x10208000500 of size 768",
        ],
    )
    assert (trace.devices[0].end["allocated"], trace.devices[0].end["reserved"]) == (1280, 2048)


def test_overlapping_chunks_are_dropped(tmp_path):
    lines = bfc_dump()
    lines.insert(5, f"{HEAD}InUse at 7f0000000100 of size 99999999 next 1")
    trace = read(tmp_path, lines)
    assert trace.devices[0].usage.reserved[0] >= trace.devices[0].usage.allocated[0]


def test_a_failure_without_a_list_is_refused(tmp_path):
    with pytest.raises(RefusedFile) as refused:
        read(tmp_path, bfc_dump()[:1])
    assert "BFCAllocator dump" in refused.value.hint


@pytest.mark.parametrize(
    ("head", "known"), [("\n".join(bfc_dump()).encode(), True), (b"loss 0.5", False), (b"", False)]
)
def test_sniff(head, known):
    assert sniff(head) is known
