"""Losses and optimizer steps that torch.compile or a framework owns are left alone, and their switch is named."""

import json
import subprocess

import pytest

from tests.fix.test_predictions import fix
from tests.forking import memdiag_command
from tests.pythons import NO_CUDA, cuda_python

LOSS = """
import torch
from torch import nn

def compute_loss(logits, target):
    chosen = logits.float().log_softmax(-1).gather(1, target[:, None])
    return -chosen.mean()
"""
TRAINING = """
net = nn.Linear(16, 8192)
COMPILE
for _ in range(2):
    loss = compute_loss(net(torch.randn(2048, 16)), torch.zeros(2048, dtype=torch.long))
    loss.backward()
    net.zero_grad()
"""
OPTIMIZER = """
import torch

class Optimizer(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})
    @torch.no_grad()
    def step(self):
        parameters = [each for group in self.param_groups for each in group["params"]]
        changes = [each.grad * 0.1 for each in parameters]
        for each, change in zip(parameters, changes):
            each -= change
"""
STEPS = """
from torch import nn
net = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(5)))
optimizer = Optimizer(net.parameters())
for _ in range(2):
    net(torch.randn(4, 2048)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def refused(report, name):
    return [(each["reason"].partition(" ")[0], each["instead"]) for each in report["refused"] if each["name"] == name]


@pytest.mark.skipif(not cuda_python(), reason=NO_CUDA)
def test_a_compiled_loss_is_left_alone(tmp_path):
    text = LOSS + TRAINING.replace("COMPILE", 'compute_loss = torch.compile(compute_loss, backend="aot_eager")')
    text = (
        text.replace("8192)", "8192).cuda()")
        .replace("16))", "16).cuda())")
        .replace("torch.long)", "torch.long).cuda()")
    )
    (tmp_path / "train.py").write_text(text)
    words = [*memdiag_command(), "fix", "--json", "--phantom", "cuda:h100-80g", "--budget", "700MiB"]
    words += ["--dry-run", "--", cuda_python(), "train.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    instead = "call torch.nn.functional.cross_entropy outside the compiled function"
    assert refused(json.loads(done.stdout), "chunked-loss") == [("torch.compile", instead)]


def test_a_loss_of_the_program_itself_is_not_refused(tmp_path):
    report = fix(LOSS + TRAINING.replace("COMPILE", ""), "50MiB", tmp_path, "--dry-run")
    assert refused(report, "chunked-loss") == []


@pytest.mark.parametrize(
    ("file", "name", "switch"),
    [
        ("liger_kernel/ops/cross_entropy", "Liger", "fused_linear_cross_entropy=True"),
        ("megatron/core/tensor_parallel/cross_entropy", "Megatron-LM", "--cross-entropy-loss-fusion"),
    ],
)
def test_losses_of_frameworks_are_left_alone(file, name, switch, tmp_path):
    path = tmp_path / f"{file}.py"
    path.parent.mkdir(parents=True)
    path.write_text(LOSS)
    text = f"import torch\nfrom torch import nn\nfrom {file.replace('/', '.')} import compute_loss\n"
    ((reason, instead),) = refused(
        fix(text + TRAINING.replace("COMPILE", ""), "50MiB", tmp_path, "--dry-run"), "chunked-loss"
    )
    assert reason == name
    assert switch in instead


@pytest.mark.parametrize(
    ("file", "name", "switch"),
    [
        ("deepspeed/runtime/optimizer", "DeepSpeed", "offload_optimizer"),
        ("megatron/core/optimizer/optimizer", "Megatron-LM", "--use-distributed-optimizer"),
    ],
)
def test_optimizers_of_frameworks_are_left_alone(file, name, switch, tmp_path):
    path = tmp_path / f"{file}.py"
    path.parent.mkdir(parents=True)
    path.write_text(OPTIMIZER)
    report = fix(
        f"import torch\nfrom {file.replace('/', '.')} import Optimizer\n{STEPS}", "100MiB", tmp_path, "--dry-run"
    )
    ((reason, instead),) = refused(report, "lean-optimizer")
    assert reason == name
    assert switch in instead
    assert "lean-optimizer" not in {step["name"] for step in report["steps"]}


def test_the_fused_kernel_is_not_offered_for_an_optimizer_of_the_program_itself(tmp_path):
    """``fused`` and ``foreach`` are options of torch.optim."""
    report = fix(OPTIMIZER + STEPS, "100MiB", tmp_path, "--dry-run")
    assert not report["recorded"]["fits"]
    assert "lean-optimizer" not in {step["name"] for step in report["steps"]}
