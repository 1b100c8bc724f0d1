"""The count of live tensors in bench/programs/live_storages.py, without memdiag, knows the kind of each tensor."""

import json
import subprocess
from pathlib import Path

from tests.forking import python_with_torch

COUNTER = Path(__file__).parents[1] / "bench" / "programs" / "live_storages.py"
FLOAT, BLOCK = 4, 512
PROGRAM = """
import torch

class Frozen(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(30, 50, bias=False)

    def forward(self, inputs):
        return inputs @ self.head.weight.t()  # the head is never called

model, frozen = torch.nn.Linear(100, 200), Frozen()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.no_grad():
    frozen(torch.rand(3, 30))
    model(torch.rand(3, 100))  # an action is chosen, before the batch exists
    batch = torch.rand(64, 100)
scaled = model(batch)
loss = (scaled * scaled).sum()
del scaled
loss.backward()
optimizer.step()
"""


SHARDED = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

def train(rank, world_size, folder):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", f"file://{folder}/store", rank=rank, world_size=world_size)
    model = torch.nn.Linear(100, 200, device="cuda")
    fully_shard(model)
    inputs = torch.rand(4, 100).pin_memory().to(rank, non_blocking=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(inputs).sum()
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    dist.destroy_process_group()

if __name__ == "__main__":
    count = torch.cuda.device_count()
    torch.multiprocessing.spawn(train, (count, __file__.rpartition("/")[0]), count)
"""
COMPILED = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()).cuda()
compiled = torch.compile(model, backend="aot_eager")
compiled(torch.rand(1024, 64, device="cuda")).sum().backward()
"""


def in_blocks(size):
    return -(-size // BLOCK) * BLOCK


def count(folder, program, *options):
    """Returns what each process writes."""
    (folder / "train.py").write_text(program)
    command = [python_with_torch(), str(COUNTER), *options, "count", str(folder / "train.py")]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return [json.loads(file.read_text()) for file in (folder / "count").glob("*.json")]


def test_results_of_backward_are_tensors_and_a_batch_after_another_forward_is_an_input(tmp_path):
    (found,) = count(tmp_path, PROGRAM, "--foreach")
    parts, output = found["tensors"], 64 * 200 * FLOAT
    assert parts["parameters"] == sum(in_blocks(each * FLOAT) for each in (100 * 200, 200, 30 * 50))
    assert parts["input batches"] == 64 * 100 * FLOAT
    assert output <= parts["activations"] <= output + 4 * BLOCK  # and scalars
    # autograd adds the gradients of both factors, so there are two of them and their sum
    assert 2 * output <= parts["temporary tensors"] <= 3 * output + 4 * BLOCK
    assert found["all"]["scratch memory"] == parts["scratch memory"] == 0
    assert found["has_optimizer"]


def test_spawned_ranks_of_a_program_for_gpus_gather_parameters_on_the_cpu(tmp_path):
    found = count(tmp_path, SHARDED, "--gpus", "2")
    peaks = sorted((one["tensors"] for one in found), key=lambda parts: parts["parameters"])
    weights = (100 * 200 + 200) * FLOAT
    assert [bool(parts["parameters"]) for parts in peaks] == [False, True, True]
    for parts in peaks[1:]:
        assert weights / 2 <= parts["parameters"] < 0.6 * weights  # a shard
        assert parts["buffers of collectives"] >= weights


def test_compiled_code_allocates_tensors(tmp_path):
    (found,) = count(tmp_path, COMPILED, "--gpus", "1")
    output = 1024 * 64 * FLOAT
    assert found["tensors"]["activations"] >= output
    assert found["tensors"]["parameters"] == in_blocks(64 * 64 * FLOAT) + BLOCK
