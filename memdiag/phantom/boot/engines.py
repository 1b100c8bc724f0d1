"""Values that vLLM reads back from its own kernels, and without which it does not go on.

vLLM's second model runner (0.2x and newer) counts the sampled tokens of each request with a Triton kernel and reads the
counts back. On a simulated device the kernel computes nothing, so every step would add 0 tokens and no request would
ever end. The counts depend only on numbers that the host has too, so the host writes them.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

RUNNER = "vllm.v1.worker.gpu.model_runner"


def begin(module: Any) -> None:
    """Lets the model runner of ``module`` (vllm.v1.worker.gpu.model_runner) know how many tokens it sampled."""
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
    numpy, torch = import_module("numpy"), import_module("torch")
    lengths = batch.num_computed_tokens_np + batch.num_scheduled_tokens
    has_read_prompt = lengths >= batch.prefill_len_np
    num_logits = numpy.diff(batch.cu_num_logits_np)
    for counts, tensor in (
        (has_read_prompt, num_sampled),
        (numpy.where(has_read_prompt, num_logits - 1, 0), num_rejected),
    ):
        if tensor is not None and tuple(tensor.shape) == counts.shape:
            tensor.copy_(torch.from_numpy(counts.astype(numpy.int32)).to(tensor.dtype))
