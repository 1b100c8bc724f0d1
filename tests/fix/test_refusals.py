"""memdiag fix refuses to recompute what the structure of a program does not allow, and names what to do instead."""

import subprocess
import sys

import pytest

from memdiag.fix.structure import refusals_in
from memdiag.recorder import fixing
from tests.forking import python_with_torch

from .test_inside import losses
from .test_predictions import fix

BLOCK = """
import torch
from torch import nn

class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.kept = x
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        return gradient.clone()

class Block(nn.Module):
    def __init__(self, is_custom=False):
        super().__init__()
        self.up, self.down = nn.Linear(64, 512), nn.Linear(512, 64)
        self.is_custom = is_custom
    def forward(self, x):
        hidden = nn.functional.gelu(self.up(x))
        return x + self.down(Kept.apply(hidden) if self.is_custom else hidden)
"""
TRAINING = """
net = nn.Sequential(*(Block(IS_CUSTOM) for number in range(6)), nn.Linear(64, 8))
COMPILE
for _ in range(2):
    net(torch.randn(2048, 64)).square().mean().backward()
    net.zero_grad()
"""


def training(block=BLOCK, *, is_custom="False", compiled=""):
    return block + TRAINING.replace("IS_CUSTOM", is_custom).replace("COMPILE", compiled)


def refusals(report):
    """Returns what the report says about recomputation; other remedies may be named as well."""
    return [each for each in report["refused"] if each["name"] == "checkpoint"]


def test_compiled_code_is_left_to_torch_compile(tmp_path):
    report = fix(training(compiled='net = torch.compile(net, backend="aot_eager")'), "40MiB", tmp_path, "--dry-run")
    assert not [step for step in report["steps"] if step["name"] == "checkpoint"]
    (refusal,) = refusals(report)
    assert refusal["reason"].startswith("torch.compile decides")
    assert "activation_memory_budget" in refusal["instead"]


def test_blocks_with_a_custom_autograd_function_are_left_alone_and_others_are_not(tmp_path):
    report = fix(training(is_custom="number < 3"), "50MiB", tmp_path, "--dry-run")
    (refusal,) = refusals(report)
    assert refusal["where"] == ["train.py:9 forward"]
    (step,) = (step for step in report["steps"] if step["name"] == "checkpoint")
    assert {path.partition(".")[0] for path in step["where"] if path != "…" and not path.startswith("train.py:")} <= {
        "3",
        "4",
        "5",
    }


@pytest.mark.parametrize(
    ("folder", "switch", "is_refused"),
    [
        ("megatron/core", "--recompute-activations", True),
        ("transformers/models", "gradient_checkpointing_enable", False),
    ],
)
def test_frameworks_have_their_own_switch(folder, switch, is_refused, tmp_path):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "blocks.py").write_text(BLOCK)
    module = folder.replace("/", ".")
    text = training(f"import torch\nfrom torch import nn\nfrom {module}.blocks import Block\n")
    report = fix(text, "40MiB", tmp_path, "--dry-run")
    steps = [step for step in report["steps"] if step["name"] == "checkpoint"]
    assert [switch in each["instead"] for each in refusals(report)] == [True] * is_refused
    assert [switch in each["by_hand"] for each in steps] == [True] * (not is_refused)


def test_compiled_modules_stay_as_they_are_in_the_program():
    call = "import checkpoint_modules\ncheckpoint_modules.checkpoint_modules(['layers.0', 'layers.2'], print)\n"
    look = "print([layer in checkpoint_modules._PARTS for layer in net.layers])"
    program = "net.layers[0].compile(backend='eager')\nstep()\n" + look
    _, rest = losses("", call + program)
    assert rest == ["compiled layers.0", "[False, False, True]"]


def test_modules_of_a_compiled_model_are_found_and_left_alone():
    call = "from checkpoint_modules import checkpoint_modules\ncheckpoint_modules(['layers.0'], print)\n"
    _, rest = losses("", f"{call}net = torch.compile(net, backend='eager')\nstep()\n")
    assert rest == ["compiled layers.0"]


def test_what_processes_refused_is_read_once_for_each_reason(tmp_path, monkeypatch):
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        refuse = fixing._refusing(str(tmp_path), "checkpoint_modules")
        for number in range(5):
            refuse("FSDP1", f"layers.{number}")
    (refusal,) = refusals_in(tmp_path)
    assert refusal.where == ("layers.0", "layers.1", "layers.2", "layers.3", "…")
    assert refusal.instead.startswith("apply_activation_checkpointing(")


def test_the_terminal_shows_the_reason_and_the_switch(tmp_path):
    (tmp_path / "train.py").write_text(training(is_custom="True"))
    words = [
        sys.executable,
        "-m",
        "memdiag",
        "fix",
        "--budget",
        "40MiB",
        "--dry-run",
        "--",
        python_with_torch(),
        "train.py",
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    text = " ".join(done.stdout.split())
    assert "Refused, because of the structure of the program - checkpoint (train.py:9 forward):" in text
