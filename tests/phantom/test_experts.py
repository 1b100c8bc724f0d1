"""--expert-load: experts receive the stated numbers of tokens, wherever the program reads them."""

import json
from collections import Counter
from pathlib import Path

import pytest

from memdiag.cli.main import main
from memdiag.errors import MemdiagError
from memdiag.phantom.boot.computing.experts import counts_for, limited_shares
from memdiag.phantom.experts import VARIABLE, assumed_load, read_expert_load
from memdiag.phantom.launch import COMPUTE, SMALL_BYTES
from tests.phantom import cuda_stand_in, npu_stand_in

PROGRAM = Path(__file__).with_name("programs") / "experts.py"
TOKENS, EXPERTS, EACH, WIDTH = 96, 8, 2, 64


def on_cuda(folder, **more):
    return cuda_stand_in.run([PROGRAM, "cuda"], folder, **more)


def on_npu(folder, **more):
    return npu_stand_in.on_phantom("npu:910b-64g", PROGRAM, "npu", cwd=folder, **more)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(on_npu, marks=npu_stand_in.needs_npu, id="npu"),
        pytest.param(on_cuda, marks=cuda_stand_in.needs_torch, id="cuda"),
    ],
)
def routed(request, tmp_path_factory):
    """Runs the program with a load; returns its JSON."""
    folder = tmp_path_factory.mktemp("routed")
    known = {}

    def run(load):
        if load not in known:
            done = request.param(folder, **{VARIABLE: read_expert_load(load), COMPUTE: str(SMALL_BYTES)})
            assert done.returncode == 0, done.stderr[-3000:]
            known[load] = json.loads(done.stdout)
        return known[load]

    return run


@pytest.mark.parametrize(
    ("load", "counts"),
    [
        ("balanced", [24] * 8),
        ("skew=0.5", [60, 60] + [12] * 6),
        ("skew=1", [96, 96] + [0] * 6),
    ],
)
def test_every_way_to_count_gives_the_stated_load(routed, load, counts):
    seen = routed(load)
    assert seen["counts"] == dict.fromkeys(seen["counts"], counts)
    assert len(seen["counts"]) >= 7


def test_no_token_gets_an_expert_twice_and_parts_of_the_batch_are_alike(routed):
    seen = routed("skew=0.5")
    assert all(len(set(each)) == EACH for each in seen["chosen"])
    first, second = seen["halves"]
    assert all(abs(one - other) <= 4 for one, other in zip(first, second, strict=True))


def test_tensors_have_the_sizes_of_the_load(routed):
    def rounded(count):
        return -(-count * WIDTH * 4 // 512) * 512

    cuda = routed("balanced")["bytes"]
    assert cuda in (EXPERTS * rounded(24), EXPERTS * (rounded(24) + 512))  # torch_npu adds 32 bytes to each
    assert routed("skew=1")["bytes"] in (2 * rounded(96), 2 * (rounded(96) + 512))


def test_facts_name_the_line_and_a_vocabulary_is_no_router(routed):
    facts = routed("skew=0.5")["facts"]
    (place,) = facts["places"]
    assert facts["load"] == "skew=0.5"
    assert facts["count"] == place["count"] == 1
    assert Path(place["where"].rpartition(":")[0]) == PROGRAM
    assert (place["experts"], place["per_token"], place["tokens"]) == (EXPERTS, EACH, TOKENS)
    assert (place["most"], place["fewest"]) == (60, 12)
    assert routed("balanced,experts=4")["facts"]["count"] == 0


def test_relative_loads_come_from_a_file(routed, tmp_path):
    file = tmp_path / "loads.txt"
    file.write_text("[40, 20, 10, 10,\n 5, 5, 5, 5]")
    seen = routed(f"counts={file}")
    assert seen["counts"]["bincount"] == [77, 38, 19, 19, 10, 10, 10, 9]
    assert seen["facts"]["load"] == "counts=loads.txt"


EXCHANGE = """
import json, torch
import torch.distributed as dist
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
even = torch.arange(2 * world, device="cuda")
received = torch.empty_like(even)
dist.all_to_all_single(received, even)
sizes = [each + 1 for each in range(world)]
uneven = torch.arange(sum(sizes), device="cuda")
of_all = torch.empty(sizes[rank] * world, dtype=uneven.dtype, device="cuda")
dist.all_to_all_single(of_all, uneven, [sizes[rank]] * world, sizes)
print(json.dumps([received.tolist(), of_all.tolist()]))
"""


@cuda_stand_in.needs_torch
def test_each_rank_sends_what_this_one_sends_itself(tmp_path):
    done = cuda_stand_in.run(["-c", EXCHANGE], tmp_path, rank=1, world=4, MEMDIAG_PHANTOM_COMPUTE=str(SMALL_BYTES))
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == [[2, 3] * 4, [1, 2] * 4]


def test_counts_have_the_right_sum_and_no_expert_has_more_than_all_tokens():
    for relative in ([1, 1, 1], [100, 1, 1], [5, 0, 0], [0, 0, 7.5], [3, 2, 2]):
        shares = limited_shares(relative, 2)
        assert sum(shares) == pytest.approx(2)
        assert max(shares) <= 1
        for tokens in (0, 1, 7, 1000):
            counts = counts_for(tokens, 2, shares)
            assert sum(counts) == 2 * tokens
            assert max(counts) <= tokens
    assert Counter(counts_for(1000, 2, [0.25] * 8)) == {250: 8}


@pytest.mark.parametrize("text", ["", "even", "skew", "skew=", "skew=1.5", "skew=-1", "skew=nan", "counts=", "counts"])
def test_other_words_are_errors(text):
    with pytest.raises(MemdiagError, match="--expert-load"):
        read_expert_load(text)


@pytest.mark.parametrize("more", ["experts", "experts=1", "experts=x", "experts=9999", "other=8"])
def test_other_limits_are_errors(more):
    with pytest.raises(MemdiagError, match="--expert-load"):
        read_expert_load(f"balanced,{more}")


@pytest.mark.parametrize("content", ["", "1", "a b", "0 0", "1 -1", "nan 1", "1 inf"])
def test_files_without_loads_are_errors(tmp_path, content):
    file = tmp_path / "loads.txt"
    file.write_text(content)
    with pytest.raises(MemdiagError, match=r"loads\.txt"):
        read_expert_load(f"counts={file}")


def test_the_number_of_loads_is_that_of_the_experts(tmp_path):
    (tmp_path / "loads.txt").write_text("1 2 3")
    with pytest.raises(MemdiagError):
        read_expert_load(f"counts={tmp_path / 'loads.txt'},experts=4")


def test_the_assumption_is_read_from_the_environment():
    assert assumed_load({VARIABLE: read_expert_load("skew=0.25,experts=8")}) == "skew=0.25,experts=8"
    assert assumed_load({}) == ""


def test_it_needs_a_phantom_device(capsys):
    assert main(["record", "--expert-load", "balanced", "--", "true"]) == 2
    assert "--expert-load needs --phantom" in capsys.readouterr().err
