"""vLLM's model runner reads back how many tokens it sampled: on a simulated device the host writes the counts."""

from types import ModuleType

import pytest

from memdiag.phantom.boot import engines
from tests.phantom.cuda_stand_in import needs_torch, run

RUNNER = '''
"""As in vLLM: a kernel computes the counts, so on a simulated device they are synthetic."""
import torch

class GPUModelRunner:
    def sample(self, hidden_states, input_batch, grammar_output=None):
        sampled = torch.ones(3, dtype=torch.int32, device="cuda") * 1
        return "output", sampled, torch.empty_like(sampled)
'''
PROGRAM = """
import types
import numpy as np
import torch
from vllm.v1.worker.gpu.model_runner import GPUModelRunner

batch = types.SimpleNamespace(
    num_computed_tokens_np=np.array([0, 8, 30], dtype=np.int32),
    num_scheduled_tokens=np.array([8, 4, 1], dtype=np.int32),
    prefill_len_np=np.array([8, 16, 20], dtype=np.int32),
    cu_num_logits_np=np.array([0, 1, 2, 5], dtype=np.int32),
)
torch.zeros(1, device="cuda")
before = torch.cuda.memory_stats()["allocation.all.allocated"]
output, sampled, rejected = GPUModelRunner().sample(None, batch)
requests = torch.cuda.memory_stats()["allocation.all.allocated"] - before
print(output, sampled.tolist(), rejected.tolist(), requests)
"""


@needs_torch
def test_requests_whose_prompt_was_read_get_one_token_each_and_nothing_is_allocated_for_it(tmp_path):
    folder = tmp_path.joinpath("vllm", "v1", "worker", "gpu")
    folder.mkdir(parents=True)
    (folder / "model_runner.py").write_text(RUNNER)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run(["program.py"], tmp_path)
    assert done.stdout == "output [1, 0, 1] [0, 0, 2] 3\n", done.stderr  # 3: the tensors of the runner


@pytest.mark.parametrize("name", ["GPUModelRunner", "Other"])
def test_a_runner_without_that_function_is_left_as_it_is(name):
    module = ModuleType("model_runner")
    setattr(module, name, type(name, (), {}))
    engines.begin(module)
    assert not hasattr(getattr(module, name), "sample")
