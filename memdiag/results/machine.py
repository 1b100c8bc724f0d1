"""Result of ``memdiag doctor``: the Python installations and devices that can be recorded on a machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypedDict

from memdiag.results.conf import ConfReport


class PythonFacts(TypedDict, total=False):
    """Facts that a Python installation reports about itself; empty if it does not start.

    Attributes:
        version: Version of Python.
        executable: Path of the interpreter, as it reports it.
        prefix: Folder of the installation or of the virtual environment.
        torch_version: Version of PyTorch; null: PyTorch cannot be imported.
        torch_error: Why PyTorch cannot be imported.
        torch_path: Folder of the torch package.
        cuda_build: Version of CUDA that PyTorch was built for; null: another build.
        hip_build: Version of ROCm that PyTorch was built for; null: another build.
        npu_build: Version of torch_npu; null: it cannot be imported.
        npu_error: Why torch_npu cannot be imported; null: it can, or it is not installed.
        devices: Names of the visible devices by backend.
        errors: Error messages of the drivers by backend.
        cuda_allocator: Allocator backend of CUDA; null: unknown, or no device is visible.
        npu_allocator: Allocator backend of NPUs; null: unknown, or no device is visible.
    """

    version: str
    executable: str
    prefix: str
    torch_version: str | None
    torch_error: str
    torch_path: str
    cuda_build: str | None
    hip_build: str | None
    npu_build: str | None
    npu_error: str | None
    devices: dict[str, list[str]]
    errors: dict[str, str]
    cuda_allocator: str | None
    npu_allocator: str | None


@dataclass
class Backend:
    """Result of the test recording on one kind of device with one Python installation.

    Attributes:
        name: "cuda" (also ROCm), "npu" or "cpu".
        works: Whether a test recording contains an allocation; None: not tested, since there is no device or build for
            it.
        num_events: Events in the test recording; None: not tested.
        devices: Names of the visible devices.
        reason: Why recording does not work; "" if it works.
        fix: How to make recording work; "": nothing to do, or unknown.
    """

    name: str
    works: bool | None = None
    num_events: int | None = None
    devices: list[str] = field(default_factory=list)
    reason: str = ""
    fix: str = ""


@dataclass
class Python:
    """A Python installation.

    Attributes:
        path: The interpreter.
        facts: Facts that it reports about itself.
        backends: The kinds of devices; empty if PyTorch cannot be imported.
        reason: Why this Python cannot be used; "" if it can.
        fix: What to do about it; "": nothing, or unknown.
    """

    path: str
    facts: dict[str, Any]
    backends: list[Backend] = field(default_factory=list)
    reason: str = ""
    fix: str = ""


@dataclass(frozen=True)
class MachineReport:
    """The Python installations of a machine, and the devices that each can record.

    Attributes:
        pythons: The Python installations that were checked.
        settings: Allocator settings in the environment, checked for each build of PyTorch found.
    """

    pythons: tuple[Python, ...]
    settings: tuple[ConfReport, ...]
