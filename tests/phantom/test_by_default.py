"""By default, a simulated device computes indices, masks and counters."""

import json
from pathlib import Path

import pytest

from memdiag.phantom.boot.computing.by_default import LIMIT_BYTES, is_by_default
from memdiag.phantom.installed import Installed
from memdiag.phantom.launch import COMPUTE, SMALL_BYTES, compute_limits, offers_kernels
from tests.phantom import cuda_stand_in, npu_stand_in

PROGRAM = Path(__file__).with_name("programs") / "indices.py"


def on_cuda(folder, program=PROGRAM, **more):
    return cuda_stand_in.run([program, "cuda"], folder, **more)


def on_npu(folder, program=PROGRAM, **more):
    return npu_stand_in.on_phantom("npu:910b-64g", program, "npu", cwd=folder, **more)


ON_DEVICES = [
    pytest.param(on_npu, marks=npu_stand_in.needs_npu, id="npu"),
    pytest.param(on_cuda, marks=cuda_stand_in.needs_torch, id="cuda"),
]


@pytest.mark.parametrize("run", ON_DEVICES)
def test_indices_masks_and_counters_are_those_of_the_cpu(run, tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)
    assert seen["device"] == seen["cpu"]
    assert seen["loss"] == 0  # layers are not computed
    assert seen["replaced"] == sum(range(1, 501, 2))


@pytest.mark.parametrize("run", ON_DEVICES)
def test_compute_none_computes_nothing(run, tmp_path):
    done = run(tmp_path, **compute_limits("none"))
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)["device"]
    assert not seen["increasing"]
    assert seen["counts"] == [0, 0, 0]


@pytest.mark.parametrize("run", ON_DEVICES)
def test_one_thread_computes(run, tmp_path):
    """On a busy machine, OpenMP's threads wait for each other much longer than a small tensor takes."""
    done = run(tmp_path, PROGRAM.with_name("one_thread.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {"count": 200_000, "started": 0, "num_threads": 3, "cpu": 2}


def test_compute_none_is_an_option():
    assert compute_limits("none") == {COMPUTE: "0"}


def test_the_limit_is_the_one_that_messages_name():
    assert LIMIT_BYTES == SMALL_BYTES


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add_.Tensor", True),
        ("lt.Scalar", True),
        ("_foreach_add_.Scalar", True),
        ("mm", False),
        ("native_layer_norm", False),
    ],
)
def test_only_operators_of_indices_are_wrapped(name, expected):
    assert is_by_default(name) is expected


@pytest.mark.parametrize(("types", "expected"), [("def _dispatch_has_kernel", False), (None, True)])
def test_an_older_torch_without_the_kernels_of_operators_computes_nothing(types, expected, tmp_path):
    if types is not None:
        (tmp_path / "_C").mkdir()
        (tmp_path / "_C" / "__init__.pyi").write_text(types)
    torch = {"version": "2.6.0", "folder": str(tmp_path)}
    assert offers_kernels(Installed("python", {"torch": torch})) is expected
