"""Trains in two processes over gloo with DDP or FSDP2; starts them itself unless torchrun did: ddp.py OUT WAY."""

import os
import sys

import torch
import torch.distributed as dist
from nets import GPT, batch_for
from torch.nn import functional
from truth import Truth


def train(rank, out, way, port=""):
    if port:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    truth = Truth("cpu")
    torch.manual_seed(0)
    model = GPT(layers=2)
    named = dict(model.named_parameters())
    if way == "fsdp":
        try:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard
        except ImportError as error:
            print("cannot be tried:", error)
            return
        mesh = init_device_mesh("cpu", (2,))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        called = fully_shard(model, mesh=mesh)
        named = dict(model.named_parameters())
    else:
        called = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=way == "views")
    optimizer = torch.optim.AdamW(called.parameters())
    for step in range(3):
        inputs, targets = batch_for(model, "cpu")
        at = truth.moment()
        truth.step = step
        truth.see(at, inputs, "input")
        functional.cross_entropy(called(inputs), targets).backward()
        at = truth.moment("outside")
        truth.see_model(at, named, gradients=True)
        optimizer.step()
        truth.step = step + 1
        at = truth.moment("outside")
        truth.see_model(at, named)
        truth.see_states(at, optimizer, named)
        optimizer.zero_grad()
    truth.write(f"{out}.{rank}")
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), *sys.argv[1:3])
    else:
        import socket

        import torch.multiprocessing as mp

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            number = str(free.getsockname()[1])
        mp.spawn(train, (*sys.argv[1:3], number), nprocs=2)
