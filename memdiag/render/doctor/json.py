"""What can be recorded on a machine, for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from memdiag.recorder.machine import Python
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import Key, Layout, Shape
from memdiag.render.support.shapes import FINDING
from memdiag.results.conf import ConfReport


@dataclass(frozen=True)
class Machine:
    """What can be recorded on a machine.

    Attributes:
        pythons: The Python installations that were checked.
        settings: Allocator settings in the environment, checked for each build of PyTorch found.
    """

    pythons: tuple[Python, ...]
    settings: tuple[ConfReport, ...]


class PythonFacts(TypedDict, total=False):
    """What a Python installation reports of itself; empty if it does not start.

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


LAYOUT = Layout(
    name="doctor",
    title="memdiag doctor --json",
    meaning="What memdiag can record on this machine.",
    version=2,
    root=Machine,
    shapes=(
        Shape(
            Python,
            (
                "path",
                Key("facts", lambda python: python.facts, PythonFacts, "What this Python reports of itself."),
                "backends",
                "reason",
                "fix",
            ),
        ),
        FINDING,
    ),
)


def render(pythons: list[Python], settings: list[ConfReport], look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the report as one JSON object."""
    return LAYOUT.text(Machine(tuple(pythons), tuple(settings)))
