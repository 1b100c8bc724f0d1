"""Scratch memory of cuDNN on a simulated device: how much was planned, and how much more a card may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scratch:
    """Scratch memory of convolutions, attention and recurrent layers of one process.

    Attributes:
        planner: Version of the cuDNN that planned it without a card ("9.20.0"); "" if none did.
        num_calls: Calls of such operations.
        num_unknown_calls: Those for which no scratch memory was planned.
        largest_bytes: The largest planned workspace of a call.
        more_bytes: Upper bound, measured rather than documented, on what a card may allocate at the peak beyond the
            recording.
        workspaces: For each kind of convolution, the workspaces in bytes of the engines that cuDNN proposed, in the
            order in which PyTorch tries them.
        is_searching: Whether PyTorch searches for the fastest engine (``torch.backends.cudnn.benchmark``).
    """

    planner: str
    num_calls: int
    num_unknown_calls: int
    largest_bytes: int
    more_bytes: int
    workspaces: tuple[tuple[int, ...], ...] = ()
    is_searching: bool = False
