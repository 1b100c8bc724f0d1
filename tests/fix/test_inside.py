"""The parts of remedies that run in the program: same results, less memory."""

import ast
import os
import subprocess

import pytest

from memdiag.fix.trial import INSIDE
from tests.forking import python_with_torch, run_python

FILES = sorted(path for path in INSIDE.glob("*.py") if path.stem != "__init__")
MODEL = """
import torch
from torch import nn
torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(16, 64), nn.Linear(64, 16), nn.Dropout(0.2)
    def forward(self, x):
        return x + self.drop(self.down(torch.relu(self.up(x))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(16, 50)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

net = Net()
optimizer = torch.optim.AdamW(net.parameters())
def step():
    x, y = torch.randn(40, 16), torch.randint(0, 50, (40,))
    y[:3] = -100
    loss = nn.functional.cross_entropy(net(x), y, label_smoothing=0.1)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    return loss.item()
"""


def losses(before, after=""):
    """The losses of five steps, and the output of some lines after them."""
    program = f"import sys\nsys.path.insert(0, {str(INSIDE)!r})\n{before}\n{MODEL}\nprint([step() for _ in range(5)])\n"
    done = run_python(program + after)
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    return ast.literal_eval(first), rest


def test_checkpointed_modules_give_the_same_losses_bit_for_bit():
    plain, _ = losses("")
    again, rest = losses(
        "import checkpoint_modules\ncheckpoint_modules.checkpoint_modules(['layers.0', 'layers.2'])",
        "print([layer in checkpoint_modules._PARTS for layer in net.layers])",
    )
    assert again == plain
    assert rest == ["[True, False, True]"]


def test_a_checkpointed_model_can_be_copied_and_saved():
    """A copy, as for an average of weights, must not compute with the modules of the original."""
    _, rest = losses(
        "from checkpoint_modules import checkpoint_modules\ncheckpoint_modules(['layers.0', 'layers.2'])",
        "import copy, io\n"
        "other, file, x = copy.deepcopy(net), io.BytesIO(), torch.ones(1, 16)\n"
        "torch.save(net, file)\n"
        "for parameter in other.parameters():\n"
        "    parameter.data.zero_()\n"
        "loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=False)\n"
        "net.eval(), loaded.eval(), other.eval()\n"
        "print(other(x).abs().sum().item(), torch.equal(loaded(x), net(x)))",
    )
    assert rest == ["0.0 True"]


def test_recomputing_a_batch_norm_leaves_its_statistics_as_without():
    """A second forward would update the running mean a second time."""
    model = (
        "net = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh()) for _ in range(3)))\n"
        "for _ in range(3):\n"
        "    net(torch.randn(8, 4)).square().sum().backward()\n"
        "print(net[1][1].running_mean.tolist(), net[1][1].num_batches_tracked.item(), net[1][1].momentum)\n"
    )
    enable = "import checkpoint_modules\ncheckpoint_modules.checkpoint_modules(['1'])\n"
    _, plain = losses("", f"torch.manual_seed(1)\n{model}")
    _, again = losses("", f"{enable}torch.manual_seed(1)\n{model}print(net[1] in checkpoint_modules._PARTS)")
    assert again == [*plain, "True"]
    assert plain[0].endswith(" 3 0.1")


def test_offloaded_tensors_are_copied_once_and_come_back_for_backward():
    """Each block saves its normalised input, a mask of dropout and an activation that two operators share."""
    call = "from offload_saved import offload_saved\noffload_saved(['layers.0', 'layers.2'], 1)\n"
    watch = (
        "import offload_saved\n"
        "made = []\n"
        "class Copy(offload_saved._Copy):\n"
        "    def __init__(self, tensor):\n"
        "        super().__init__(tensor)\n"
        "        made.append((len(made) < 3, tensor.numel(), self))\n"
        "offload_saved._Copy = Copy\n"
        "step()\n"
        "print([(size, copy.on_host is None) for _, size, copy in made])\n"
    )
    plain, _ = losses("")
    moved, rest = losses(call, watch)
    assert moved == plain
    # the activation, which relu and the second matrix multiplication save, and the mask of dropout; not the input
    assert ast.literal_eval(rest[0]) == [(40 * 64, True), (40 * 16, True)] * 2


def test_a_loss_in_parts_differs_by_rounding_only():
    plain, _ = losses("")
    parts, _ = losses("from chunked_loss import chunked_loss\nchunked_loss(7 * 50 * 4)")
    assert parts == pytest.approx(plain, rel=1e-6)


def test_a_second_backward_through_a_loss_in_parts_is_an_error():
    _, rest = losses(
        "from chunked_loss import chunked_loss\nchunked_loss(50 * 4)",
        "x = torch.randn(9, 50, requires_grad=True)\n"
        "loss = nn.functional.cross_entropy(x, torch.zeros(9, dtype=torch.long))\n"
        "loss.backward(retain_graph=True)\n"
        "try:\n    loss.backward()\nexcept RuntimeError as error:\n    print(error)\n",
    )
    assert rest == ["chunked_loss: backward() through the same loss a second time is not supported"]


def test_gradients_are_freed_and_losses_stay_the_same():
    plain, _ = losses("")
    freed, rest = losses(
        "from free_gradients import free_gradients\nfree_gradients()",
        "print({parameter.grad for parameter in net.parameters()})",
    )
    assert (freed, rest) == (plain, ["{None}"])


@pytest.mark.parametrize(("kind", "flags"), [("one_by_one", "False None"), ("fused", "False True")])
def test_optimizers_step_without_copies(kind, flags):
    plain, _ = losses("")
    lean, rest = losses(
        f"from lean_optimizer import lean_optimizer\nlean_optimizer({kind!r})",
        "print(optimizer.param_groups[0]['foreach'], optimizer.param_groups[0]['fused'])",
    )
    assert lean == pytest.approx(plain, rel=1e-5)
    assert rest == [flags]


def test_no_autograd_below_the_given_lines_only(tmp_path):
    torch = pytest.importorskip("torch")
    assert torch
    script = tmp_path / "evaluate.py"
    script.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(INSIDE)!r})\n"
        "import torch\n"
        "from no_grad_at import no_grad_at\n"
        "net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))\n"
        "def call():\n"
        "    return net(torch.ones(2))\n"
        f"no_grad_at([[[__file__, 9], [{os.path.relpath(script, INSIDE)!r}, 7]]])\n"
        "print(call().requires_grad)\n"
        "print(call().requires_grad)\n"
        "print(torch.is_grad_enabled())\n"
    )
    done = subprocess.run([python_with_torch(), script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]


def test_checkpoints_are_loaded_to_the_host(tmp_path):
    _, rest = losses(
        "from load_to_host import load_to_host\nload_to_host()",
        f"torch.save(net.state_dict(), {str(tmp_path / 'x.pt')!r})\n"
        f"print(torch.load({str(tmp_path / 'x.pt')!r}, map_location='meta')['head.weight'].device)\n",
    )
    assert rest == ["cpu"]


def test_the_process_may_use_the_whole_device():
    _, rest = losses(
        "",
        "seen = []\n"
        "torch.cuda.set_per_process_memory_fraction = lambda fraction, device=None: seen.append((fraction, device))\n"
        "from memory_fraction import memory_fraction\n"
        "memory_fraction()\n"
        "torch.cuda.set_per_process_memory_fraction(0.25, 1)\n"
        "print(seen)\n",
    )
    assert rest == ["[(1.0, 1)]"]


def test_graphs_without_a_pool_share_one():
    _, rest = losses(
        "",
        "seen = []\n"
        "class Graph:\n"
        "    def capture_begin(self, pool=None, capture_error_mode='global'):\n"
        "        seen.append((pool, capture_error_mode))\n"
        "torch.cuda.CUDAGraph = Graph\n"
        "torch.cuda.graph_pool_handle = lambda: (0, 7)\n"
        "from shared_graph_pool import shared_graph_pool\n"
        "shared_graph_pool()\n"
        "Graph().capture_begin()\n"
        "Graph().capture_begin(capture_error_mode='relaxed')\n"
        "Graph().capture_begin(pool=(0, 3))\n"
        "print(seen)\n",
    )
    assert rest == ["[((0, 7), 'global'), ((0, 7), 'relaxed'), ((0, 3), 'global')]"]


TRAINED = """
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
seen = []
net[1].register_forward_hook(lambda module, args, output: seen.append(len(output)))
optimizer = torch.optim.AdamW(net.parameters())
losses = []
for _ in range(4):
    loss = nn.functional.cross_entropy(net(torch.randn(7, 4)), torch.arange(7) % 3)
    loss.backward()
    losses.append(loss.item())
    optimizer.step()
    optimizer.zero_grad()
print(losses)
print(seen[:6])
"""


def test_parts_of_a_batch_give_the_same_losses_within_rounding():
    _, plain = losses("", TRAINED)
    _, again = losses("from micro_batches import micro_batches\nmicro_batches(3)", TRAINED)
    assert ast.literal_eval(again[0]) == pytest.approx(ast.literal_eval(plain[0]), rel=1e-5)
    assert (plain[1], again[1]) == ("[7, 7, 7, 7]", "[3, 3, 1, 1, 3, 3]")  # forward, then recomputed in backward


OUTPUTS = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
    def forward(self, x, extra=None):
        return {"loss": self.linear(x).square().mean(), "rows": self.linear(x), "name": "model", "none": None}

plain, model = nn.Linear(2, 2), Model()
found = model(torch.ones(5, 2))
print(found["loss"].dim(), tuple(found["rows"].shape), found["name"], found["none"])
torch.manual_seed(0)
whole = nn.TransformerEncoderLayer(4, 1, 4)
print(tuple(whole(torch.ones(6, 2, 4)).shape))
print(refused)
"""


def test_models_that_cannot_run_on_parts_stay_as_they_are():
    call = "from micro_batches import micro_batches\nrefused = []\n"
    call += "micro_batches(2, lambda *words: refused.append(words))"
    _, found = losses(call, OUTPUTS)
    assert found == ["0 (5, 2) model None", "(6, 2, 4)", "[('batch', 'TransformerEncoderLayer')]"]


CAST = """
net = nn.Linear(8, 32).bfloat16()
x = torch.randn(16, 8).bfloat16()
logits = net(x)
wide = logits.float()
wide.retain_grad()
nn.functional.cross_entropy(wide, torch.arange(16)).backward()
print(wide.dtype, wide.grad.dtype, logits.float().dtype, x.to("cpu").dtype)
"""


def test_logits_keep_their_type_at_the_given_lines_only(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(INSIDE)!r})\nimport torch\nfrom torch import nn\n"
        "from logits_dtype import logits_dtype\n"
        f"logits_dtype([[[__file__, 10]]])\n{CAST.lstrip()}"
    )
    done = subprocess.run([python_with_torch(), script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["torch.bfloat16", "torch.bfloat16", "torch.float32", "torch.bfloat16"]


def test_remedies_of_the_cache_do_nothing_without_a_device():
    plain, _ = losses("")
    again, rest = losses(
        "from release_leftovers import release_leftovers\nfrom mempool_scopes import mempool_scopes\n"
        "release_leftovers()\nmempool_scopes(['layers.0'], False)",
        "import gc, weakref\nmodel = weakref.ref(net)\ndel net\ngc.collect()\nprint(model())",
    )
    assert again == plain
    assert rest == ["None"]  # they keep no model alive


SHARDED = """
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
fully_shard(net, mesh=dist.init_device_mesh("cpu", (1,)))
print([path for path, part in net.named_modules() if isinstance(part, FSDPModule)])
print([step() for _ in range(5)])
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("tie", "expected"), [("", ["", "layers.0", "layers.2"]), ("net.layers[0].up = net.layers[1].up", [""])]
)
def test_blocks_are_sharded_before_the_model(tie, expected):
    call = "from fsdp_units import fsdp_units\nfsdp_units(['layers.0', 'layers.2'])\n"
    plain, rest = losses("", tie + SHARDED)
    again, found = losses(call, tie + SHARDED)
    assert plain == again
    assert ast.literal_eval(found[0]) == expected
    assert ast.literal_eval(found[1]) == pytest.approx(ast.literal_eval(rest[1]), rel=1e-6)


REPLICATED = """
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
net = nn.parallel.DistributedDataParallel(net, None, None, 0)
print(net.gradient_as_bucket_view)
print([step() for _ in range(5)])
dist.destroy_process_group()
"""


def test_gradients_are_views_of_buckets_and_losses_stay_the_same():
    _, plain = losses("", REPLICATED)
    _, again = losses("from gradient_bucket_view import gradient_bucket_view\ngradient_bucket_view()", REPLICATED)
    assert (plain[0], again[0]) == ("False", "True")
    assert again[1] == plain[1]


def test_no_two_parts_define_the_same_name():
    """memdiag_fix.py contains several of them."""
    names = [
        name
        for path in FILES
        for node in ast.parse(path.read_text()).body
        for name in (
            [node.name]
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
            else [target.id for target in getattr(node, "targets", ())]
        )
    ]
    assert len(names) == len(set(names))


ALLOWED = {
    "torch",
    "contextlib",
    "functools",
    "gc",
    "importlib",
    "inspect",
    "os",
    "pathlib",
    "sys",
    "threading",
    "time",
}
ALLOWED |= {"weakref"}


def test_every_part_has_a_function_of_its_own_name_and_imports_torch_only():
    for path in FILES:
        body = ast.parse(path.read_text()).body
        assert path.stem in {node.name for node in body if isinstance(node, ast.FunctionDef)}, path
        for node in body:
            found = (
                [node.module]
                if isinstance(node, ast.ImportFrom)
                else [each.name for each in getattr(node, "names", ())]
            )
            assert all(name.split(".")[0] in ALLOWED for name in found), path
