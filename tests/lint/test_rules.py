"""Each lint rule reports the lines with its pattern, and ignores similar code."""

from __future__ import annotations

import textwrap

import pytest

from memdiag.lint.files import check_text

LOOP = """
import torch
import torch.distributed as dist
def train(model, loader, optimizer, device):
    total = 0.0
    losses = []
    for step, batch in enumerate(loader):
        loss = model(batch.to(device, non_blocking=True))
        loss.backward()
        optimizer.step()
        {line}
"""
FORWARD = """
import torch
import torch.nn.functional as F
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x, q, k, v):
        {line}
"""


def codes(text: str, **places: str) -> list[str]:
    filled = textwrap.dedent(text).replace(
        "{line}", textwrap.indent(textwrap.dedent(places.get("line", "")), " " * 8).strip()
    )
    return [finding.code for finding in check_text(filled, "train.py")[0]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torch.cuda.empty_cache()", ["MD804"]),
        ("torch.npu.empty_cache()", ["MD804"]),
        ("if step % 100 == 0: torch.cuda.empty_cache()", []),
        ("losses.append(loss.item())", ["MD807"]),
        ("if step % 100 == 0:\n    print(loss.item())", []),
        ("if step % 100:\n    continue\nprint(loss.item())", []),
        ("print(loss.detach().cpu().item())", ["MD807"]),
        ("torch.cuda.synchronize()", ["MD807"]),
        ("total += loss", ["MD812"]),
        ("losses.append(loss)", ["MD812"]),
        ("total += loss.detach()", []),
        ("values = []\nvalues.append(loss)", []),
        ("labels = batch['labels'].to(device)", ["MD805"]),
        ("labels = batch['labels'].to(device, non_blocking=True)", []),
        ("parts = {name: value.cuda() for name, value in batch.items()}", ["MD805"]),
        ("model = model.to(torch.bfloat16)", []),
        ("h = dist.all_reduce(loss, async_op=True)\nh.wait()", ["MD803"]),
        ("h = dist.all_reduce(loss, async_op=True)\nmodel(batch)\nh.wait()", []),
        ("dist.all_reduce(loss, async_op=True)", ["MD803"]),
        ("for p in model.parameters():\n    dist.all_reduce(p.grad)", ["MD803"]),
        ("for p in model.parameters():\n    dist.all_reduce(p.grad, async_op=True).wait()", ["MD803"]),
    ],
)
def test_in_a_training_loop(line, expected):
    assert codes(LOOP, line=line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("n = x.max().item()", ["MD806"]),
        ("y = x.cpu().numpy()", ["MD806"]),
        ("sizes = list(x.shape)", []),
        ("if torch.rand(1).item() < 0.5: return x", []),
        ("n = torch.tensor([1, 2]).tolist()", []),
        ("raise ValueError(f'{x.max().item()}')", []),
        ("return x * torch.sigmoid(x)", ["MD808"]),
        ("return q * torch.sigmoid(x)", []),
        ("return F.silu(x)", []),
        ("return x * 0.5 * (1.0 + torch.erf(x / 1.41421))", ["MD808"]),
        ("return torch.log(F.softmax(x, dim=-1))", ["MD808"]),
        ("s = x.pow(2).mean(-1, keepdim=True)\nreturn x * torch.rsqrt(s + 1e-6)", ["MD808"]),
        ("w = torch.softmax(q @ k.transpose(-1, -2), -1)\nreturn w @ v", ["MD808"]),
        (
            (
                "w = F.softmax(torch.matmul(q, k.transpose(-1, -2)) / 8, dim=-1)\nw = F.dropout(w)\nreturn "
                "torch.matmul(w, v)"
            ),
            ["MD808"],
        ),
        ("w = torch.softmax(x, -1)\nreturn w @ v", []),
        ("return torch.cumsum(x, dim=1)", ["MD809"]),
        ("return torch.cumsum(x > 0, dim=1)", []),
        ("return torch.ones(4, 4).cumsum(0)", []),
        ("return torch.index_select(self.weight, 0, x)", ["MD802"]),
        ("return torch.index_select(x, 0, q)", []),
        ("return F.one_hot(x, 10).float() @ self.weight", ["MD802"]),
        ("x.record_stream(torch.cuda.current_stream())", ["MD811"]),
    ],
)
def test_in_a_forward(line, expected):
    assert codes(FORWARD, line=line) == expected


def test_a_method_that_forward_calls_is_part_of_the_network_and_another_is_not():
    text = """
    import torch
    class Net(torch.nn.Module):
        def forward(self, x):
            return self.inner(x)
        def inner(self, x):
            return x.sum().item()
        def report(self, x):
            return x.sum().item()
    """
    found, _ = check_text(textwrap.dedent(text), "net.py")
    assert [(finding.code, finding.evidence[0].where) for finding in found] == [("MD806", "net.py:7")]


def test_a_value_under_a_condition_in_the_network_is_only_worth_knowing():
    text = FORWARD.replace("{line}", "if self.debug:\n            print(x.max().item())")
    assert [finding.severity for finding in check_text(text, "net.py")[0]] == ["info"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "parts = [torch.empty_like(x) for _ in range(8)]\ndist.all_gather(parts, x)\nreturn torch.cat(parts)",
            ["MD801"],
        ),
        (
            (
                "parts = [torch.empty_like(x) for _ in range(8)]\ndist.all_gather(parts, x)\nreturn torch.cat(parts, "
                "dim=-1)"
            ),
            [],
        ),
        (
            (
                "parts = [torch.empty_like(x) for _ in range(8)]\ndist.all_gather(parts, x)\nparts[0] = x\nreturn "
                "torch.cat(parts)"
            ),
            [],
        ),
        ("parts = [torch.empty_like(x) for _ in range(8)]\ndist.all_gather(parts, x)\nreturn parts", []),
        ("dist.reduce_scatter(y, list(x.chunk(8)))", ["MD801"]),
        ("dist.reduce_scatter(y, list(torch.split(x, sizes, dim=0)))", []),
        ("dist.all_gather_into_tensor(y, x)", []),
    ],
)
def test_gathering(body, expected):
    text = "import torch\nimport torch.distributed as dist\ndef gather(x, y):\n" + textwrap.indent(body, "    ") + "\n"
    assert codes(text) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("DDP(model)", ["MD810"]),
        ("DDP(model, gradient_as_bucket_view=True)", []),
        ("DDP(model, **options)", []),
        ("DDP(model, gradient_as_bucket_view=True, bucket_cap_mb=500)", ["MD810"]),
    ],
)
def test_buckets(call, expected):
    assert (
        codes(f"import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\nmodel = {call}\n")
        == expected
    )


def test_a_loader_that_does_not_pin_makes_copies_wait():
    text = """
    import torch
    from torch.utils.data import DataLoader
    loader = DataLoader(data)
    def copy(batch, device):
        return batch.to(device, non_blocking=True)
    """
    assert codes(text) == ["MD805"]
    assert codes(text.replace("DataLoader(data)", "DataLoader(data, pin_memory=True)")) == []


@pytest.mark.parametrize(
    ("comment", "left"),
    [("# memdiag: ignore[MD807] known", 0), ("# memdiag: ignore", 0), ("# noqa", 1), ("# memdiag: ignore[MD804]", 1)],
)
def test_a_comment_silences_its_line(comment, left):
    found, silenced = check_text(LOOP.replace("{line}", f"x = loss.item()  {comment}"), "train.py")
    assert (len(found), silenced) == (left, 1 - left)


def test_code_that_does_not_use_torch_is_not_looked_at():
    assert codes("def forward(x):\n    return x.item()\n") == []


STEP = """
import torch
import torch.distributed as dist
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x, y):
        {line}
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("return self.weight[mask]", ["MD802"]),
        ("return self.weight[y]", ["MD802"]),
        ("return self.embed.weight[y > 0]", ["MD802"]),
        ("return self.weight[0]", []),
        ("return self.weight[:, :4]", []),
        ("return [self.weight[i] for i in range(3)]", []),
        ("return self.weight[expert]", []),  # a whole matrix
        ("self.weight[y] = 0", []),
        ("sizes = y.to('cpu')", ["MD806"]),
        ("sizes = y.to(torch.device('cpu'))", ["MD806"]),
        ("sizes = y.to(device='cpu', non_blocking=True)", []),
        ("y = y.to(x.device)", []),
        ("self.encoder.to('cpu')", []),  # a module that moves
        ("dist.all_reduce(x)\nz = torch.relu(y)\nreturn x + z", ["MD803"]),
        ("dist.all_reduce(x)\nz = torch.relu(x)\nreturn z", []),
        ("dist.all_reduce(x)\nreturn x", []),
        ("dist.all_reduce(x)\nn = dist.get_world_size()\nreturn x / n", []),
        ("handle = dist.all_reduce(x, async_op=True)\nz = torch.relu(y)\nhandle.wait()\nreturn x + z", []),
    ],
)
def test_habits_in_the_network_are_found(line, expected):
    assert codes(STEP, line=line) == expected


def test_a_running_sum_in_a_function_outside_of_modules_is_found():
    assert codes("import torch\ndef scan(x):\n    return torch.cumsum(x, dim=-1)\n") == ["MD809"]
    assert codes("import torch\ndef scan(x):\n    return x.cumsum(dim=-1)\n") == ["MD809"]
    assert codes("import torch\ndef scan(mask):\n    return torch.cumsum(mask, dim=-1)\n") == []
    assert codes("import torch\ndef table(frame):\n    return frame.cumsum(0)\n") == []


@pytest.mark.parametrize(("size", "expected"), [(1, ["MD810"]), (5, ["MD810"]), (25, []), (400, ["MD810"])])
def test_buckets_that_are_tiny_or_very_large_are_found(size, expected):
    call = f"torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb={size})"
    assert codes(f"import torch\ndef wrap(model):\n    return {call}\n") == expected


def test_code_for_ascend_is_told_of_its_own_variable():
    text = "import torch\n{more}\ndef send(x, stream):\n    x.record_stream(stream)\n"
    for more, variable in (("import torch_npu", "MULTI_STREAM_MEMORY_REUSE"), ("", "TORCH_NCCL_AVOID_RECORD_STREAMS")):
        (finding,), _ = check_text(text.format(more=more), "send.py")
        assert variable in finding.fixes[0].title
