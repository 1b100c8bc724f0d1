"""Memory outside the allocator: communication buffers, workspaces, and room for both."""

from __future__ import annotations

from memdiag.diagnosis.remedies.model import Plain, Situation, of_backends, on_torch
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix
from memdiag.sizes.npu import HCCL_BUFFER_MB


def _graphics(situation: Situation) -> bool:
    return situation.on_torch and situation.backend in {"cuda", "hip"}


class _LibraryRoom:
    """Limits PyTorch's allocator, to leave memory for a library."""

    key = "oom_nccl.room"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the limit on PyTorch's allocator; None for other frameworks."""
        if not situation.on_torch:
            return None
        module = situation.module
        line = f"{module}.set_per_process_memory_fraction(0.9)" if module else ""
        return LazyFix("oom_nccl.room", "code", line).fix()


HCCL_BUFFERS = Plain(
    LazyFix("oom_ascend.buffers", "env", "export HCCL_BUFFSIZE=100", {"both": 2 * HCCL_BUFFER_MB}), of_backends("npu")
)
TASK_QUEUE = Plain(LazyFix("oom_ascend.task-queue", "env", "export TASK_QUEUE_ENABLE=1"), of_backends("npu"))
NCCL_BUFFERS = Plain(LazyFix("oom_nccl.buffers", "env", "export NCCL_BUFFSIZE=2097152"), _graphics)
NCCL_CHANNELS = Plain(LazyFix("oom_nccl.channels", "env", "export NCCL_MAX_NCHANNELS=8"), _graphics)
NCCL_P2P_CHANNELS = Plain(LazyFix("oom_nccl.p2p-channels", "env", "export NCCL_MAX_P2P_NCHANNELS=8"), _graphics)
SHARED_COMMUNICATORS = Plain(
    LazyFix("oom_nccl.share", "code", "options = dist.ProcessGroupNCCL.Options(); options.config.split_share = 1"),
    _graphics,
)
SINGLE_RANK_GROUPS = Plain(
    LazyFix("oom_nccl.single", "code", "if dist.get_world_size(group) > 1: dist.all_reduce(x, group=group)"),
    on_torch,
)
NO_BENCHMARK = Plain(LazyFix("oom_libraries.benchmark", "code", "torch.backends.cudnn.benchmark = False"), _graphics)
ROOM = _LibraryRoom()
