"""Symmetric memory of a rank that runs alone: the buffers of the other ranks are its own.

PyTorch shares this memory between processes by the driver, which a simulated device refuses. Asynchronous tensor
parallelism (torch.ops.symm_mem) asks for a workspace, and for each rank's part of it. The workspace is allocated as on
a real device, from the driver and not from the caching allocator; a part of another rank is a view of it, and barriers
do not wait.
"""

from __future__ import annotations

from typing import Any


def begin(module: Any) -> None:
    """Replaces the class with which PyTorch shares memory.

    Args:
        module: ``torch.distributed._symmetric_memory``.
    """
    original = module._SymmetricMemory
    groups: dict[str, tuple[int, int]] = {}
    group_of: dict[int, str] = {}

    class OfOneRank(original):  # type: ignore[misc, valid-type]
        @staticmethod
        def set_group_info(group_name: str, rank: int, world_size: int, *rest: Any, **named: Any) -> None:
            groups[group_name] = rank, world_size
            original.set_group_info(group_name, rank, world_size, *rest, **named)

        @staticmethod
        def empty_strided_p2p(
            size: Any, stride: Any, dtype: Any, device: Any, group_name: Any = None, **named: Any
        ) -> Any:
            tensor = original.empty_strided_p2p(size, stride, dtype, device, group_name, **named)
            if group_name is not None:
                group_of[tensor.data_ptr()] = group_name
            return tensor

        @staticmethod
        def rendezvous(tensor: Any, group_name: str | None = None) -> Any:
            name = group_name or group_of.get(tensor.data_ptr())
            if name not in groups:
                return original.rendezvous(tensor) if group_name is None else original.rendezvous(tensor, group_name)
            return _PrivateMemory(tensor, *groups[name])

        @staticmethod
        def stream_write_value32(*_: Any, **__: Any) -> None:
            """Tells kernels of this device that data arrived; none of them waits."""

    module._SymmetricMemory = OfOneRank


class _PrivateMemory:
    """Memory that no other process maps."""

    def __init__(self, tensor: Any, rank: int, world_size: int) -> None:
        self._tensor = tensor
        self.rank = rank
        self.world_size = world_size
        self.buffer_size = tensor.numel() * tensor.element_size()

    def get_buffer(self, rank: int, sizes: Any, dtype: Any, storage_offset: int = 0) -> Any:  # noqa: ARG002
        """Returns a part of this rank's memory, whatever the rank."""
        flat = self._tensor.view(-1).view(dtype)
        count = 1
        for size in sizes:
            count *= size
        return flat[storage_offset : storage_offset + count].view(sizes)

    def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
        """Does not wait."""

    def put_signal(self, dst_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        """Signals nobody."""

    def wait_signal(self, src_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
        """Does not wait."""
