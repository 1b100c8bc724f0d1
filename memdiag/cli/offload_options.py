"""The options of ``--policy offload``; they have the names of the settings in a configuration file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.offload.settings import OffloadSettings

_PANEL = "With --policy offload (memdiag explain offload)"


def _option(name: str, metavar: str, said: str) -> Any:
    return typer.Option(name, metavar=metavar, help=said, show_default=False, rich_help_panel=_PANEL)


Config = Annotated[
    str | None,
    _option("--offload-config", "FILE|JSON", "Offload settings, with the keys of MindSpore's offload_config."),
]
MaxDevice = Annotated[
    str | None,
    _option("--max-device-memory", "SIZE", "Device memory that the offload plan may use. Default: all of it."),
]
Param = Annotated[
    str | None,
    _option(
        "--offload-param",
        "cpu|disk",
        "Place of parameters at the start; with --no-auto-offload, their permanent place.",
    ),
]
Checkpoint = Annotated[
    str | None,
    _option(
        "--offload-checkpoint",
        "cpu|disk",
        "Place for the inputs of recomputed (checkpointed) parts, with --no-auto-offload.",
    ),
]
Auto = Annotated[
    bool | None,
    typer.Option(
        "--auto-offload/--no-auto-offload",
        help="Search for the best offload plan (default), or apply --offload-param and --offload-checkpoint as given.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
CpuSize = Annotated[
    str | None, _option("--offload-cpu-size", "SIZE", "Host memory that offloaded tensors may use. Default: 512GB.")
]
DiskSize = Annotated[
    str | None, _option("--offload-disk-size", "SIZE", "Disk space that offloaded tensors may use. Default: 512GB.")
]
HbmRatio = Annotated[
    float | None, _option("--hbm-ratio", "F", "Fraction of the device memory that the offload plan may use.")
]
CpuRatio = Annotated[
    float | None, _option("--cpu-ratio", "F", "Fraction of the host memory that the offload plan may use.")
]
HostBlock = Annotated[
    str | None,
    _option("--host-mem-block-size", "SIZE", "Step by which the pool of pinned host memory grows. Default: 1GB."),
]
Pinned = Annotated[
    bool | None,
    typer.Option(
        "--enable-pinned-mem/--no-enable-pinned-mem",
        help="Use pinned host memory (default), so that the program does not wait for copies.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
Aio = Annotated[
    bool | None,
    typer.Option(
        "--enable-aio/--no-enable-aio",
        help="Copy to disk in parallel with copies to the host (default), or one after the other.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
AioBlock = Annotated[
    str | None,
    _option(
        "--aio-block-size",
        "SIZE",
        "Block size of disk copies in the printed MindSpore settings. Default: depends on the disk.",
    ),
]
AioDepth = Annotated[
    int | None,
    _option(
        "--aio-queue-depth",
        "N",
        "Queue depth of disk copies in the printed MindSpore settings. Default: depends on the disk.",
    ),
]
DiskPath = Annotated[
    str | None, _option("--offload-path", "DIR", "Directory for offloaded tensors in the printed MindSpore settings.")
]
Kinds = Annotated[
    str | None,
    _option(
        "--offload-kinds",
        "KIND,…",
        "Kinds of tensors that may move: activation, parameter, gradient, optimizer_state. Default: all.",
    ),
]
LinkRate = Annotated[
    str | None,
    _option(
        "--link",
        "NAME|RATE",
        "Bandwidth between device and host: pcie3x16, pcie4x16, pcie5x16, hccs, nvlink-c2c, or 20GB/s.",
    ),
]
DiskRate = Annotated[
    str | None,
    _option("--disk", "NAME|RATE", "Bandwidth of the disk: sata-ssd, nvme-gen3, nvme-gen4, nvme-gen5, or 3GB/s."),
]
StepSeconds = Annotated[
    float | None,
    _option("--step-seconds", "S", "Duration of a step in seconds, if the trace has no times of a real device."),
]
Exposed = Annotated[
    bool | None,
    typer.Option(
        "--allow-exposed",
        help="Also move tensors that cannot return in time; the step then waits for them.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]


def read_offload(config: str | None, wanted: bool, **options: Any) -> OffloadSettings | None:
    """Returns the settings of ``--policy offload``; None without that policy.

    Raises:
        MemdiagError: A setting is invalid, or settings are given without the policy.
    """
    from memdiag.errors import MemdiagError

    given = {name: value for name, value in options.items() if value is not None}
    if not wanted:
        if config is not None or given:
            name = "--offload-config" if config is not None else "--" + next(iter(given)).replace("_", "-")
            raise MemdiagError(phrase("errors.for-offload", name=str(name)), phrase("errors.for-offload.hint"))
        return None
    from memdiag.offload.settings import OffloadSettings

    return OffloadSettings.read(config, given)
