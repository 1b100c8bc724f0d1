"""Plans pass the independent checker, and a replay of the allocator agrees with the memory that they leave in use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memdiag.allocator.subject import Subject
from memdiag.cli.loading import read_trace
from memdiag.errors import MemdiagError
from memdiag.offload.choose import ChosenMoves, automatic, forced
from memdiag.offload.clock import Clock
from memdiag.offload.rewrite import rewrite
from memdiag.offload.schedule import CPU
from memdiag.offload.settings import OffloadSettings
from memdiag.offload.windows import Windows, find_windows
from tests.offload.plan_check import ON_DEVICE, ON_DISK, ON_HOST, Life, Stay, problems

GOLDENS = Path(__file__).parents[1] / "goldens"
TIGHT = {"step_seconds": 0.01, "offload_cpu_size": "1MB", "offload_disk_size": "3MB", "host_mem_block_size": "1MB"}
RECORDED = ["cuda-2.13.0-recorded", "npu-2.13.0-recorded", "cuda-2.13.0-train"]


@pytest.fixture(scope="module", params=RECORDED)
def subject(request) -> Subject:
    trace = read_trace(next(iter(sorted((GOLDENS / request.param).glob("*.pickle")))))
    return Subject.of(trace, trace.devices[0])


def verified(subject: Subject, windows: Windows, chosen: ChosenMoves, most: int | None) -> list[str]:
    device, moves = subject.device, chosen.moves
    tensors = device.tensors
    idle: dict[int, list[tuple[int, int]]] = {}
    for tensor, begin, end in zip(windows.tensor.tolist(), windows.begin.tolist(), windows.end.tolist(), strict=True):
        idle.setdefault(tensor, []).append((begin, end))
    lives = {
        row: Life(
            int(tensors.alloc_at[row]),
            int(tensors.free_requested_at[row]),
            int(tensors.block_bytes[row]),
            tuple(idle.get(row, ())),
        )
        for row in range(len(tensors))
    }
    stays = [
        Stay(int(windows.tensor[window]), ON_HOST if place == CPU else ON_DISK, out, back)
        for window, place, out, back in zip(
            moves.window.tolist(), moves.place.tolist(), moves.out_at.tolist(), moves.back_at.tolist(), strict=True
        )
        if back > out
    ]
    return problems(lives, stays, {} if most is None else {ON_DEVICE: most}, device.num_events)


@pytest.mark.parametrize("share", [0.95, 0.8])
@pytest.mark.parametrize(
    "options",
    [{}, {"step_seconds": 0.01}, {"step_seconds": 10, "offload_cpu_size": "1MB"}, {"allow_exposed": True}, TIGHT],
)
def test_every_byte_is_in_one_place_and_back_before_its_use(subject, share, options):
    settings = OffloadSettings.read(None, {"min_bytes": 512, **options})
    windows = find_windows(subject.trace, subject.device)
    load = subject.device.usage.allocated.astype(np.int64)
    target = int(load.max() * share)
    chosen = automatic(windows, load, target, Clock.of(subject.device, settings.step_seconds, is_real=False), settings)
    assert verified(subject, windows, chosen, target if chosen.is_enough else None) == []
    assert chosen.host_bytes <= settings.host_bytes or not chosen.is_enough
    assert (chosen.load <= load).all()


def test_plans_of_the_forced_strategy_are_valid(subject):
    settings = OffloadSettings.read('{"offload_param": "cpu", "auto_offload": false}', {})
    windows = find_windows(subject.trace, subject.device)
    load = subject.device.usage.allocated.astype(np.int64)
    nothing = np.zeros(len(windows), bool)
    chosen = forced(windows, load, Clock.of(subject.device, 1.0, is_real=False), settings, nothing)
    assert verified(subject, windows, chosen, None) == []


def test_the_replay_allocates_what_the_plan_leaves_on_the_device(subject):
    settings = OffloadSettings.read(None, {"min_bytes": 512})
    windows = find_windows(subject.trace, subject.device)
    load = subject.device.usage.allocated.astype(np.int64)
    chosen = automatic(windows, load, int(load.max() * 0.8), Clock.of(subject.device, 10.0, is_real=False), settings)
    assert len(chosen.moves)
    rewritten = rewrite(subject.workload, windows, chosen.moves)
    unlimited = replace(subject.recorded, capacity_bytes=None, fraction=None)
    replay = subject.replayer(rewritten.workload, unlimited)
    last = np.searchsorted(rewritten.workload.row, np.arange(len(load)), side="right") - 1
    known = last >= 0
    # A block may differ in size from the recorded one by a remainder that is too small to be split off.
    assert (replay.allocated[last[known]] >= chosen.load[known] - (1 << 21)).all()
    assert int(replay.allocated.max()) <= int(chosen.load.max()) * 1.03 + (1 << 21)
    assert (
        rewritten.origin[rewritten.workload.tensor[rewritten.workload.tensor >= 0]] < subject.workload.num_tensors
    ).all()


def test_the_checker_reports_violations():
    lives = {1: Life(0, 10, 100, ((2, 6),)), 2: Life(0, 10, 50, ())}
    assert problems(lives, [Stay(1, ON_HOST, 2, 6)], {ON_HOST: 100, ON_DEVICE: 150}, 10) == []
    assert "when it is needed" in problems(lives, [Stay(1, ON_HOST, 2, 7)], {}, 10)[0]
    assert "when it is needed" in problems(lives, [Stay(2, ON_DISK, 2, 3)], {}, 10)[0]
    assert "host holds 100" in problems(lives, [Stay(1, ON_HOST, 2, 6)], {ON_HOST: 99}, 10)[0]
    assert "device holds 150" in problems(lives, [Stay(1, ON_HOST, 2, 6)], {ON_DEVICE: 149}, 10)[0]
    assert "does not exist" in problems(lives, [Stay(3, ON_HOST, 2, 6)], {}, 10)[0]


@pytest.mark.parametrize(
    ("config", "options", "said"),
    [
        ('{"offload_parm": "cpu"}', {}, "did you mean offload_param"),
        ('{"offload_param": "moon"}', {}, "does not know this place"),
        ('{"auto_offload": false}', {}, "auto_offload is off"),
        ('{"hbm_ratio": 1.5}', {}, "hbm_ratio"),
        ("{", {}, "neither JSON nor a Python dict"),
        ("[]", {}, "cannot be read"),
        (None, {"link": "string"}, "is neither a known name nor a rate"),
        (None, {"offload_kinds": "weights"}, "does not know this kind"),
        ('{"memory_offload": "OFF"}', {}, "OFF"),
    ],
)
def test_invalid_settings_are_an_error(config, options, said):
    with pytest.raises(MemdiagError) as error:
        OffloadSettings.read(config, options)
    assert said in error.value.message + error.value.hint


def test_settings_have_the_names_and_units_of_mindspore():
    text = """{"memory_offload": "ON", "max_device_memory": "30GB", "offload_config": {"offload_path": "./x", \
"auto_offload": true,
      "offload_cpu_size": "512GB", "offload_disk_size": "1024GB", "host_mem_block_size": "1GB", "hbm_ratio": 0.5, \
"enable_aio": true,
      "aio_block_size": "1GB", "aio_queue_depth": 8, "enable_pinned_mem": true, "offload_param": "disk", \
"offload_checkpoint": "cpu",
      "cpu_ratio": 0.5}}"""
    settings = OffloadSettings.read(text, {"link": "22GB/s,20GB/s"})
    assert settings.device_bytes(32 << 30) == 15 << 30  # GB means GiB there
    assert settings.host_bytes == 256 << 30
    assert (settings.link.away, settings.link.back) == (22e9, 20e9)
    assert (settings.offload_param, settings.offload_disk_size, settings.aio_queue_depth) == ("disk", 1024 << 30, 8)


DICT = """{"offload_path": "./x", "auto_offload": False, "offload_param": "cpu", "offload_cpu_size": "512GB",
  "enable_aio": True, "aio_queue_depth": 8}"""
CALLS = f"""import mindspore
mindspore.set_context(mode=mindspore.GRAPH_MODE, memory_offload="ON", max_device_memory="30GB")
mindspore.set_offload_context(offload_config={DICT})
"""


@pytest.mark.parametrize("text", [DICT, f"offload_config = {DICT}", f"mindspore.set_offload_context({DICT})", CALLS])
def test_python_code_of_mindspore_is_read_unchanged(text, tmp_path):
    (tmp_path / "settings.py").write_text(text)
    for config in (
        (text, str(tmp_path / "settings.py"))
        if text != f"offload_config = {DICT}"
        else (str(tmp_path / "settings.py"),)
    ):
        settings = OffloadSettings.read(config, {})
        assert (settings.auto_offload, settings.offload_param, settings.enable_aio) == (False, "cpu", True)
        assert settings.offload_cpu_size == 512 << 30
    assert settings.max_device_memory == (30 << 30 if "30GB" in text else None)


def test_python_code_is_never_executed():
    for text in ('{"offload_param": print("x")}', "mindspore.set_offload_context(offload_config=open('x'))"):
        with pytest.raises(MemdiagError, match="neither JSON"):
            OffloadSettings.read(text, {})


@pytest.mark.parametrize("host", ["40MB", "10MB", "3MB"])
@pytest.mark.parametrize("seconds", [0.01, 1, 20])
def test_a_small_host_with_a_large_disk_is_used_up_to_its_limit(subject, host, seconds):
    """A plan that fits with large host memory also fits with a small one and a disk.

    Copies to disk take longer, and the program waits for them.
    """
    load = subject.device.usage.allocated.astype(np.int64)
    windows = find_windows(subject.trace, subject.device)
    clock = Clock.of(subject.device, seconds, is_real=False)
    small = {"min_bytes": 512, "host_mem_block_size": "1MB"}
    target = int(load.max() * 0.85)
    roomy = automatic(windows, load, target, clock, OffloadSettings.read(None, small))
    settings = OffloadSettings.read(None, {**small, "offload_cpu_size": host})
    chosen = automatic(windows, load, target, clock, settings)
    assert chosen.is_enough or not roomy.is_enough
    assert chosen.host_bytes <= settings.host_bytes
    assert verified(subject, windows, chosen, target if chosen.is_enough else None) == []
    if chosen.is_enough and roomy.host_bytes > settings.host_bytes:
        assert chosen.disk_bytes > 0
