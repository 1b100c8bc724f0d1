"""Public mixtures of experts under --expert-load: their requests match the counts that a device would compute."""

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest

from memdiag.phantom.experts import VARIABLE, read_expert_load
from memdiag.phantom.launch import COMPUTE, SMALL_BYTES
from tests.phantom import cuda_stand_in

PROGRAM = Path(__file__).with_name("programs") / "public_experts.py"
PUBLIC = Path(__file__).parents[2] / "bench" / "programs"
MEGATRON = [
    "--tp",
    "1",
    "--ep",
    "8",
    "--experts",
    "8",
    "--layers",
    "1",
    "--hidden",
    "512",
    "--heads",
    "8",
    "--ffn",
    "1024",
    "--length",
    "1024",
]
pytestmark = cuda_stand_in.needs_torch


@cache
def is_installed(module):
    found = subprocess.run([cuda_stand_in.PYTHON, "-c", f"import {module}"], capture_output=True, check=False)
    return found.returncode == 0


def requests(folder, told, program, *words, load=None, rank=None, compute=SMALL_BYTES):
    """Runs a program; returns the sizes that it requested and freed, in order."""
    folder.mkdir()
    more = {} if load is None else {VARIABLE: read_expert_load(load)}
    done = cuda_stand_in.run(
        [PROGRAM, told, PUBLIC / program, *words],
        folder,
        rank=rank,
        world=None if rank is None else 8,
        HF_HUB_OFFLINE="1",
        CUDA_DEVICE_MAX_CONNECTIONS="1",
        **{COMPUTE: str(compute)},
        **more,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "requests.json").read_text())


@pytest.mark.parametrize("model", ["mixtral", "qwen3_moe", "deepseek_v3"])
@pytest.mark.parametrize(("load", "told"), [("balanced", "balanced"), ("skew=1", "same")])
def test_requests_are_those_of_counts_that_the_host_wrote(tmp_path, model, load, told):
    if not is_installed("transformers"):
        pytest.skip("the Python with CUDA has no transformers")
    assumed = requests(tmp_path / "assumed", "assumed", "experts.py", model, load=load)
    known = requests(tmp_path / "told", told, "experts.py", model, compute=256 << 20)
    assert len(assumed) > 1000
    assert assumed == known


@pytest.mark.parametrize(
    ("load", "rank", "tokens"), [("skew=1", 0, 8192), ("balanced", 0, 2048), ("balanced", 7, 2048)]
)
def test_megatron_core_receives_the_tokens_of_all_ranks(tmp_path, load, rank, tokens):
    if not is_installed("megatron.core"):
        pytest.skip("the Python with CUDA has no megatron-core")
    found = requests(tmp_path / "run", "assumed", "megatron_core.py", *MEGATRON, load=load, rank=rank)
    sizes = {size for action, size in found if action == "alloc"}
    assert tokens * 512 * 2 in sizes  # one tensor of hidden states in bfloat16
    assert (8192 * 512 * 2 in sizes) == (tokens == 8192)


def test_torchtitan_receives_the_tokens_of_all_ranks(tmp_path):
    if not is_installed("torchtitan.models.deepseek_v3"):
        pytest.skip("the Python with CUDA has no torchtitan with DeepSeek-V3")
    words = ["deepseek_v3", "--parallelism.expert_parallel_degree", "8"]
    found = {
        rank: {
            size
            for action, size in requests(
                tmp_path / str(rank), "assumed", "torchtitan_own.py", *words, load="skew=1", rank=rank
            )
            if action == "alloc"
        }
        for rank in (0, 7)
    }
    all_tokens = 8 * 4 * 2048 * 256 * 2  # every token of eight ranks, one tensor of hidden states in bfloat16
    assert max(found[0]) >= all_tokens > max(found[7])
