"""Trains one rank with PyTorch's own kinds of parallelism: parallel.py ddp|fsdp1|fsdp2|tensor|pipeline|zero|context."""

import sys

import torch
import torch.distributed as dist
from torch import nn

WIDTH, LAYERS = 512, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def stack(num_layers=LAYERS):
    return nn.Sequential(*[Block() for _ in range(num_layers)]).cuda()


def steps(model, parameters, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW(parameters)
    for _ in range(3):
        model(torch.randn(8, 64, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def ddp():
    model = nn.parallel.DistributedDataParallel(stack(), device_ids=[0], bucket_cap_mb=4)
    steps(model, model.parameters())


def fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = Fsdp(stack(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=0, use_orig_params=True)
    steps(model, model.parameters())


def fsdp2():
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = stack()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    steps(model, model.parameters())


def tensor():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model, mesh = stack(), init_device_mesh("cuda", (dist.get_world_size(),))
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    steps(model, model.parameters(), torch.optim.AdamW(model.parameters(), foreach=False))


def pipeline():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, size = dist.get_rank(), dist.get_world_size()
    part = stack(2)
    # without these two, each stage waits for the shapes of its predecessor, which does not run here
    rows = int(next(iter(sys.argv[2:]), "batch=4").removeprefix("batch="))  # of a microbatch
    sample = torch.randn(rows, 64, WIDTH, device="cuda", requires_grad=True)
    stage = PipelineStage(part, rank, size, torch.device("cuda"), input_args=(sample,), output_args=(sample,))
    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=lambda out, _: out.square().mean())
    optimizer = torch.optim.AdamW(part.parameters())
    for _ in range(3):
        x = torch.randn(8 * rows, 64, WIDTH, device="cuda")
        arguments = (x,) if rank == 0 else ()
        schedule.step(*arguments, target=x) if rank == size - 1 else schedule.step(*arguments)
        optimizer.step()
        optimizer.zero_grad()


def zero():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(stack(), device_ids=[0])
    steps(model, None, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam))


torch.cuda.set_device(0)
dist.init_process_group("nccl")
torch.manual_seed(0)
{"ddp": ddp, "fsdp1": fsdp1, "fsdp2": fsdp2, "tensor": tensor, "pipeline": pipeline, "zero": zero}[sys.argv[1]]()
torch.cuda.synchronize()
dist.destroy_process_group()
print("done")
