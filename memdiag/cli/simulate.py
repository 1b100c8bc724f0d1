"""``memdiag simulate``: predict a recorded run under other settings or on another card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memdiag.allocator.policies import POLICIES
from memdiag.cli import card_options as card
from memdiag.cli import offload_options as o
from memdiag.cli.at_option import At, read_moment
from memdiag.cli.options import DeviceNumber, TraceOrRun
from memdiag.errors import MemdiagError
from memdiag.text import phrase


def simulate(
    trace: TraceOrRun = None,
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME,…",
            help=f"Allocator policies to simulate: {', '.join(POLICIES.targets)}, offload; "
            "separate several by commas, or "
            "repeat the option. Default: the recorded one.",
            show_default=False,
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf",
            metavar="KEY:VALUE,…",
            help="Allocator settings to simulate; '' means all defaults; can be repeated. Default: the recorded ones.",
            show_default=False,
        ),
    ] = None,
    torch: Annotated[
        str | None,
        typer.Option(
            "--torch",
            metavar="X.Y",
            help="torch version whose allocator rules apply. Default: the recorded one.",
            show_default=False,
        ),
    ] = None,
    capacity: card.Capacity = None,
    outside: card.Outside = None,
    fraction: Annotated[
        float | None,
        typer.Option(
            "--fraction", metavar="F", help="Per-process memory fraction, for example 0.94.", show_default=False
        ),
    ] = None,
    communicators: Annotated[
        int | None,
        typer.Option(
            "--communicators",
            metavar="N",
            min=1,
            help="Number of HCCL communicators: memdiag computes the memory fraction that leaves room for them.",
            show_default=False,
        ),
    ] = None,
    device: DeviceNumber = None,
    offload_config: o.Config = None,
    max_device_memory: o.MaxDevice = None,
    offload_param: o.Param = None,
    offload_checkpoint: o.Checkpoint = None,
    auto_offload: o.Auto = None,
    offload_cpu_size: o.CpuSize = None,
    offload_disk_size: o.DiskSize = None,
    hbm_ratio: o.HbmRatio = None,
    cpu_ratio: o.CpuRatio = None,
    host_mem_block_size: o.HostBlock = None,
    enable_pinned_mem: o.Pinned = None,
    enable_aio: o.Aio = None,
    aio_block_size: o.AioBlock = None,
    aio_queue_depth: o.AioDepth = None,
    offload_path: o.DiskPath = None,
    offload_kinds: o.Kinds = None,
    link: o.LinkRate = None,
    disk: o.DiskRate = None,
    step_seconds: o.StepSeconds = None,
    allow_exposed: o.Exposed = None,
    at: At = None,
    min_capacity: Annotated[
        bool, typer.Option("--min-capacity", help="Find the smallest device memory with which the run fits.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain simulate describes the keys).")
    ] = False,
    rows: Annotated[
        Path | None,
        typer.Option(
            "--rows",
            metavar="FILE.npz",
            help="Write the state of the simulated allocator after each event to this .npz file.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.pkl",
            help="Write the simulated run to this file, as a trace for memdiag analyze.",
            show_default=False,
        ),
    ] = None,
    as_html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write an HTML page with the curves of all runs to FILE.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the report to FILE; the ending .json selects JSON.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Predict the memory of a recorded run with other allocator settings or on another device.

    memdiag replays the program's requests through a model of the allocator. It
    first replays the recorded settings and compares every address with the
    recording. The report starts with the prediction, followed by the
    calibration error of the model.

    Exit status: 0 success, even if the simulated run is out of memory; 2 error.
    """
    from memdiag.cli.choose import choose_trace
    from memdiag.cli.emit import emit, form_of
    from memdiag.cli.loading import read_trace
    from memdiag.cli.page import read_page
    from memdiag.cli.talk import busy, say
    from memdiag.runs.replayable import choose_device
    from memdiag.runs.scenarios import SimulationRequest
    from memdiag.trace.moments import require_moment

    wanted = SimulationRequest.read(policy or [], conf, torch, capacity, fraction, outside)
    moving = o.read_offload(
        offload_config,
        wanted.offload,
        max_device_memory=max_device_memory,
        offload_param=offload_param,
        offload_checkpoint=offload_checkpoint,
        auto_offload=auto_offload,
        offload_cpu_size=offload_cpu_size,
        offload_disk_size=offload_disk_size,
        hbm_ratio=hbm_ratio,
        cpu_ratio=cpu_ratio,
        host_mem_block_size=host_mem_block_size,
        enable_pinned_mem=enable_pinned_mem,
        enable_aio=enable_aio,
        aio_block_size=aio_block_size,
        aio_queue_depth=aio_queue_depth,
        offload_path=offload_path,
        offload_kinds=offload_kinds,
        link=link,
        disk=disk,
        step_seconds=step_seconds,
        allow_exposed=allow_exposed,
    )
    form, moment = form_of(as_json=as_json, as_md=False, output=output), read_moment(at)
    page = read_page(as_html)
    path = choose_trace(trace)
    _check_files(path, {"--rows": rows, "--out": out, "--output": output, "--html": as_html}, wanted)
    recording = read_trace(path)
    chosen = choose_device(recording, device, say)
    wanted.check(recording, chosen)
    if isinstance(moment, int):
        require_moment([chosen], moment)
    with busy(phrase("progress.simulating", count=chosen.num_events)):
        from memdiag.runs.simulating import simulate as run

        found = run(
            recording,
            chosen,
            wanted,
            at=moment,
            offload=moving,
            communicators=communicators,
            with_min_capacity=min_capacity,
        )
    if rows is not None:
        found.runs[0].write_rows(rows)
        say(phrase("progress.wrote", path=str(rows)))
    if out is not None:
        found.runs[0].write_trace(out)
        say(phrase("progress.wrote", path=str(out)))
    if page is not None:
        page.write(recording, found.recorded_report(), simulated=found.curves())

    from memdiag.render import renderer

    render = renderer("simulate", "json" if form == "json" else "terminal")
    emit(lambda look: render(found.report, look), output)


def _check_files(path: Path, files: dict[str, Path | None], wanted: object) -> None:
    from memdiag.output_file import is_same

    for option, file in files.items():
        if file is not None and is_same(file, path):
            raise MemdiagError(
                phrase("errors.is-trace", option=str(option), file=str(file)), phrase("errors.name-another")
            )
    for option in ("--rows", "--out"):
        if files[option] is not None and getattr(wanted, "num", 1) > 1:
            raise MemdiagError(
                phrase("errors.one-run", option=str(option)),
                phrase("errors.one-run.hint"),
            )
