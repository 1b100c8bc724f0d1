"""A trainer and an inference engine that take turns on one card, as in reinforcement learning on colocated workers.

    python colocated.py DEVICE [--turns N] [--keep GIB,GIB,...]

The engine is a second process. It wakes up (weights and KV cache), generates, and sleeps again; then the trainer loads
its optimizer state, trains a step, and releases its memory. ``--keep`` makes the engine keep old weights: how much in
each sleep. The default is the pattern of NVIDIA-NeMo/RL#2619, where the memory of a sleeping engine grew from 4 to 25
GiB until the trainer ran out of memory.

The processes talk in turns, so memory changes in one of them at a time.
"""

import argparse
import gc
import subprocess
import sys

import torch

GIB = 1 << 30
WEIGHTS, CACHE = 14 * GIB, 30 * GIB  # of the engine
STATE, ACTIVATIONS = 40 * GIB, 15 * GIB  # of the trainer


def mark(name):
    """Names this moment in a recording, if there is one."""
    recorder = sys.modules.get("memdiag_recorder.in_program")
    if recorder is None and "memdiag_recorder" in sys.modules:
        from importlib import import_module

        recorder = import_module("memdiag_recorder.in_program")
    if recorder is not None:
        recorder.mark(name)


def buffer(size, device):
    """Allocates device memory of a size in bytes."""
    return torch.empty(int(size), dtype=torch.uint8, device=device)


def release(device):
    """Returns cached memory to the driver."""
    gc.collect()
    getattr(torch, device).empty_cache()


def load_weights(device):
    """Allocates the engine's weights."""
    return [buffer(WEIGHTS / 14, device) for _ in range(14)]


def keep_old_weights(size, device):
    """Allocates copies of weights that nothing frees."""
    return torch.empty(int(size), dtype=torch.uint8, device=device)


def engine(device, keep):
    """Wakes up and sleeps as the trainer says, a word in each line."""
    kept, turn = [], 0
    print("done", flush=True)  # it has imported torch
    for line in sys.stdin:
        if line.strip() == "wake":
            weights, cache = load_weights(device), buffer(CACHE, device)
            mark("awake")
        elif line.strip() == "sleep":
            if turn < len(keep) and keep[turn] > sum(tensor.numel() for tensor in kept):
                kept.append(keep_old_weights(keep[turn] - sum(tensor.numel() for tensor in kept), device))
            turn += 1
            del weights, cache
            release(device)
            mark("asleep")
        print("done", flush=True)


def train_step(model, optimizer, device):
    """Trains one step, with the memory that the trainer needs in addition to its model."""
    state = buffer(STATE, device)
    activations = buffer(ACTIVATIONS, device)
    model(torch.ones(64, 1024, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    mark("trained")
    del state, activations
    release(device)
    mark("released")


def trainer(device, turns, keep):
    """Lets the engine generate and trains on the result, in turns."""
    words = [sys.executable, __file__, device, "--engine", "--keep", ",".join(str(size / GIB) for size in keep)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:

        def tell(word):
            other.stdin.write(word + "\n")
            other.stdin.flush()
            if not other.stdout.readline():
                raise SystemExit("the engine has ended")
            mark(f"engine: {word}")

        other.stdout.readline()  # until the engine has started, so that a recording of the card begins with turns
        model = torch.nn.Linear(1024, 1024)
        optimizer = torch.optim.SGD(model.parameters())  # before the first use of the device: it imports for seconds
        model.to(device)
        for _ in range(turns):
            tell("wake")
            tell("sleep")
            train_step(model, optimizer, device)
        other.stdin.close()


def main():
    """Runs one of the two processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("device", choices=("cuda", "npu"))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--keep", default="4.11,11.6,25")
    parser.add_argument("--engine", action="store_true")
    args = parser.parse_args()
    if args.device == "npu":
        import torch_npu  # noqa: F401
    keep = [int(float(size) * GIB) for size in args.keep.split(",") if size]
    if args.engine:
        engine(args.device, keep)
    else:
        trainer(args.device, args.turns, keep)


if __name__ == "__main__":
    main()
