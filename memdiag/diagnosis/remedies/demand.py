"""Ways to need less memory at once: smaller batches, recomputation, no graph, and no tensor as large as the device."""

from __future__ import annotations

from memdiag.diagnosis.remedies.model import Plain, Situation, of_backends, on_torch
from memdiag.diagnosis.remedies.recording import can_be_recorded
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix
from memdiag.units import GIB

_CHECKPOINT = "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"
_LONG_AND_FULL = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"

SMALLER_BATCH = Plain(LazyFix("remedies.batch", "code"))
SHORTER = Plain(LazyFix("remedies.shorter", "code"))
RECOMPUTE = Plain(LazyFix("remedies.recompute", "code", _CHECKPOINT), on_torch)
RECOMPUTE_MEGATRON = Plain(
    LazyFix("remedies.recompute", "flag", _LONG_AND_FULL, when="remedies.recompute.megatron"), of_backends("npu")
)
COMPILER_BUDGET = Plain(
    LazyFix(
        "remedies.compiler-budget",
        "code",
        "torch._functorch.config.activation_memory_budget = 0.5  # before the first step",
    ),
    of_backends("cuda"),
)
FEWER_SAMPLES = Plain(
    LazyFix(
        "remedies.fewer-samples",
        "code",
        "for part in batch.split(8): total += clip(vmap(grad(loss), (None, 0))(parameters, part)).sum(0)",
    ),
    on_torch,
)
PHYSICAL_BATCH = Plain(
    LazyFix(
        "remedies.physical-batch",
        "code",
        "with BatchMemoryManager(data_loader=loader, max_physical_batch_size=8, optimizer=optimizer) as loader:",
    ),
    on_torch,
)
NO_GRAPH = Plain(LazyFix("remedies.no-graph", "code", "with torch.no_grad():"), on_torch)
SEE_LIVE = Plain(LazyFix("remedies.see-live", "code"))
ONE_TENSOR = Plain(LazyFix("remedies.one-tensor", "code"))
ATTENTION = Plain(
    LazyFix("remedies.attention", "code", "torch.nn.functional.scaled_dot_product_attention(q, k, v)"), on_torch
)
LOSS_IN_CHUNKS = Plain(
    LazyFix("remedies.loss-in-chunks", "code", "model = AutoLigerKernelForCausalLM.from_pretrained(name)"), on_torch
)
EVALUATION = Plain(LazyFix("remedies.evaluation", "code", "with torch.inference_mode():"), on_torch)
OUTPUTS = Plain(LazyFix("remedies.outputs", "code", "outputs.append(output.detach().cpu())"), on_torch)
GENERATION = Plain(LazyFix("remedies.generation", "code", "model.generate(**inputs, max_new_tokens=128)"), on_torch)
SMALLER_MODEL = Plain(LazyFix("remedies.smaller-model", "code"))


class _Offload:
    """Moves data to the host or to disk while the program does not use it."""

    key = "remedies.offload"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the commands that predict its effect; None if the size of the device is unknown."""
        total = situation.facts.total
        if not total or total < GIB or not can_be_recorded(situation):
            return None
        record = f"memdiag record -- {situation.started_as}"
        simulate = f"memdiag simulate --policy offload --max-device-memory {total // GIB}GiB"
        return LazyFix("remedies.offload", "record", f"{record}\n{simulate}").fix()


OFFLOAD = _Offload()

# Title keys of the remedies that remain if no setting gets past a failure.
LAST_RESORTS = frozenset({"remedies.batch", "remedies.see-live", "remedies.optimizer", "remedies.optimizer.host"})

# Title keys of the remedies that reduce the batch or the memory per sample. They are useless if little of the live
# memory depends on the batch.
PER_BATCH = frozenset(
    {
        "remedies.batch",
        "remedies.shorter",
        "remedies.recompute",
        "remedies.no-graph",
        "remedies.evaluation",
        "oom_elsewhere.mps.less",
        "oom_elsewhere.room",
        "oom_shared.batch",
        "oom_torch.shorter",
        "oom_training.do.critic",
        "oom_training.do.evaluation",
        "oom_training.do.gather",
        "oom_training.do.micro-batch",
    }
)
