"""Inference engines on a device whose kernels compute nothing: generation ends, FlashInfer compiles nothing."""

import os
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
    engines.count_sampled(module)
    assert not hasattr(getattr(module, name), "sample")


@pytest.fixture
def jit():
    """Returns a module like flashinfer.jit.core."""
    module = ModuleType("core")

    class JitSpec:
        def __init__(self, name, loaded=None):
            self.name, self.loaded = name, loaded

        def try_load(self):
            return self.loaded

        def build_and_load(self):
            raise RuntimeError("Ninja build failed")

    module.JitSpec = JitSpec
    return module


def test_kernels_of_flashinfer_are_not_compiled_and_do_nothing(jit, monkeypatch, capsys):
    engines.compile_nothing(jit)
    kernels = jit.JitSpec("sampling").build_and_load()
    monkeypatch.delenv("MEMDIAG_PHANTOM_TRACE", raising=False)
    assert kernels.softmax(1, out=2) is None
    assert set(kernels.plan(1)) == {0}
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("MEMDIAG_PHANTOM_TRACE", "1")
    kernels.softmax(1)
    assert "sampling.softmax" in capsys.readouterr().err
    assert not hasattr(kernels, "__wrapped__")


def test_compiled_kernels_of_flashinfer_are_loaded_as_they_are(jit):
    engines.compile_nothing(jit)
    assert jit.JitSpec("sampling", loaded="library").build_and_load() == "library"


def test_vllm_samples_without_flashinfer_if_it_is_not_installed(monkeypatch):
    monkeypatch.delenv("VLLM_USE_FLASHINFER_SAMPLER", raising=False)
    monkeypatch.setattr(engines, "find_spec", lambda _: object())
    engines.choose_sampler()
    assert "VLLM_USE_FLASHINFER_SAMPLER" not in os.environ
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    engines.choose_sampler()
    assert os.environ.pop("VLLM_USE_FLASHINFER_SAMPLER") == "0"
    monkeypatch.setenv("VLLM_USE_FLASHINFER_SAMPLER", "1")
    engines.choose_sampler()
    assert os.environ["VLLM_USE_FLASHINFER_SAMPLER"] == "1"


@pytest.mark.parametrize("before", [[], ["/site-packages/cv2/../../lib64"]])
def test_vllm_finds_the_simulated_runtime_before_that_of_the_wheel(tmp_path, monkeypatch, before):
    (tmp_path / "libcudart.so.13").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join([*before, str(tmp_path), "/usr/lib"]))
    module = ModuleType("cuda_wrapper")
    engines.prefer_simulated(module)
    assert not hasattr(module, "find_loaded_library")
    module.find_loaded_library = lambda name: f"/wheel/{name}.so"
    engines.prefer_simulated(module)
    assert module.find_loaded_library("libcudart") == str(tmp_path / "libcudart.so.13")
    assert module.find_loaded_library("cumem_allocator") == "/wheel/cumem_allocator.so"


class Shape:
    """A tensor of token numbers, of which only the shape counts."""

    def __init__(self, length):
        self.shape = (1, length)


@pytest.fixture
def generation():
    """Returns a module like transformers.generation.utils, whose device always says that a sequence has not ended."""

    class StoppingCriteriaList(list):
        @property
        def max_length(self):
            return next(iter(self), None)

        def __call__(self, _input_ids, _scores, **_named):
            return "read on the device"

    class GenerationMixin:
        def _has_unfinished_sequences(self, this_peer_finished, _synced_gpus, **_named):
            return not this_peer_finished

        def generate(self, criteria, length, at_most=50):
            has_ended = False
            while self._has_unfinished_sequences(has_ended, False, device="cuda") and length < at_most:
                length += 1
                assert criteria(Shape(length), ()) == "read on the device"
            return length

    module = ModuleType("transformers.generation.utils")
    module.GenerationMixin, module.StoppingCriteriaList = GenerationMixin, StoppingCriteriaList
    return module


def test_the_maximum_length_ends_each_generation(generation):
    engines.end_generation(generation)
    model = generation.GenerationMixin()
    assert model.generate(generation.StoppingCriteriaList([12]), 4) == 12
    assert model.generate(generation.StoppingCriteriaList([12]), 11) == 12
    assert model.generate(generation.StoppingCriteriaList(), 4) == 50  # without a maximum length, as before


@pytest.mark.parametrize("missing", ["GenerationMixin", "StoppingCriteriaList"])
def test_a_version_without_these_classes_is_left_as_it_is(generation, missing):
    delattr(generation, missing)
    engines.end_generation(generation)


GENERATE = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

sizes = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2, vocab_size=100)
model = LlamaForCausalLM(LlamaConfig(**sizes)).to("cuda", torch.bfloat16).eval()
for _ in range(2):
    print(tuple(model.generate(torch.ones(2, 5, dtype=torch.long, device="cuda"), max_new_tokens=8).shape))
"""


@needs_torch
def test_generate_of_transformers_ends(tmp_path):
    (tmp_path / "program.py").write_text(GENERATE)
    done = run(["program.py"], tmp_path)
    if "No module named 'transformers'" in done.stderr:
        pytest.skip("transformers is not installed next to the CUDA build of torch")
    assert done.stdout.splitlines()[-2:] == ["(2, 13)", "(2, 13)"], done.stderr
