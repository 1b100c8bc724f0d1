"""Predicted peaks of remedies, compared with measured ones on the CPU."""

import json
import subprocess

import pytest

from tests.forking import memdiag_command, python_with_torch

LOSS = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8192))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
x, y = torch.randn(4096, 32), torch.randint(0, 8192, (4096,))
for step in range(3):
    if step == 1:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            nn.functional.cross_entropy(net(x), y)
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
GRADIENTS = """
import torch

net = torch.nn.Linear(4096, 4096)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    loss = net(torch.randn(2048, 4096)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TRIALS = """
import torch

kept = []
for trial in range(4):
    net = torch.nn.Linear(2048 + 512 * trial, 2048)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.randn(64, net.in_features)).square().mean().backward()
        optimizer.step()
    kept.append(net)
"""
AUTOCAST = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(256, 512, bias=False), nn.Linear(512, 256), nn.LayerNorm(256)
    def forward(self, x):
        return self.norm(x + self.down(torch.relu(self.up(x))))

torch.manual_seed(0)
net = nn.Sequential(*(Block() for _ in range(8)), nn.Linear(256, 8))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    with torch.autocast("cpu", torch.bfloat16):
        output = net(torch.randn(1024, 256))
    output.float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def fix(text, budget, folder, *options):
    """The report of memdiag fix for a program."""
    pytest.importorskip("torch")
    (folder / "train.py").write_text(text)
    command = [*memdiag_command(), "fix", "--json", "--budget", budget, *options, "--"]
    done = subprocess.run(
        [*command, python_with_torch(), "train.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_losses_under_autocast_and_in_an_evaluation(tmp_path):
    """Autocast copies the logits, and an evaluation computes losses that no backward uses."""
    report = fix(LOSS, "350MiB", tmp_path)
    assert [step["name"] for step in report["steps"] if step["is_chosen"]] == ["chunked-loss"]
    assert report["actual"]["fits"]
    assert report["predicted"]["allocated_bytes"] == pytest.approx(report["actual"]["allocated_bytes"], rel=0.01)
    assert report["losses"]["largest_relative"] < 1e-2  # in bfloat16


def test_gradients_freed_between_forward_and_backward_are_not_set_to_zero(tmp_path):
    report = fix(GRADIENTS, "150MiB", tmp_path, "--dry-run")
    assert not report["recorded"]["fits"]
    assert "free-gradients" not in {step["name"] for step in report["steps"]}


def test_gradients_that_are_kept_with_the_models_of_earlier_trials_are_not_set_to_zero(tmp_path):
    report = fix(TRIALS, "100MiB", tmp_path, "--dry-run")
    assert not report["recorded"]["fits"]
    assert "free-gradients" not in {step["name"] for step in report["steps"]}


def test_recomputed_blocks_under_autocast_that_end_with_a_normalisation(tmp_path):
    """Autocast keeps its copies of weights until its region ends, and recomputing keeps the arguments of blocks.

    A normalisation allocates its statistics after its output.
    """
    report = fix(AUTOCAST, "25MiB", tmp_path)
    assert [step["name"] for step in report["steps"] if step["is_chosen"]] == ["checkpoint"]
    assert report["actual"]["fits"]
    assert report["predicted"]["allocated_bytes"] == pytest.approx(report["actual"]["allocated_bytes"], rel=0.005)
    assert report["losses"]["largest_relative"] < 1e-6


STEPS = """
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    net(torch.randn(8192, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SKIPPING = """
import torch
from torch import nn

class Down(nn.Module):
    gradient_checkpointing = False  # as in diffusers: its switch recomputes parts only
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(2))
    def forward(self, x):
        outputs = ()
        for part in self.parts:
            x = torch.tanh(x + part(x)).relu()
            outputs += (x * 2,)
        return x, outputs

class Up(Down):
    def forward(self, x, skips):
        for part, skip in zip(self.parts, skips):
            x = torch.tanh(part(x) + skip).relu()
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.downs, self.ups = (nn.ModuleList(kind() for _ in range(3)) for kind in (Down, Up))
    def forward(self, x):
        kept = []
        for down in self.downs:
            x, outputs = down(x)
            kept.append(outputs)
        for up in self.ups:
            x = up(x, kept.pop())
        return x

torch.manual_seed(0)
"""


def test_blocks_that_return_several_tensors_keep_them(tmp_path):
    """The program holds such outputs until it uses them, even if recomputing would free what they are made of."""
    report = fix(SKIPPING + STEPS, "120MiB", tmp_path)
    assert [step["name"] for step in report["steps"] if step["is_chosen"]] == ["checkpoint"], report
    assert any("several tensors" in each["reason"] for each in report["refused"])
    assert report["actual"]["fits"]
    assert report["predicted"]["allocated_bytes"] == pytest.approx(report["actual"]["allocated_bytes"], rel=0.001)
    assert report["losses"]["largest_relative"] < 1e-6


INNER = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(64, 64), nn.Linear(64, 256)
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(6))
    def forward(self, x):
        x = self.embed(x)
        for part in self.parts:
            x = x + checkpoint(lambda y, part=part: part[2](part[1](part[0](y))), x, use_reentrant=False)
        return self.head(x)

"""


def test_a_program_that_recomputes_its_blocks_is_not_recomputed_as_a_whole(tmp_path):
    """The model itself is no part of itself, so recomputing it could not be applied."""
    report = fix(INNER + STEPS, "40MiB", tmp_path, "--dry-run")
    assert not report["recorded"]["fits"]
    assert not any(step["name"] == "checkpoint" for step in report["steps"]), report["steps"]


EVALUATED = """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)
    def forward(self, x):
        hidden = self.up(x)
        hidden = nn.functional.gelu(hidden)
        hidden = hidden * 2
        return self.down(hidden)
net = nn.Sequential(*(Block() for _ in range(6)))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    net(torch.randn(4096, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
total = 0
for _ in range(6):
    output = net(torch.randn(4096, 64))
    labels = torch.zeros(4096, dtype=torch.long)
    total = total + nn.CrossEntropyLoss()(output, labels)
"""


def test_a_remedy_that_saves_only_with_another_one_is_chosen(tmp_path):
    """An evaluation without no_grad hides the peak of training, which recomputing lowers."""
    report = fix(EVALUATED, "45MiB", tmp_path, "--dry-run")
    assert [step["name"] for step in report["steps"] if step["is_chosen"]] == ["no-grad", "checkpoint"], report
    assert report["predicted"]["fits"]
    assert report["steps"][0]["where"] == ["train.py:21 <module>"]  # where the model is called, not the loss
    checkpoint = next(step for step in report["steps"] if step["name"] == "checkpoint")
    assert checkpoint["extra_forward"] == pytest.approx(2 / 6, rel=0.1)  # of a training forward: evaluation is longer
