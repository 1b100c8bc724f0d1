"""A package with the interface of a MindSpeed that has the switch --memory-fragmentation, and a training that uses it.

Its allocator is the one in C++ of tests/allocator/policies/lifecycle/mindspeed.
"""

from pathlib import Path

HOOKS = Path(__file__).parents[1] / "allocator" / "policies" / "lifecycle" / "mindspeed" / "hooks.py"
ARGUMENTS = """
import argparse

def arguments():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--memory-fragmentation", action="store_true")
    return parser.parse_known_args()[0]
"""
ADAPTOR = """
import torch
from mindspeed.arguments import arguments

def patch(setup, step):
    if not arguments().memory_fragmentation:
        return setup, step
    from mindspeed.core.memory.memory_fragmentation import hooks
    feature = hooks.plug_in({library!r})
    def made():
        model, optimizer = setup()
        hooks.hook_layers(feature, model)
        taken = optimizer.step
        optimizer.step = hooks.hook_optimizer(feature, lambda: (taken(), True)[::-1])
        return model, optimizer
    return hooks.hook_setup(feature, made), hooks.hook_step(feature, step)
"""
TRAINING = """
import torch
import torch_npu
from mindspeed.megatron_adaptor import patch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(1024), nn.Linear(1024, width), nn.Linear(width, 1024)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block(2048 + 640 * (number % 5)) for number in range(12))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def setup_model_and_optimizer():
    model = Net().npu()
    return model, torch.optim.AdamW(model.parameters(), foreach=False)

def train_step(rows):
    loss = model(torch.randn(rows, 1024, device="npu")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

setup_model_and_optimizer, train_step = patch(setup_model_and_optimizer, train_step)
model, optimizer = setup_model_and_optimizer()
for number in range(6):
    train_step(4096 + 1024 * (number % 2))
"""


def make(folder: Path, library: Path | str) -> Path:
    """Writes the package and the training to a folder, and returns the training's script."""
    package = folder / "mindspeed"
    feature = package / "core" / "memory" / "memory_fragmentation"
    feature.mkdir(parents=True)
    for above in (package, package / "core", package / "core" / "memory", feature):
        (above / "__init__.py").write_text("")
    (feature / "hooks.py").write_text(HOOKS.read_text(encoding="utf-8"))
    (package / "arguments.py").write_text(ARGUMENTS)
    (package / "megatron_adaptor.py").write_text(ADAPTOR.format(library=str(library)))
    script = folder / "train.py"
    script.write_text(TRAINING)
    return script
