"""``memdiag simulate``: a recording in; what would have happened under other settings, on another card, out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.allocator.policies import POLICIES
from memdiag.cli import card_options as card
from memdiag.cli import offload_options as o
from memdiag.cli.at_option import At, read_moment
from memdiag.errors import MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.allocator.result import Replay
    from memdiag.allocator.scenario import Scenario
    from memdiag.allocator.subject import Subject
    from memdiag.cli.page import Page
    from memdiag.trace.model import DeviceTrace, Trace


def simulate(
    trace: Annotated[
        Path | None,
        typer.Argument(
            metavar="TRACE",
            help="A trace file or run directory. Default: the newest run in this directory.",
            show_default=False,
        ),
    ] = None,
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME,…",
            help=f"Allocator policies to simulate: {', '.join(POLICIES.targets)}, offload; separate several by commas, or "
            "repeat the option. Default: the recorded one.",
            show_default=False,
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf",
            metavar="KEY:VALUE,…",
            help="Allocator settings to simulate, '' for all defaults; can be repeated. Default: the recorded ones.",
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
            help="Number of HCCL communicators; sets the memory fraction to leave for HCCL.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        int | None,
        typer.Option(
            "--device",
            metavar="N",
            min=0,
            help="Use only this device. Default: the one with the highest peak.",
            show_default=False,
        ),
    ] = None,
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain simulate).")] = False,
    rows: Annotated[
        Path | None,
        typer.Option(
            "--rows",
            metavar="FILE.npz",
            help="Write the allocator state after each event to this .npz file.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.pkl",
            help="Write the simulated run to this file, as a trace to analyze.",
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
            help="Write the table to FILE; the ending .json selects JSON.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Predict a recorded run under other allocator settings, or on another device.

    The program's requests are replayed through a model of the allocator. Before that, the recorded settings are replayed and compared
    with the recording, address by address. The report begins with the answer, and then says how exact the model is.

    Exit status: 0 success, also if the simulated run is out of memory; 2 error.
    """
    from memdiag.cli.choose import choose_trace
    from memdiag.cli.emit import emit, form_of
    from memdiag.cli.page import read_page
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
    recording, chosen = _read(path, device)
    wanted.check(recording, chosen)
    if isinstance(moment, int):
        require_moment([chosen], moment)

    from memdiag.cli.talk import busy

    with busy(phrase("progress.simulating", count=chosen.num_events)):
        from memdiag.allocator.subject import Subject
        from memdiag.analyzers.support.pools_judged import with_advice
        from memdiag.runs.simulation import predict, report_of

        subject = replace(wanted.on_card(Subject.of(recording, chosen)), at=moment)
        scenarios = wanted.scenarios(subject)
        predicted = [predict(subject, scenario, with_min_capacity=min_capacity) for scenario in scenarios]
        if moving is not None:
            from memdiag.offload.predict import predict_offload

            scenarios.append(wanted.offload_scenario(subject))
            moved, prediction = predict_offload(subject, scenarios[-1], moving, predict, with_min_capacity=min_capacity)
            predicted.append(prediction)
        require_moment([chosen, *(simulated.device for _, _, simulated in predicted)], moment)
        report = report_of(subject, tuple(prediction for prediction, _, _ in predicted), with_min_capacity=min_capacity)
        report = with_advice(report, subject, scenarios, communicators)
    _, replay, simulated = predicted[0]
    if rows is not None:
        _write_rows(rows, subject if moving is None else moved, scenarios[0], replay)
    if out is not None:
        _write_trace(out, simulated, replay)
    if page is not None:
        _write_page(
            page, subject, [(scenario, each) for scenario, (_, each, _) in zip(scenarios, predicted, strict=True)]
        )

    from memdiag.render import renderer

    render = renderer("simulate", "json" if form == "json" else "terminal")
    emit(lambda look: render(report, look), output)


def _check_files(path: Path, files: dict[str, Path | None], wanted: object) -> None:
    from memdiag.cli.choose import is_same

    for option, file in files.items():
        if file is not None and is_same(file, path):
            raise MemdiagError(f"{option} {file}: this is the trace itself", "name another file")
    for option in ("--rows", "--out"):
        if files[option] is not None and getattr(wanted, "num", 1) > 1:
            raise MemdiagError(
                f"{option} is of one simulated run, and several are asked for",
                "give one --policy and one --conf with it",
            )


def _read(path: Path, device: int | None) -> tuple[Trace, DeviceTrace]:
    """Reads the trace and chooses its device.

    Raises:
        MemdiagError: It has no such device, or nothing to replay.
    """
    from memdiag.cli.loading import read_trace
    from memdiag.cli.talk import say
    from memdiag.units import format_bytes, plural

    trace = read_trace(path)
    have = ", ".join(str(each.device) for each in trace.devices) or "none"
    if device is not None and all(each.device != device for each in trace.devices):
        raise MemdiagError(f"device {device} is not in this trace", f"devices in it: {have}")
    usable = [
        each
        for each in trace.devices
        if len(each.tensors) and each.num_events and (device is None or each.device == device)
    ]
    if not usable:
        raise MemdiagError(
            f"{path} has no allocations to replay"
            + (" (only what was held when it was written)" if trace.num_tensors else ""),
            "record the run from its beginning: memdiag record -- python train.py",
        )
    chosen = max(usable, key=lambda each: each.most_held_bytes)
    if len(usable) > 1:
        most = format_bytes(chosen.most_held_bytes)
        say(
            f"simulating device {chosen.device}, which held most ({most}) of {plural(len(usable), 'device')}; --device chooses another"
        )
    return trace, chosen


def _write_rows(path: Path, subject: Subject, scenario: Scenario, replay: object) -> None:
    import numpy as np

    from memdiag.allocator.rows import rows_of
    from memdiag.cli.talk import say
    from memdiag.output_file import whole_file

    is_npu = POLICIES[scenario.policy].backend == "npu"
    columns = rows_of(replay, subject.workload, with_addresses=is_npu)  # type: ignore[arg-type]
    with whole_file(path) as file:  # numpy would add .npz to other names
        np.savez_compressed(file, **columns)  # type: ignore[arg-type]
    say(f"wrote {path}")


def _write_trace(path: Path, simulated: object, replay: object) -> None:
    from memdiag.allocator.as_snapshot import write_snapshot
    from memdiag.cli.talk import say

    write_snapshot(path, simulated, replay)  # type: ignore[arg-type]
    say(f"wrote {path}")


def _write_page(page: Page, subject: Subject, replays: list[tuple[Scenario, Replay]]) -> None:
    """Writes the page of the recording, with the simulated runs laid over it."""
    from memdiag.analyzers.report import build_report
    from memdiag.runs.simulated_runs import simulated_run
    from memdiag.trace.moments import DEFAULT

    at = (
        DEFAULT if subject.at == "oom" else subject.at
    )  # the same moment, and a recording without a failure has one too
    report = build_report(subject.trace, device=subject.device.device, at=at)
    own = subject.recorded
    runs = (
        [simulated_run(subject, own, subject.replay(own, log=False), "as recorded")]
        if subject.calibration.exact is not None
        else []
    )
    for scenario, replay in replays:
        if scenario != own and len(replay.reserved) == len(
            subject.workload.row
        ):  # what moves away has calls of its own
            runs.append(simulated_run(subject, scenario, replay, f"{scenario.policy}: {scenario.conf or 'defaults'}"))
    page.write(subject.trace, report, simulated=runs)
