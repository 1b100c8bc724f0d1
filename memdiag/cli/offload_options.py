"""The options of ``--policy offload``, under the names that its settings have in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from memdiag.allocator.offload.settings import OffloadSettings

_PANEL = "With --policy offload (memdiag explain offload)"


def _option(name: str, metavar: str, said: str) -> Any:
    return typer.Option(name, metavar=metavar, help=said, show_default=False, rich_help_panel=_PANEL)


Config = Annotated[str | None, _option("--offload-config", "FILE|JSON", "Settings under the names of MindSpore's offload_config.")]
MaxDevice = Annotated[str | None, _option("--max-device-memory", "SIZE", "What the device may hold; left out: as the card has.")]
Param = Annotated[str | None, _option("--offload-param", "cpu|disk", "Where parameters start; with --no-auto-offload where they live.")]
Checkpoint = Annotated[str | None, _option("--offload-checkpoint", "cpu|disk", "Where inputs of recomputed parts go.")]
Auto = Annotated[
    bool | None,
    typer.Option("--auto-offload/--no-auto-offload", help="Find a strategy (default), or do just what is said.", show_default=False,
                 rich_help_panel=_PANEL),
]  # fmt: skip
CpuSize = Annotated[str | None, _option("--offload-cpu-size", "SIZE", "Host memory that may be used; 512GB if left out.")]
DiskSize = Annotated[str | None, _option("--offload-disk-size", "SIZE", "Disk space that may be used; 512GB if left out.")]
HbmRatio = Annotated[float | None, _option("--hbm-ratio", "F", "Share of the device's memory that may be used.")]
CpuRatio = Annotated[float | None, _option("--cpu-ratio", "F", "Share of the host's memory that may be used.")]
HostBlock = Annotated[str | None, _option("--host-mem-block-size", "SIZE", "By which the pinned pool on the host grows; 1GB if left out.")]
Pinned = Annotated[
    bool | None,
    typer.Option("--enable-pinned-mem/--no-enable-pinned-mem", help="Copies to pinned memory run beside the program (default).",
                 show_default=False, rich_help_panel=_PANEL),
]  # fmt: skip
Aio = Annotated[
    bool | None,
    typer.Option("--enable-aio/--no-enable-aio", help="Copies to disk run beside those to the host (default).", show_default=False,
                 rich_help_panel=_PANEL),
]  # fmt: skip
AioBlock = Annotated[str | None, _option("--aio-block-size", "SIZE", "Of copies to disk; left out: what the disk needs.")]
AioDepth = Annotated[int | None, _option("--aio-queue-depth", "N", "Of copies to disk; left out: what the disk needs.")]
DiskPath = Annotated[str | None, _option("--offload-path", "DIR", "Folder on the disk, as it is to stand in what is printed.")]
Kinds = Annotated[
    str | None, _option("--offload-kinds", "KIND,…", "What may move: activation, parameter, gradient, optimizer_state; all if left out.")
]
LinkRate = Annotated[str | None, _option("--link", "NAME|RATE", "pcie3x16, pcie4x16, pcie5x16, hccs, nvlink-c2c, or 20GB/s.")]
DiskRate = Annotated[str | None, _option("--disk", "NAME|RATE", "sata-ssd, nvme-gen3, nvme-gen4, nvme-gen5, or 3GB/s.")]
StepSeconds = Annotated[float | None, _option("--step-seconds", "S", "Length of a step, if the trace's times are not the card's.")]
Exposed = Annotated[
    bool | None,
    typer.Option("--allow-exposed", help="Move also what cannot be back in time; the step waits.", show_default=False,
                 rich_help_panel=_PANEL),
]  # fmt: skip


def read_offload(config: str | None, wanted: bool, **options: Any) -> OffloadSettings | None:
    """Returns the settings of ``--policy offload``; None where that is not asked for.

    Raises:
        MemdiagError: One means nothing, or they are given without the policy.
    """
    from memdiag.errors import MemdiagError

    given = {name: value for name, value in options.items() if value is not None}
    if not wanted:
        if config is not None or given:
            name = "--offload-config" if config is not None else "--" + next(iter(given)).replace("_", "-")
            raise MemdiagError(f"{name} is for --policy offload", "add --policy offload")
        return None
    from memdiag.allocator.offload.settings import OffloadSettings

    return OffloadSettings.read(config, given)
