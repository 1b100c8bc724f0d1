"""What ``memdiag fit`` derives from its runs: the Pareto front, and what is missing where nothing fits."""

from __future__ import annotations

from memdiag.fit.front import FrontRun, front_of
from memdiag.fit.grid import read_axes
from memdiag.fit.shortfall import shortfall_on
from memdiag.results.fit import DeviceFit, FitCell, FitDevice

GIB = 1 << 30
AXES = read_axes(["tp=1,2,4", "mbs=1,2,4", "ckpt=none,selective,full"])


def ran(tp, mbs, ckpt, gib, world=8):
    return FrontRun("cuda:h100-80g", (tp, mbs, ckpt), gib * GIB, world)


def test_the_front_has_no_run_that_another_beats():
    runs = [
        ran("1", "1", "none", 60),
        ran("1", "2", "none", 90),
        ran("1", "2", "full", 50),  # more at once on a smaller card than the first, but with recomputation
        ran("2", "1", "none", 70),  # half the work of the first on a larger card
        ran("2", "4", "selective", 80),
    ]
    front = front_of(AXES, runs)
    assert [(point.values, point.at_once, point.extra_forward_passes) for point in front] == [
        (("1", "2", "full"), 16, 1.0),
        (("1", "1", "none"), 8, 0.0),
        (("2", "4", "selective"), 16, 0.5),
        (("1", "2", "none"), 16, 0.0),
    ]


def test_work_counts_tokens_and_fewer_ranks_are_better():
    axes = read_axes(["gpus=8,16", "mbs=1,2", "seq=512,1024"])
    runs = [FrontRun("npu:910b-64g", (str(gpus), "2", "512"), 40 * GIB, gpus) for gpus in (8, 16)]
    assert [(point.ranks, point.at_once) for point in front_of(axes, runs)] == [(8, 8 * 2 * 512), (16, 16 * 2 * 512)]
    equal = [FrontRun("npu:910b-64g", ("8", *sizes), 40 * GIB, 8) for sizes in (("2", "512"), ("1", "1024"))]
    assert len(front_of(axes, equal)) == 2
    chips = [FrontRun(device, ("8", "2", "512"), 40 * GIB, 8) for device in ("npu:910b-64g", "npu:910b-32g")]
    assert [point.device for point in front_of(axes, chips)] == ["npu:910b-64g"]


def test_unknown_words_and_axes_have_no_cost():
    axes = read_axes(["ckpt=a,b", "pp=1,2"])
    (point,) = front_of(axes, [FrontRun("cuda:h100-80g", ("a", "2"), GIB, None)])
    assert (point.at_once, point.extra_forward_passes, point.ranks) == (None, None, None)


def cell(tp, mbs, ckpt, missing_gib, outcome="fails"):
    on = DeviceFit("cuda:4090", outcome, "run", GIB, (24 + missing_gib) * GIB, -missing_gib * GIB, 0, 0, 30 * GIB)
    return FitCell((tp, mbs, ckpt), (on,))


DEVICE = FitDevice("cuda:4090", "GeForce RTX 4090", 24 * GIB, 23 * GIB, "cuda:4090,total=4096GiB")


def test_the_closest_run_and_the_axis_with_the_largest_effect_are_named():
    cells = [
        cell("1", "1", "none", 30),
        cell("4", "1", "none", 12),
        cell("4", "1", "full", 6),
        FitCell(("4", "2", "full"), (DeviceFit("cuda:4090", "fails", "inferred", decided_by="mbs=1"),)),
    ]
    short = shortfall_on(0, DEVICE, AXES, cells)
    assert (short.values, short.missing_bytes) == (("4", "1", "full"), 6 * GIB)
    assert [(effect.name, effect.lighter, effect.saved_bytes // GIB) for effect in short.effects] == [
        ("tp", "4", 18),
        ("ckpt", "full", 6),
    ]
    assert short.larger_device.startswith("cuda:")


def test_a_device_on_which_something_fits_lacks_nothing():
    assert shortfall_on(0, DEVICE, AXES, [cell("1", "1", "none", 3), cell("1", "1", "full", 0, "tight")]) is None
    failed = FitCell(("1", "1", "none"), (DeviceFit("cuda:4090", "unknown", "error"),))
    assert shortfall_on(0, DEVICE, AXES, [failed]) is None
