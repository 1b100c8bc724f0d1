"""Adapts inference engines to a device whose kernels compute nothing.

* vLLM's second model runner (0.2x and newer) counts the sampled tokens of each request with a Triton kernel and reads
  the counts back. Here the kernel computes nothing, so every step would add 0 tokens and no request would ever end. The
  counts depend only on numbers that the host has too, so the host writes them.
* vLLM calls the CUDA runtime directly, for its sleep mode and its own all-reduce, and looks for it among the mapped
  libraries. PyTorch may have mapped the one of its wheel as well, which knows nothing of the simulated device.
* ``generate`` of transformers asks the device in each step whether all sequences have ended. Zeros say no for ever, so
  the maximum length ends it, which the host knows.
* FlashInfer compiles its kernels with nvcc on first use. Kernels compute nothing here, and their callers allocate all
  tensors, so modules that do nothing take the place of those that would have to be compiled.
"""

from __future__ import annotations

import functools
import glob
import os
import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from typing import Any

RUNNER = "vllm.v1.worker.gpu.model_runner"
RUNTIME = "vllm.distributed.device_communicators.cuda_wrapper"
KERNELS = "flashinfer.jit.core"
GENERATION = "transformers.generation.utils"
_PLAN_LENGTH = 16


def choose_sampler() -> None:
    """Lets vLLM sample with PyTorch's operators if FlashInfer, its default, is not installed."""
    if find_spec("flashinfer") is None:
        os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")


def count_sampled(module: Any) -> None:
    """Lets the model runner of ``module`` (RUNNER) know how many tokens it sampled."""
    runner = getattr(module, "GPUModelRunner", None)
    if runner is None or not hasattr(runner, "sample"):
        return
    original = runner.sample

    @functools.wraps(original)
    def sample(self: Any, hidden_states: Any, input_batch: Any, *rest: Any, **named: Any) -> Any:
        result = original(self, hidden_states, input_batch, *rest, **named)
        _, num_sampled, num_rejected = result
        _write_counts(input_batch, num_sampled, num_rejected)
        return result

    runner.sample = sample


def _write_counts(batch: Any, num_sampled: Any, num_rejected: Any) -> None:
    """Writes what get_num_sampled_and_rejected computes: one token for each request whose prompt has been read.

    Of a request with draft tokens, all drafts count as rejected. The counts go to existing tensors, so nothing is
    allocated on the device.
    """
    numpy, torch = import_module("numpy"), sys.modules["torch"]
    lengths = batch.num_computed_tokens_np + batch.num_scheduled_tokens
    has_read_prompt = lengths >= batch.prefill_len_np
    num_logits = numpy.diff(batch.cu_num_logits_np)
    for counts, tensor in (
        (has_read_prompt, num_sampled),
        (numpy.where(has_read_prompt, num_logits - 1, 0), num_rejected),
    ):
        if tensor is not None and tuple(tensor.shape) == counts.shape:
            tensor.copy_(torch.from_numpy(counts.astype(numpy.int32)).to(tensor.dtype))


def prefer_simulated(module: Any) -> None:
    """Lets ``module`` (RUNTIME) use the simulated libraries, the first of their names on the library path.

    Their folder need not be the first one: OpenCV puts its own before it.
    """
    original = getattr(module, "find_loaded_library", None)
    if original is None:
        return

    def find_loaded_library(name: str) -> Any:
        for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
            simulated = sorted(glob.glob(os.path.join(glob.escape(folder), name + ".so*")))
            if simulated:
                return simulated[0]
        return original(name)

    module.find_loaded_library = find_loaded_library


def end_generation(module: Any) -> None:
    """Lets ``generate`` of ``module`` (GENERATION) end at its maximum length, if nothing ends it earlier."""
    models: Any = getattr(module, "GenerationMixin", None)
    criteria: Any = getattr(module, "StoppingCriteriaList", None)
    if not hasattr(models, "_has_unfinished_sequences") or not hasattr(criteria, "max_length"):
        return
    original, judge = models._has_unfinished_sequences, criteria.__call__
    latest = threading.local()

    @functools.wraps(judge)
    def __call__(self: Any, input_ids: Any, scores: Any, **named: Any) -> Any:  # noqa: N807 - replaces that method
        longest = self.max_length
        latest.is_whole = longest is not None and input_ids.shape[1] >= longest
        return judge(self, input_ids, scores, **named)

    @functools.wraps(original)
    def _has_unfinished_sequences(self: Any, this_peer_finished: Any, *rest: Any, **named: Any) -> Any:
        # Each loop asks after each judgement, so a judgement never reaches the loop of a later call.
        has_ended, latest.is_whole = getattr(latest, "is_whole", False), False
        return original(self, True if has_ended else this_peer_finished, *rest, **named)

    criteria.__call__ = __call__
    models._has_unfinished_sequences = _has_unfinished_sequences


class _NotCompiled:
    """A module of kernels that do nothing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, function: str) -> Any:
        if function.startswith("__"):
            raise AttributeError(function)
        return functools.partial(_compute_nothing, self._name, function)


def _compute_nothing(module: str, function: str, *_: Any, **__: Any) -> list[int] | None:
    """Returns nothing, or the plan of an attention kernel: numbers that only the kernel itself reads."""
    if os.environ.get("MEMDIAG_PHANTOM_TRACE"):
        sys.stderr.write(f"memdiag: FlashInfer's {module}.{function} was not compiled: it computes nothing\n")
    return [0] * _PLAN_LENGTH if function == "plan" else None


def compile_nothing(module: Any) -> None:
    """Lets the kernels of ``module`` (KERNELS) be used without compiling them; compiled ones are loaded as they are."""
    spec = getattr(module, "JitSpec", None)
    if spec is None or not hasattr(spec, "build_and_load"):
        return

    def build_and_load(self: Any, *_: Any, **__: Any) -> Any:
        load = getattr(self, "try_load", None)
        loaded = load() if load is not None else None
        return _NotCompiled(str(self.name)) if loaded is None else loaded

    spec.build_and_load = build_and_load
