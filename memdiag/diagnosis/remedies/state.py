"""Remedies for the memory of weights and optimizer state, which stay on the device for the whole run."""

from __future__ import annotations

from memdiag.diagnosis.remedies.model import Plain, Situation, on_torch
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix
from memdiag.text import phrase


class _Shard:
    """Shards parameters, gradients and optimizer state over the devices."""

    key = "remedies.shard"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the call; None for other frameworks."""
        if not situation.on_torch:
            return None
        return LazyFix("remedies.shard", "code", phrase("gathered.fix.blocks.change")).fix()


class _Optimizer:
    """Shrinks or moves Adam's state of two numbers per parameter: to 8 bits on CUDA, to host memory on NPU."""

    key = "remedies.optimizer"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the optimizer, or MindSpeed's option on NPU."""
        if not situation.on_torch:
            return None
        if situation.backend == "npu":
            return LazyFix("remedies.optimizer.host", "flag", "--swap-optimizer").fix()
        return LazyFix(
            "remedies.optimizer", "code", "optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())"
        ).fix()


class _Fused:
    """Uses a fused optimizer, which updates parameters without temporary copies."""

    key = "remedies.fused"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the fused optimizer of the backend; None for other frameworks."""
        if not situation.on_torch:
            return None
        line = "optimizer = torch.optim.AdamW(model.parameters(), fused=True)"
        if situation.backend == "npu":
            line = "optimizer = torch_npu.optim.NpuFusedAdamW(model.parameters())"
        return LazyFix("remedies.fused", "code", line).fix()


SHARD = _Shard()
OPTIMIZER = _Optimizer()
FUSED = _Fused()
ONE_BY_ONE = Plain(
    LazyFix("remedies.one-by-one", "code", "optimizer = torch.optim.AdamW(model.parameters(), foreach=False)"), on_torch
)
OTHER_STEP = Plain(LazyFix("remedies.other-step", "code"), on_torch)
SHARD_OPTIMIZER = Plain(
    LazyFix(
        "remedies.shard-optimizer",
        "code",
        "optimizer = torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=lr)",
    ),
    on_torch,
)
TENSOR_PARALLEL = Plain(LazyFix("remedies.tensor-parallel", "flag", "--tensor-parallel-size 2"), on_torch)
SHARD_EARLY = Plain(LazyFix("remedies.shard-early", "code", 'with torch.device("meta"):'), on_torch)
LOAD_TO_HOST = Plain(
    LazyFix("remedies.load-to-host", "code", 'model.load_state_dict(torch.load(path, map_location="cpu", mmap=True))'),
    on_torch,
)
MAP_FILE = Plain(
    LazyFix(
        "remedies.map-file",
        "code",
        'state = torch.load(path, map_location="cpu", mmap=True); model.load_state_dict(state); del state',
    ),
    on_torch,
)
TAKE_OVER = Plain(LazyFix("remedies.take-over", "code", "model.load_state_dict(state, assign=True)"), on_torch)
FEWER_BITS = Plain(
    LazyFix(
        "oom_shared.bits",
        "code",
        "model = AutoModelForCausalLM.from_pretrained(name, torch_dtype=torch.bfloat16)",
        when="remedies.fewer-bits.when",
    ),
    on_torch,
)
ALL_DEVICES = Plain(
    LazyFix("remedies.all-devices", "code", 'model = AutoModelForCausalLM.from_pretrained(name, device_map="auto")'),
    on_torch,
)
