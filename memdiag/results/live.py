"""The result of ``memdiag.live()``: live tensors of this process, and who refers to them."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.registry import in_notebook, in_terminal


@dataclass(frozen=True, slots=True)
class LiveTensor:
    """A storage that live tensors use.

    Attributes:
        num_bytes: Size of the storage.
        device: Its device, as "cuda:0".
        shape: Shape of the largest tensor that uses it.
        dtype: Type of its elements, as "float32".
        num_tensors: Number of tensors that use it.
        holders: Who refers to it, each from the variable to the tensor; empty if no holder was found.
        graph: Name of the autograd function that created it, whose graph it keeps, or "".
    """

    num_bytes: int
    device: str
    shape: tuple[int, ...]
    dtype: str
    num_tensors: int
    holders: tuple[str, ...]
    graph: str


@dataclass(frozen=True, slots=True)
class LiveTensors:
    """Live tensors, the largest first. It prints as a table.

    Attributes:
        tensors: The largest.
        num_storages: Number of all storages.
        num_bytes: Bytes of all storages.
        is_complete: Whether the search for holders ended before its time limit.
        unseen_bytes: Bytes that tensors have allocated on accelerators without a Python object, for example those that
            autograd saved; None on the CPU, where they are unknown.
    """

    tensors: tuple[LiveTensor, ...]
    num_storages: int
    num_bytes: int
    is_complete: bool
    unseen_bytes: int | None

    def __str__(self) -> str:
        """Returns the table as text."""
        return in_terminal(self)

    def _repr_html_(self) -> str:
        """Returns the table for a notebook."""
        return in_notebook(self)
