"""Programs on a simulated NPU with the real torch_npu: values that they read back, failures, and recordings."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

from memdiag.phantom.launch import VALUES, compute_limits
from memdiag.phantom.profiles import choose
from memdiag.recorder.columns import Unpacker
from memdiag.units import MIB
from tests.phantom.npu_stand_in import PROGRAMS, PYTHON, needs_npu, on_phantom, said

pytestmark = needs_npu


def recorded(folder, device, *command, options=()):
    done = subprocess.run(
        [sys.executable, "-m", "memdiag", "record", "-o", str(folder), "--phantom", device, *options, "--", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder.parent,
    )
    return done, [pickle.loads(path.read_bytes()) for path in sorted(folder.glob("rank*.pkl"))]


def events(snapshot):
    return [(e["action"], e.get("addr"), e["size"], e["stream"]) for trace in snapshot["device_traces"] for e in trace]


@pytest.fixture(scope="module")
def values():
    return said(on_phantom("npu:910b-64g", PROGRAMS / "values.py", **compute_limits("none")))[0]


def test_a_mask_that_the_host_wrote_selects_as_many_elements_as_on_a_device(tmp_path):
    done = on_phantom("npu:910b-64g", PROGRAMS / "mask_twice.py", "npu", cwd=tmp_path)
    assert done.stdout == "[3000, 3000, 3000, 3000]\n", done.stderr[-2000:]


def test_data_written_by_the_host_is_read_back(values):
    assert values["round trip"]
    assert values["view"]
    assert values["copy on the device"]
    assert values["part"] == [11, 12, 13]
    assert values["fills"] == [[1] * 5, [65536] * 2, [-3] * 2]
    assert values["halves"]


def test_results_of_operators_read_as_zeros(values):
    assert values["computed"] == 0
    assert values["changed in place"] == [0] * 5
    assert values["changed together"] == [[0] * 2, [0] * 3]


def test_a_reused_block_reads_as_zeros(values):
    assert values["same block"]
    assert values["freed bytes"] == 0


def test_unwritten_memory_uses_no_host_memory(values):
    assert values["MiB for 32 GiB"] < 256


def test_out_of_memory_raises_pytorchs_own_error(values):
    assert values["failure"].startswith(
        "NPU out of memory. Tried to allocate 60.00 GiB (NPU 0; 60.97 GiB total capacity; 32.0"
    )
    assert values["kept on failure"]


def test_a_recorded_run_is_marked_as_simulated_and_is_repeatable(tmp_path):
    command = (PYTHON, str(PROGRAMS / "train.py"))
    done, (snapshot,) = recorded(tmp_path / "one", "npu:910b-64g", *command)
    assert done.returncode == 0, done.stderr
    assert "simulated device npu:910b-64g" in done.stderr
    kept = snapshot["memdiag"]
    assert kept["phantom"] is True
    assert kept["backend"] == "npu"
    assert kept["steps"] == 3
    assert kept["phantom_device"]["device"] == "npu:910b-64g"
    assert any("read as zeros" in text for text in kept["phantom_device"]["assumptions"])
    assert kept["phantom_device"]["read_backs"]["count"] >= 0
    columns = kept["modules"]
    unpacker = Unpacker(columns.values())
    entered, allocs, frees = (
        np.frombuffer(unpacker.unpack(columns[name]), "<i8") for name in ("name", "allocs", "frees")
    )
    assert "blocks.1.down" in {kept["names"][number] for number in entered if number >= 0}
    for counts, name in ((allocs, "allocs"), (frees, "frees")):  # every module call has a position, nested ones too
        assert counts[0] >= 0
        assert (np.diff(counts) >= 0).all()
        assert counts[-1] <= kept["counts"][0][name]
    shown = subprocess.run(
        [sys.executable, "-m", "memdiag", "analyze", "--json", str(tmp_path / "one" / "rank0.pkl")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(shown.stdout)["source"]["is_phantom"] is True
    _, (again,) = recorded(tmp_path / "two", "npu:910b-64g", *command)
    assert events(again) == events(snapshot)
    assert len(events(snapshot)) > 1000


def test_a_program_that_imports_torch_npu_first_is_recorded_too(tmp_path):
    program = "import torch_npu, torch; kept = torch.ones(1000).npu()"
    done, (snapshot,) = recorded(tmp_path / "run", "npu:910b-64g", PYTHON, "-c", program)
    assert done.returncode == 0, done.stderr
    assert [action for action, *_ in events(snapshot)] == ["segment_alloc", "alloc"]


def test_running_out_of_memory_prints_the_report(tmp_path):
    done, (snapshot,) = recorded(
        tmp_path / "run", "npu:910b-64g,capacity=1GiB", PYTHON, str(PROGRAMS / "train.py"), "alone", "2048", "8", "1000"
    )
    assert done.returncode == 1
    assert "NPU out of memory. Tried to allocate" in done.stderr
    assert "Try first" in done.stderr
    assert snapshot["memdiag"]["reason"] == "oom"


@pytest.mark.parametrize("how", ["ddp", "fsdp2"])
def test_two_ranks_train_and_are_recorded(how, tmp_path):
    torchrun = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done, snapshots = recorded(tmp_path / "run", "npu:910b-64g", *torchrun, str(PROGRAMS / "train.py"), how)
    ranks = said(done)
    assert {entry["rank"] for entry in ranks} == {0, 1}
    buffers = 2 * 200 * MIB  # HCCL's buffers for one communicator
    assert all(choose("npu:910b-64g").capacity_bytes - entry["free"] >= buffers + entry["peak"] for entry in ranks)
    assert len(snapshots) == 2
    assert {snapshot["memdiag"]["rank"] for snapshot in snapshots} == {0, 1}


@pytest.mark.parametrize("how", ["ddp", "fsdp2"])
def test_one_rank_runs_without_the_rest_of_its_world(how, tmp_path):
    options = ("--as-rank", "517", "--world", "1024")
    done, (snapshot,) = recorded(
        tmp_path / "run", "npu:910b-64g", PYTHON, str(PROGRAMS / "train.py"), how, options=options
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "as rank 517 of 1024" in done.stderr
    kept = snapshot["memdiag"]
    assert (kept["rank"], kept["world"], kept["steps"]) == (517, 1024, 3)
    assert (kept["phantom_device"]["as_rank"], kept["phantom_device"]["world"]) == (517, 1024)


def test_unsupported_calls_fail_with_their_name():
    done = on_phantom(
        "npu:910b-64g", "-c", "import torch, torch_npu; torch.ones(4).npu().untyped_storage()._share_npu_()"
    )
    assert "does not imitate aclrtIpcMemGetExportKey (libascendcl.so)" in done.stderr
    assert done.returncode >= 0


def test_inductor_is_refused_with_a_hint_and_other_backends_compile():
    program = (
        "import torch, torch_npu\nfrom torch_npu.contrib import transfer_to_npu\n"
        "run = lambda backend, device: print(torch.compile(torch.sin, backend=backend)(torch.zeros(3, "
        "device=device)).sum().item())\n"
        "run('aot_eager', 'cuda')\nrun('inductor', 'cuda')"
    )
    done = on_phantom("npu:910b-64g", "-c", program)
    assert done.stdout.split()[0] == "0.0"
    assert done.returncode == 1
    assert "does not imitate inductor, torch.compile's default (CANN's compiler)" in done.stderr
    assert "Run with TORCH_COMPILE_DISABLE=1" in done.stderr
    assert "cache_clear" not in done.stderr
    done = on_phantom("npu:910b-64g", "-c", program, TORCH_COMPILE_DISABLE="1")
    assert done.stdout.split() == ["0.0"] * 2, done.stderr


def test_the_number_of_devices_is_as_given_and_one_more_is_an_error():
    program = "import torch, torch_npu; print(torch.npu.device_count()); torch.npu.set_device(8)"
    done = on_phantom("npu:910b-64g,devices=8", "-c", program)
    assert done.stdout.split() == ["8"]
    assert done.returncode == 1
    assert "107001" in done.stderr


def test_models_and_optimizers_of_many_kinds_train():
    assert said(on_phantom("npu:910b-64g", PROGRAMS / "kinds_npu.py")) == [{"failed": {}}]


@pytest.mark.parametrize(
    ("values", "floats", "integers", "bools"),
    [("ones", [1, 1], 1, [True, True]), ("finite", [1, 1], 0, [False, False]), ("random", None, None, None)],
)
def test_made_up_values_can_be_chosen_and_are_counted(values, floats, integers, bools):
    settings = {VALUES: values, **compute_limits("none")}
    (seen,) = said(on_phantom("npu:910b-64g", PROGRAMS / "made_up_npu.py", **settings))
    assert seen["known"] == [[3, 4], [0] * 3, [2, 502]]
    assert seen["nothing was made up"]
    assert seen["equals itself"]
    if floats:
        assert (seen["floats"], seen["integers"], seen["bools"]) == ([floats] * 3, integers, bools)
        assert seen["nan"] is (values == "ones")
    else:
        assert all(0.5 <= value <= 1 for pair in seen["floats"] for value in pair)
    assert seen["finite"]
    assert seen["masked"] == seen["found"] == 1000  # a mask of unknown values selects all elements
    assert seen["flags"][:5] == [0, 0, 0, 7, 0]
    assert seen["scale"] == 65536
    read_backs = seen["facts"]["read_backs"]
    assert read_backs["count"] == sum(place["count"] for place in read_backs["places"]) >= 6
    assert all("made_up_npu.py:" in place["where"] for place in read_backs["places"])
    assert "made_up_npu.py:" in read_backs["last"]
    assumed = seen["facts"]["assumed_sizes"]
    assert (assumed["fraction"], assumed["count"], len(assumed["places"])) == (1, 2, 2)
