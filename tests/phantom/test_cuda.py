"""Programs on the simulated CUDA device run, are repeatable, read back their data, and never use a real device."""

import json
from pathlib import Path

import pytest

from memdiag.phantom.launch import compute_limits
from tests.phantom.cuda_stand_in import libraries, needs_torch, run

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = needs_torch


def test_written_values_are_read_back_and_others_read_as_zeros(tmp_path):
    done = run([PROGRAMS / "values_cuda.py"], tmp_path, **compute_limits("none"))
    assert done.stdout == "all as documented\n", done.stderr[-2000:]


def test_a_mask_that_the_host_wrote_is_known_after_it_was_used(tmp_path):
    done = run([PROGRAMS / "mask_twice.py", "cuda"], tmp_path)
    assert done.stdout == "[3000, 3000, 3000, 3000]\n", done.stderr[-2000:]


def test_masks_that_are_views_are_counted(tmp_path):
    done = run([PROGRAMS / "mask_views.py"], tmp_path)
    found = json.loads(done.stdout)
    assert found == {
        "expanded": 8,
        "slice": 3,
        "backward": [8],
        "assumed": 0,
        "unknown": [8],
        "place": "a call outside of Python",  # in a backward pass, and not a line of memdiag
    }, done.stderr[-2000:]


def test_attention_forgets_no_data_that_it_is_not_given(tmp_path):
    done = run([PROGRAMS / "attention_reads.py"], tmp_path)
    assert done.stdout == "[]\n", done.stderr[-2000:]


@pytest.mark.parametrize("kind", ["attention", "amp", "checkpointing", "graph", "convolutions", "lstm"])
def test_two_runs_have_the_same_allocator_events(kind, tmp_path):
    first, second = (run([PROGRAMS / "train_cuda.py", kind], tmp_path) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr[-2000:]
    assert first.stdout == second.stdout


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_one_rank_runs_without_the_rest_of_its_world(kind, tmp_path):
    runs = [run([PROGRAMS / "train_cuda.py", kind], tmp_path, rank=517, world=1024) for _ in range(3)]
    assert runs[0].returncode == 0, runs[0].stderr[-2000:]
    assert len({done.stdout for done in runs}) == 1


def test_exceeding_the_capacity_raises_pytorchs_own_error(tmp_path):
    done = run(
        ["-c", "import torch; torch.empty(70 << 30, dtype=torch.uint8, device='cuda')"],
        tmp_path,
        device="cuda:h100-80g,capacity=60GiB",
    )
    assert (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 70.00 GiB. GPU 0 has a total capacity of "
        "60.50 GiB"
    ) in done.stderr


def test_managed_memory_is_the_hosts_and_does_not_count(tmp_path):
    done = run([PROGRAMS / "managed_cuda.py"], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {"statuses": [0, 0, 0], "values": [7, 3, 7], "taken": 0}


def test_numba_starts_which_needs_functions_that_the_device_does_not_support(tmp_path):
    """Numba takes the address of cuIpcOpenMemHandle in this way when it begins."""
    program = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
print(bool(ctypes.cast(driver.cuIpcOpenMemHandle_v2, ctypes.c_void_p)), driver.cuIpcOpenMemHandle(None, None, 0))
"""
    done = run(["-c", program], tmp_path)
    assert done.stdout == "True 801\n", done.stderr[-2000:]
    assert "cannot imitate cuIpcOpenMemHandle of libcuda" in done.stderr


def test_the_management_library_states_processors_and_pci_address(tmp_path):
    done = run([PROGRAMS / "nvml_cuda.py"], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {
        "statuses": [0, 0, 0, 0, 3],  # the last one: not supported, as on cards whose memory is no NUMA node
        "has the processors of this process": True,
        "ids": ["0000:01:00.0", "00000000:01:00.0"],
        "product": 0xFFFFFFFF,
    }


def test_unsupported_calls_fail_with_their_name(tmp_path):
    program = "import torch; x = torch.eye(2).to_sparse_csr().cuda(); x @ x"
    done = run(["-c", program], tmp_path)
    assert done.returncode == 1
    assert "the phantom device cannot imitate cusparseSpGEMM_createDescr of libcusparse.so" in done.stderr


def test_no_real_driver_is_loaded(tmp_path):
    done = run([PROGRAMS / "isolation_cuda.py"], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    found = done.stdout.split()
    assert found
    assert {Path(path).parent for path in found} == {libraries()}


@pytest.mark.parametrize(
    ("device", "count"), [("cuda:h100-80g", 3), ("cuda:h100-80g,devices=2", 2)], ids=["of the launcher", "given"]
)
def test_a_process_of_a_launcher_sees_a_device_per_process(device, count, tmp_path):
    done = run(["-c", "import torch; print(torch.cuda.device_count())"], tmp_path, device=device, LOCAL_WORLD_SIZE="3")
    assert done.stdout == f"{count}\n", done.stderr[-2000:]


@pytest.mark.parametrize("values", ["zeros", "random"])
def test_made_up_numbers_are_finite(values, tmp_path):
    done = run([PROGRAMS / "finite_cuda.py"], tmp_path, MEMDIAG_PHANTOM_VALUES=values)
    seen = json.loads(done.stdout)
    assert seen["finite"] == [[True] * 5] * 4
    assert seen["nan"] == [False] * 4 or values == "random"  # any() of unknown answers is random
    assert seen["infinite"] == [[False] * 5] * 4
    assert seen["all"] == [True] * 4
    assert seen["all in rows"] == [True]
    assert seen["infinite given"] == [False] * 4 or values == "random"  # not answered
    assert not seen["not all"] or values == "random"
    assert seen["loss"]
    assert seen["given"] == [1, float("inf")]
