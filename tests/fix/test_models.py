"""memdiag fix with programs that have two models and two optimizers, and gradients that stay until the next step."""

import json
import subprocess

import pytest

from tests.fix.test_inside import losses
from tests.forking import memdiag_command, python_with_torch

ADVERSARIAL = """
import torch
from torch import nn

class Stack(nn.Module):
    def __init__(self, name, out):
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)) for _ in "abcd"]
        setattr(self, name, nn.ModuleList(blocks))
        self.name, self.out = name, nn.Linear(256, out)
    def forward(self, x):
        for block in getattr(self, self.name):
            x = x + block(x)
        return self.out(x)

torch.manual_seed(0)
maker, judge = Stack(MAKER, 256), Stack(JUDGE, 1)
make, learn = (torch.optim.Adam(model.parameters(), foreach=False) for model in (maker, judge))
loss_of = nn.functional.binary_cross_entropy_with_logits
ones, zeros = torch.ones(ROWS, 1), torch.zeros(ROWS, 1)
for _ in range(3):
    real, fake = torch.randn(ROWS, 256), maker(torch.randn(ROWS, 256))
    learn.zero_grad()
    loss = loss_of(judge(real), ones) + loss_of(judge(fake.detach()), zeros)
    loss.backward()
    learn.step()
    make.zero_grad()
    loss = loss_of(judge(fake), ones)
    loss.backward()
    make.step()
"""
KEPT = """
from torch import nn
import torch
class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(2048, 2048), nn.Linear(2048, 2048)
    def forward(self, x):
        return self.two(torch.relu(self.one(x)))
torch.manual_seed(0)
first, second = Wide(), Wide()
optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in (first, second)]
for _ in range(3):
    for net, optimizer in zip((first, second), optimizers):
        loss = net(torch.randn(2048, 2048)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def fix(text, budget, folder, *options):
    pytest.importorskip("torch")
    (folder / "train.py").write_text(text)
    words = [*memdiag_command(), "fix", "--json", "--budget", budget, *options]
    done = subprocess.run(
        [*words, "--", python_with_torch(), "train.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("judge", ["layers", "blocks"])
def test_blocks_of_two_models_are_recomputed_as_predicted(tmp_path, judge):
    """Both models may have blocks of the same path, or blocks that the other one does not have."""
    names = {"MAKER": "layers", "JUDGE": judge}
    text = ADVERSARIAL.replace("MAKER", repr(names["MAKER"])).replace("JUDGE", repr(names["JUDGE"]))
    report = fix(text.replace("ROWS", "4096"), "230MiB", tmp_path)
    assert [step["name"] for step in report["steps"] if step["is_chosen"]] == ["checkpoint"], report
    assert report["actual"]["fits"]
    assert report["predicted"]["allocated_bytes"] == pytest.approx(report["actual"]["allocated_bytes"], rel=0.01)
    assert report["losses"] == {"num_compared": 6, "largest_relative": 0.0}
    assert report["times"]["before_us"] > 0
    assert report["times"]["after_us"] > 0


def test_gradients_that_the_other_step_frees_are_not_set_to_zero(tmp_path):
    """The gradients of one optimizer are still live in the forward and backward of the other one."""
    report = fix(KEPT, "150MiB", tmp_path, "--dry-run")
    assert not report["recorded"]["fits"]
    assert "free-gradients" not in {step["name"] for step in report["steps"]}


def test_on_the_cpu_the_reserved_peak_is_the_allocated_one(tmp_path):
    report = fix(KEPT, "150MiB", tmp_path, "--dry-run")
    for step in report["steps"]:
        assert (
            step["alone"]["reserved_bytes"] == step["alone"]["allocated_bytes"] <= report["recorded"]["reserved_bytes"]
        )


@pytest.mark.parametrize("kind", ["AdamW", "NAdam", "RMSprop"])
@pytest.mark.parametrize("flags", ["foreach=False", "foreach=True"])
def test_states_on_the_host_give_the_same_losses(kind, flags):
    setup = f"print([step() for _ in range(5)])\noptimizer = torch.optim.{kind}(net.parameters(), {flags})\n"
    schedule = "torch.optim.lr_scheduler.StepLR(optimizer, 1)\nprint([step() for _ in range(5)])\n"
    _, plain = losses("", setup + schedule)
    call = "from offload_optimizer import offload_optimizer\noffload_optimizer(1)\n"
    states = "print(len(optimizer.state), len(optimizer.param_groups[0]['params']))\n"
    _, moved = losses(call, setup + schedule + states)
    assert moved[:2] == plain[:2]
    assert moved[2] == "14 14"


def test_adam_of_bitsandbytes_is_made_in_place_of_that_of_torch(tmp_path):
    (tmp_path / "bitsandbytes").mkdir()
    (tmp_path / "bitsandbytes" / "__init__.py").write_text(
        "import torch\n"
        "class AdamW8bit(torch.optim.SGD):\n"
        "    def __init__(self, params, lr=1e-3, weight_decay=0.01):\n"
        "        super().__init__(params, lr, weight_decay=weight_decay)\n"
        "class optim:\n"
        "    AdamW8bit = AdamW8bit\n"
    )
    before = (
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from eight_bit_optimizer import eight_bit_optimizer\neight_bit_optimizer()\n"
    )
    after = (
        "class Own(torch.optim.AdamW):\n    pass\n"
        "print(type(optimizer).__name__)\n"
        "print(type(Own(net.parameters())).__name__)\n"
        "print(type(torch.optim.AdamW(net.parameters(), amsgrad=True)).__name__)\n"
        "print(torch.optim.AdamW(net.parameters(), 0.5, fused=False).param_groups[0]['lr'])\n"
    )
    assert losses(before, after)[1] == ["AdamW8bit", "Own", "AdamW", "0.5"]


def test_states_on_the_host_belong_to_one_optimizer():
    """Parameters of a second model may have the ids of those of the first one."""
    call = "from offload_optimizer import offload_optimizer\noffload_optimizer(1)\n"
    many = (
        "for width in range(4, 40):\n"
        "    layer = nn.Linear(width, width)\n"
        "    rule = torch.optim.AdamW(layer.parameters())\n"
        "    layer(torch.ones(1, width)).sum().backward()\n"
        "    rule.step()\n"
        "    del layer, rule\n"
        "print('done')\n"
    )
    assert losses(call, many)[1] == ["done"]
