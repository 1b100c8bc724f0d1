"""Workspaces on the phantom CUDA device are those that the installed cuDNN plans without a card."""

import json
import os

import pytest

from memdiag.oom.read import read_text
from memdiag.phantom.cuda import standin
from memdiag.phantom.installed import installed_for
from tests.phantom.cuda_stand_in import PYTHON, needs_torch, run

PROGRAM = """
import ctypes, torch
import torch.nn.functional as F
torch.manual_seed(0)
if {attention}:
    q, k, v = (torch.randn(2, 4, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        F.scaled_dot_product_attention(q, k, v).sum().backward()
else:
    torch.backends.cudnn.benchmark = {benchmark}
    layer = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False).cuda()
    layer(torch.randn(1, 64, 56, 56, device="cuda", requires_grad=True)).sum().backward()
facts = ctypes.CDLL(None).memdiag_phantom_facts
facts.restype = ctypes.c_char_p
print(torch.cuda.max_memory_allocated())
print(facts().decode())
"""


@pytest.fixture(scope="module", autouse=True)
def planner():
    if not PYTHON or not standin.planner(installed_for([PYTHON], os.environ), {}):
        pytest.skip("no cuDNN is installed next to torch")


def ran(folder, attention=False, benchmark=False, **more):
    done = run(["-c", PROGRAM.format(attention=attention, benchmark=benchmark)], folder, **more)
    assert done.returncode == 0, done.stderr[-2000:]
    peak, facts = done.stdout.splitlines()
    return int(peak), json.loads(facts)["scratch"]


@needs_torch
def test_convolutions_take_what_cudnn_plans(tmp_path):
    peak, planned = ran(tmp_path)
    without, unknown = ran(tmp_path, MEMDIAG_PHANTOM_CUDNN_WORKSPACE="0")
    assert planned["convolution"]["calls"] == unknown["convolution"]["calls"] == 3
    assert (planned["convolution"]["unknown_calls"], unknown["convolution"]["unknown_calls"]) == (0, 3)
    assert 0 < peak - without <= planned["convolution"]["largest_bytes"] + 512
    # input, output and weights of a convolution in single precision
    assert unknown["convolution"]["largest_unknown_operand_bytes"] == 4 * (2 * 64 * 56 * 56 + 64 * 64 * 9)
    more, _ = ran(tmp_path, MEMDIAG_PHANTOM_CUDNN_EXTRA="128M")
    assert more - peak == 128 << 20


@needs_torch
def test_the_search_for_the_fastest_takes_the_largest_candidate(tmp_path):
    peak, _ = ran(tmp_path)
    searched, _ = ran(tmp_path, benchmark=True)
    assert searched > peak


@needs_torch
def test_attention_is_planned_completely(tmp_path):
    _, counts = ran(tmp_path, attention=True)
    assert counts["attention"]["calls"] == 2
    assert counts["attention"]["unknown_calls"] == 0


COMMUNICATOR = """
import ctypes, torch
import torch.distributed as dist
dist.init_process_group("nccl")
dist.all_reduce(torch.ones(4, device="cuda"))
facts = ctypes.CDLL(None).memdiag_phantom_facts
facts.restype = ctypes.c_char_p
print(facts().decode())
"""


@needs_torch
@pytest.mark.parametrize(
    ("world", "more", "mib"),
    [(2, {}, 544), (4, {}, 688), (2, {"NCCL_BUFFSIZE": "2097152"}, 448), (4, {"MEMDIAG_PHANTOM_NCCL_BYTES": "0"}, 0)],
)
def test_a_communicator_takes_what_was_measured(tmp_path, world, more, mib):
    done = run(["-c", COMMUNICATOR], tmp_path, device="cuda:a100-80g", rank=0, world=world, **more)
    assert done.returncode == 0, done.stderr[-2000:]
    counted = json.loads(done.stdout.splitlines()[-1])["scratch"]["communicators"]
    assert counted == {"count": 1, "bytes": mib << 20}


@needs_torch
def test_a_communicator_without_enough_memory_says_so_as_nccl_does(tmp_path):
    done = run(["-c", COMMUNICATOR], tmp_path, device="cuda:a100-80g,room=256MiB", rank=0, world=2)
    assert done.returncode == 1
    (message,) = read_text(done.stderr).messages
    assert (message.dialect, message.backend) == ("nccl", "cuda")
