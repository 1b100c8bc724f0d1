"""The grid of ``memdiag fit``: axes, conditions, placeholders, launchers and ranks."""

from __future__ import annotations

import json

import pytest

from memdiag.errors import MemdiagError
from memdiag.fit.command import check_placeholders, filled, single_process
from memdiag.fit.expressions import Expression
from memdiag.fit.grid import make_grid, read_axes
from memdiag.fit.kinds import kinds_of
from memdiag.fit.ranks import probing_ranks, read_ranks
from memdiag.phantom.experts import VARIABLE, assumed_counts


def test_values_are_lists_ranges_and_words():
    tp, mbs, seq, ckpt = read_axes(["tp=1,2,4 mbs=1..4", "seq=512..4096*2", "ckpt=none,full"])
    assert (tp.values, tp.is_growing, tp.is_shrinking) == (("1", "2", "4"), False, True)
    assert (mbs.values, mbs.is_growing) == (("1", "2", "3", "4"), True)
    assert seq.values == ("512", "1024", "2048", "4096")
    assert (ckpt.values, ckpt.is_growing) == (("none", "full"), False)
    assert read_axes(["seq=8..32:8"])[0].values == ("8", "16", "24", "32")


def test_numbers_are_sorted_and_repeated_values_are_used_once():
    assert read_axes(["mbs=8,1,2,1"])[0].values == ("1", "2", "8")


def test_the_user_names_the_growing_axes():
    width, mbs = read_axes(["w=1,2", "mbs=1,2"], ["w"])
    assert (width.is_growing, mbs.is_growing) == (True, False)


def test_the_user_names_the_shrinking_axes_and_words_keep_their_order():
    tp, ckpt, mbs = read_axes(["tp=2,1", "ckpt=none,selective,full", "mbs=1,2"], None, ["ckpt"])
    assert [axis.is_shrinking for axis in (tp, ckpt, mbs)] == [False, True, False]
    assert ckpt.values == ("none", "selective", "full")
    (layers,) = read_axes(["layers=1,2"], None, ["layers"])
    assert (layers.is_growing, layers.is_shrinking) == (False, True)


def test_pipeline_stages_are_bracketed_unless_the_user_names_the_shrinking_axes():
    assert [axis.is_bracketed for axis in read_axes(["pp=1,2,4 tp=1,2 stages=1,2,4"])] == [True, False, True]
    assert not any(axis.is_bracketed for axis in read_axes(["pp=1,2,4"], None, []))
    assert not any(axis.is_bracketed for axis in read_axes(["pp=1,2,4"], None, ["pp"]))


@pytest.mark.parametrize(("growing", "shrinking"), [(None, ["pp"]), (["tp"], ["tp"])])
def test_a_shrinking_axis_that_cannot_be_one_is_an_error_with_a_hint(growing, shrinking):
    with pytest.raises(MemdiagError) as caught:
        read_axes(["tp=1,2"], growing, shrinking)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    ["mbs", "=1", "mbs=", "mbs=,", "mbs=4..1", "mbs=1..4:0", "mbs=1..4*1", "mbs=0..4*2", "1x=2", "mbs=1 mbs=2"],
)
def test_a_bad_axis_is_an_error_with_a_hint(text):
    with pytest.raises(MemdiagError) as caught:
        read_axes([text])
    assert caught.value.hint


def test_words_cannot_grow():
    with pytest.raises(MemdiagError, match="has no numeric values"):
        read_axes(["ckpt=none,full"], ["ckpt"])


def test_conditions_exclude_configurations():
    grid = make_grid(read_axes(["tp=1,2,4", "pp=1,2,4"]), ["tp*pp<=world", "pp<4 or tp==1"], "8")
    kept = [grid.values(cell) for cell in grid.cells]
    assert {"tp": "4", "pp": "2"} in kept
    assert {"tp": "4", "pp": "4"} not in kept
    assert {"tp": "2", "pp": "4"} not in kept
    assert grid.num_excluded == 9 - len(grid.cells)


def test_conditions_compare_words():
    grid = make_grid(read_axes(["mbs=1,2", "ckpt=none,full"]), ["ckpt == 'full' or mbs == 1"])
    assert len(grid.cells) == 3


def test_no_configuration_left_is_an_error():
    with pytest.raises(MemdiagError, match="none of the 2 combinations"):
        make_grid(read_axes(["mbs=1,2"]), ["mbs>2"])


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "mbs.real",
        "(lambda: 1)()",
        "[1]",
        "mbs if mbs else 1",
        "mbs**99",
        "1 +",
        "",
        "x" * 600,
        "tp",
    ],
)
def test_an_expression_can_only_compute(text):
    with pytest.raises(MemdiagError):
        Expression(text, frozenset({"mbs"}))


def test_a_division_by_zero_is_an_error():
    with pytest.raises(MemdiagError, match="cannot be computed for mbs=0"):
        Expression("8 // mbs", frozenset({"mbs"})).value({"mbs": "0"})


def test_placeholders_are_replaced_and_other_braces_stay():
    assert filled("--mbs={mbs} --json={'a': {b}}", {"mbs": "4"}) == "--mbs=4 --json={'a': {b}}"


def test_an_axis_that_nothing_uses_is_an_error():
    axes = read_axes(["mbs=1,2"])
    check_placeholders(["python", "train.py"], {"MBS": "{mbs}"}, axes)
    with pytest.raises(MemdiagError, match="uses the axis mbs") as caught:
        check_placeholders(["python", "train.py"], {}, axes)
    assert "{mbs}" in caught.value.hint


@pytest.mark.parametrize(
    ("command", "alone"),
    [
        ("python train.py --mbs 2", "python train.py --mbs 2"),
        ("python -m torch.distributed.run --nproc-per-node 8 train.py -x", "python train.py -x"),
        ("python -m torch.distributed.run --nproc_per_node=8 --standalone -m pkg.train -x", "python -m pkg.train -x"),
        ("python -m torch.distributed.launch --no-python ./train.sh -x", "./train.sh -x"),
        ("/none/torchrun --rdzv-backend c10d --nnodes 2 train.py", "python train.py"),
    ],
)
def test_one_rank_runs_without_its_launcher(command, alone):
    assert single_process(command.split()) == tuple(alone.split())


@pytest.mark.parametrize(
    "command", ["accelerate launch train.py", "torchrun --nproc-per-node 8", "mpirun -n 8 python t.py"]
)
def test_a_launcher_that_cannot_be_left_out_is_an_error(command):
    with pytest.raises(MemdiagError) as caught:
        single_process(command.split())
    assert caught.value.hint


def test_probing_ranks_have_the_most_loaded_experts():
    loads = (1, 1, 1, 1, 6, 1, 1, 1)  # of four ranks with two experts each, the third has most
    assert probing_ranks(8, {"pp": "1", "ep": "4"}, None, loads) == (0, 2, 7)
    assert probing_ranks(16, {"pp": "1", "ep": "4", "tp": "2"}, None, loads) == (0, 2, 4, 15)
    assert probing_ranks(16, {"pp": "2", "ep": "4"}, None, loads) == (0, 2, 8, 10, 15)
    assert probing_ranks(8, {"pp": "1", "ep": "3"}, None, loads) == (0, 7)
    assert probing_ranks(8, {"pp": "1", "ep": "4"}) == (0, 7)
    assert assumed_counts({VARIABLE: json.dumps({"counts": [1.0, 3.0]})}) == [1.0, 3.0]
    assert assumed_counts({VARIABLE: json.dumps({"counts": None})}) == assumed_counts({}) == []


def test_probing_ranks_are_in_the_first_the_second_and_the_last_stage():
    assert probing_ranks(1, {}) == (0,)
    assert probing_ranks(2, {}) == (0, 1)
    assert probing_ranks(64, {}) == (0, 32, 63)
    assert probing_ranks(64, {"tp": "8", "pp": "1"}) == (0, 63)
    assert probing_ranks(64, {"tp": "8", "pp": "8"}) == (0, 8, 63)
    assert probing_ranks(2, {"pp": "8"}) == (0, 1)
    assert probing_ranks(8, {}, (0, 7, 12)) == (0, 7)
    with pytest.raises(MemdiagError):
        probing_ranks(4, {}, (9,))
    with pytest.raises(MemdiagError):
        read_ranks("0,x")


def test_devices_of_one_kind_share_their_runs():
    kinds = kinds_of(["cuda:h100-80g", "cuda:a100-40g", "cuda:a100-80g", "cuda:h100-80g,room=20GiB"])
    assert [kind.names for kind in kinds] == [
        ("cuda:h100-80g", "cuda:h100-80g,room=20GiB"),
        ("cuda:a100-40g", "cuda:a100-80g"),
    ]
    assert all("total=4096GiB" in kind.recorded_on for kind in kinds)


def test_a_device_given_twice_or_unknown_is_an_error():
    with pytest.raises(MemdiagError, match="given twice"):
        kinds_of(["cuda:h100-80g", "h100-80g"])
    with pytest.raises(MemdiagError):
        kinds_of(["cuda:h1000"])
