"""``--compute small`` gives small tensors their real values and leaves the allocator events unchanged."""

import json
from pathlib import Path

import pytest

from memdiag.cli.main import main
from memdiag.errors import MemdiagError
from memdiag.phantom.boot.computing.ways import most_scores
from memdiag.phantom.launch import COMPUTE, INTEGERS, MASK_BYTES, SMALL_BYTES, compute_limits
from tests.phantom import cuda_stand_in, npu_stand_in

PROGRAM = Path(__file__).with_name("programs") / "computed.py"


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
def seen(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("computed")
    runs = [request.param(folder, MEMDIAG_PHANTOM_COMPUTE=str(SMALL_BYTES)), request.param(folder)]
    for done in runs:
        assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(done.stdout) for done in runs]


def test_losses_and_decisions_equal_those_of_the_cpu(seen):
    computed, _ = seen
    assert computed["device"].pop("losses") == pytest.approx(computed["cpu"].pop("losses"), rel=1e-4)
    assert computed["device"] == computed["cpu"]
    assert computed["device"]["stopped"] == 2


def test_computing_does_not_change_allocator_events(seen):
    computed, made_up = seen
    assert computed["num_events"] > 1000
    assert computed["events"] == made_up["events"]
    assert made_up["facts"] is None
    assert made_up["device"]["losses"] == [0] * 5


def test_computing_does_not_advance_the_random_generator_of_the_cpu(seen):
    computed, made_up = seen
    assert computed["order"] == made_up["order"]
    assert computed["kept"] == [0, 2]


def test_computed_operators_are_counted(seen):
    facts = seen[0]["facts"]
    assert facts["limit_bytes"] == SMALL_BYTES
    assert facts["computed"] > 500
    assert (facts["unknown"], facts["failed"], facts["failures"]) == (0, 0, {})


@pytest.mark.parametrize(("text", "limit"), [("small", SMALL_BYTES), ("small=64KiB", 65536), ("small=100", 100)])
def test_the_limit_can_be_set(text, limit):
    assert compute_limits(text) == {COMPUTE: str(limit)}


@pytest.mark.parametrize(("text", "limit"), [("masks", MASK_BYTES), ("masks=8MiB", 8 << 20)])
def test_masks_have_a_limit_of_their_own(text, limit):
    assert compute_limits(text) == {COMPUTE: str(SMALL_BYTES), INTEGERS: str(limit)}


@pytest.mark.parametrize("text", ["large", "small=", "small=much", "small=0", "masks=", "large=1MiB", ""])
def test_invalid_values_of_compute_raise_an_error(text):
    with pytest.raises(MemdiagError):
        compute_limits(text)


@pytest.mark.parametrize(("limit", "scores"), [("", 1 << 22), ("1048576", 1 << 22), (str(64 << 20), 16 << 20)])
def test_attention_has_more_scores_if_larger_tensors_are_computed(limit, scores, monkeypatch):
    monkeypatch.setenv("MEMDIAG_PHANTOM_COMPUTE", limit)
    assert most_scores() == scores


def test_compute_requires_a_simulated_device(capsys):
    assert main(["record", "--compute", "small", "--", "true"]) == 2
    assert "--compute needs --phantom" in capsys.readouterr().err
