"""Owners of memory in a report: call sites, parts of the model, and names that the program chose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Site:
    """A call site and its live memory at the moment of the report.

    Attributes:
        bytes: Live bytes.
        num_tensors: Number of live tensors.
        stack: Call stack, innermost frame first.
        name: Short name of the call site.
        tensor_names: Names of the largest tensors of this call site, at most three; a * replaces numbers in which
            similar names differ.
    """

    bytes: int
    num_tensors: int
    stack: tuple[str, ...]
    name: str
    tensor_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModuleUsage:
    """A part of the model and its memory at the moment of the report.

    Attributes:
        name: Name of the part ("layers.*.mlp").
        bytes: Live bytes.
        fraction: Fraction of all live bytes.
        num_tensors: Number of live tensors.
    """

    name: str
    bytes: int
    fraction: float
    num_tensors: int
