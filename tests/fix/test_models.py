"""memdiag fix with programs that have two models and two optimizers, and gradients that stay until the next step."""

import json
import subprocess

import pytest

from memdiag.sources import load
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


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Returns the report about two optimizers whose gradients live until the next step, and the folder of the run."""
    folder = tmp_path_factory.mktemp("kept")
    return fix(KEPT, "150MiB", folder, "--dry-run"), folder


def test_gradients_that_the_other_step_frees_are_not_set_to_zero(kept):
    """The gradients of one optimizer are still live in the forward and backward of the other one."""
    report, _ = kept
    assert not report["recorded"]["fits"]
    assert "free-gradients" not in {step["name"] for step in report["steps"]}


def test_on_the_cpu_the_reserved_peak_is_the_allocated_one(kept):
    report, _ = kept
    for step in report["steps"]:
        assert (
            step["alone"]["reserved_bytes"] == step["alone"]["allocated_bytes"] <= report["recorded"]["reserved_bytes"]
        )


def test_the_recording_has_the_lines_that_free_gradients(kept):
    report, folder = kept
    number = next(at for at, line in enumerate(KEPT.splitlines(), 1) if "zero_grad()" in line)
    assert list(load(folder / report["trace"]).recorded.calls["zero_grad"]) == [f"train.py:{number} <module>"]


NESTED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 256)), nn.LayerNorm(256)])
            for _ in range(6)
        )
    def forward(self, x):
        for feed, norm in self.layers:
            x = norm(x + feed(x))
        return x

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    net(torch.randn(2048, 256)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_modules_in_lists_of_lists_are_recomputed(tmp_path):
    """A ModuleList is never called, so recomputing it would change nothing: "layers.0" has no forward of its own."""
    report = fix(NESTED, "100MiB", tmp_path)
    (step,) = [step for step in report["steps"] if step["is_chosen"]]
    assert (step["name"], report["actual"]["fits"]) == ("checkpoint", True)
    assert all(path.count(".") == 2 for path in step["where"] if path.startswith("layers."))
    assert report["predicted"]["allocated_bytes"] == pytest.approx(report["actual"]["allocated_bytes"], rel=0.01)


def test_a_remedy_that_the_models_refuse_is_undone(tmp_path):
    """The model takes a list of tensors, so it cannot run on parts of a batch; the recording does not show that."""
    text = NESTED.replace("for feed", "x = x[0]\n        for feed").replace(
        "torch.randn(2048, 256)", "[torch.randn(2048, 256)]"
    )
    report = fix(text, "100MiB", tmp_path, "--unsafe", "--without", "checkpoint", "--without", "offload-saved")
    (step,) = [step for step in report["steps"] if step["name"] == "micro-batches"]
    assert (step["is_chosen"], step["is_undone"]) == (False, True)
    assert report["refused"]
