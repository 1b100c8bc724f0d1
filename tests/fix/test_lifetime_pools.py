"""Lifetime-segregated pools of MindSpeed in memdiag fix: the proposal, and the switch in the program."""

import subprocess
from dataclasses import replace

import pytest

from memdiag.fix.base import Proposal, Refusal
from memdiag.fix.case import Given
from memdiag.fix.remedies import lifetime_pools
from memdiag.fix.run import case_of
from memdiag.fix.structure import refusals_in
from memdiag.fix.trial import INSIDE
from tests.fix.mindspeed_stand_in import make
from tests.forking import python_with_torch

FACTS = frozenset({"library mindspeed", "switch memory-fragmentation"})
PROGRAM = """
import itertools, os, sys, types
sys.path[:0] = [{inside!r}, {folder!r}]
sys.argv[1:] = {words!r}
import torch
used = itertools.chain((100, 300), itertools.repeat(200))  # how often it is read depends on the time
said = []
torch.npu = types.SimpleNamespace(
    set_per_process_memory_fraction=lambda share: said.append(share),
    mem_get_info=lambda: (1000 - next(used), 1000),
    empty_cache=lambda: None,
)
from lifetime_pools import lifetime_pools
refused, measured = [], []
lifetime_pools(0.9, lambda *why: refused.append(why), measured.append)
from mindspeed.arguments import arguments
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters())
if not refused:
    for _ in range(2):
        net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.step()
print([arguments().memory_fragmentation, os.environ.get("MEMORY_FRAGMENTATION"), said, refused, measured])
"""


@pytest.fixture(scope="module")
def npu(root):
    file = root / "tests" / "goldens" / "npu-2.13.0-train" / "snapshot.pickle"
    return replace(case_of(file, 4 << 30), facts=FACTS)


def test_a_mindspeed_with_the_switch_gets_it_with_room_for_hccl(npu):
    (found,) = lifetime_pools.propose(npu)
    assert isinstance(found, Proposal)
    assert found.by_hand.startswith("--memory-fragmentation")
    assert found.settings == {"fraction": 0.9}  # two buffers of 200 MB for one communicator
    assert npu.peaks_given(Given(pools=found.pools)).fits


def test_the_pools_exclude_expandable_segments(npu):
    (found,) = lifetime_pools.propose(npu.after(Given(conf="expandable_segments:True")))
    assert isinstance(found, Refusal)
    assert "expandable_segments:False" in found.instead


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["--layers", "3"], "[True, '1', [0.9], [], [100, 300]]"),
        (["--smart-swap"], "[False, None, [], [('pools', '--smart-swap')], []]"),
    ],
)
def test_the_program_gets_the_switch_unless_mindspeed_forbids_it(tmp_path, words, printed):
    pytest.importorskip("torch")
    make(tmp_path, "none")
    program = PROGRAM.format(inside=str(INSIDE), folder=str(tmp_path), words=words)
    done = subprocess.run([python_with_torch(), "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == printed, done.stderr


def test_a_forbidden_option_is_reported(tmp_path):
    (tmp_path / "0-1.txt").write_text("lifetime_pools\tpools\t--smart-swap\n")
    (found,) = refusals_in(tmp_path)
    assert "--smart-swap" in str(found.reason)
