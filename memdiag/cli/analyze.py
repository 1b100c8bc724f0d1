"""``memdiag analyze``: explain the memory of a trace."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli.at_option import At, read_moment
from memdiag.cli.budgets import end_if_hit, over, read_budgets
from memdiag.cli.options import AsMarkdown, FailOnFindings, NoReplay, OutputReport, Top, TraceOrRun
from memdiag.errors import MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.results.report import Report
    from memdiag.trace.model import Trace


def analyze(
    trace: TraceOrRun = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain json describes the keys).")
    ] = False,
    as_md: AsMarkdown = False,
    as_html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help="Write an interactive HTML page to FILE (memdiag explain report).",
            show_default=False,
        ),
    ] = None,
    output: OutputReport = None,
    top: Top = 10,
    device: Annotated[
        int | None,
        typer.Option(
            "--device",
            metavar="N",
            min=0,
            help="Report only this device. Default: all devices in use.",
            show_default=False,
        ),
    ] = None,
    at: At = None,
    would_fit: Annotated[
        str | None,
        typer.Option(
            "--would-fit",
            metavar="SIZE",
            help="Report whether a tensor of this size would fit at the moment of the report.",
            show_default=False,
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print the whole report instead of one screen.")] = False,
    no_replay: NoReplay = False,
    nccl_log: Annotated[
        list[Path] | None,
        typer.Option(
            "--nccl-log",
            metavar="FILE",
            help="Log that NCCL or HCCL wrote in the recorded process; can be repeated. Default: the logs in the run "
            "directory.",
            show_default=False,
        ),
    ] = None,
    flight_recorder: Annotated[
        Path | None,
        typer.Option(
            "--flight-recorder",
            metavar="FILE",
            help="Dump of PyTorch's flight recorder, which names the process groups of communicators.",
            show_default=False,
        ),
    ] = None,
    fail_on: FailOnFindings = None,
) -> None:
    """Explain which tensors filled the memory in a trace, and suggest fixes.

    TRACE is a PyTorch or torch_npu memory snapshot, a profiler trace with
    memory events, an Ascend profiler or msmemscope file, or another format
    listed by memdiag explain sources. memdiag never executes its contents.

    Exit status: 0 success, 1 a --fail-on condition matched, 2 error.
    """
    moment = read_moment(at)
    fitting = None if would_fit is None else _read_size(would_fit)
    budgets = read_budgets(fail_on, phrase("errors.fail-on.hint", one="critical", other="MD201"))

    from memdiag.cli.choose import choose_trace
    from memdiag.cli.emit import emit, form_of
    from memdiag.cli.offer import offer_fix
    from memdiag.cli.page import read_page
    from memdiag.output_file import is_same

    form = form_of(as_json=as_json, as_md=as_md, output=output, with_html=True)
    page = read_page(as_html, output if form == "html" else None)

    path = choose_trace(trace)
    for option, file in (("--output", output), ("--html", as_html)):
        if file is not None and is_same(file, path):
            raise MemdiagError(
                phrase("errors.is-trace", option=str(option), file=str(file)), phrase("errors.name-another")
            )
    logs = (tuple(nccl_log or ()), flight_recorder)
    loaded, report = _report(path, moment, top, device, replay=not no_replay, fitting=fitting, logs=logs)
    if page is not None:
        page.write(loaded, report, moment, replay=not no_replay)
        if form == "html":
            end_if_hit(_over(report, budgets))
            return

    from memdiag.render import renderer

    emit(partial(renderer("analyze", "full" if full and form == "terminal" else form), report), output)
    if form == "terminal" and any(device.counts.get("num_ooms") for device in report.devices):
        offer_fix(path)
    end_if_hit(_over(report, budgets))


def _read_size(text: str) -> int:
    """Returns the bytes given with ``--would-fit``.

    Raises:
        MemdiagError: The text is not the size of a tensor.
    """
    from memdiag.units import parse_bytes

    size = parse_bytes(text)
    if not 0 < size < 1 << 60:
        raise MemdiagError(phrase("errors.would-fit", text=str(text)), phrase("errors.would-fit.hint"))
    return size


def _report(
    path: Path,
    at: str | int,
    top: int,
    device: int | None,
    *,
    replay: bool,
    fitting: int | None,
    logs: tuple[tuple[Path, ...], Path | None],
) -> tuple[Trace, Report]:
    """Returns the trace in a file, with the memory of libraries, and its report.

    Args:
        path: The file.
        at, top, device, replay, fitting: As in ``build_report``.
        logs: Logs of libraries, and a dump of the flight recorder or None.
    """
    from memdiag.cli.loading import read_trace
    from memdiag.cli.talk import busy
    from memdiag.runs.libraries import with_groups, with_libraries
    from memdiag.runs.neighbours import with_neighbours_beside

    given, dump = logs
    trace = with_neighbours_beside(with_libraries(read_trace(path), given))
    trace = trace if dump is None else with_groups(trace, dump)
    with busy(phrase("progress.diagnosing", count=trace.num_events)):
        from memdiag.analyzers.report import build_report

        return trace, build_report(trace, at=at, top=top, device=device, replay=replay, fitting=fitting)


def _over(report: Report, budgets: list[str]) -> list[str]:
    """Returns the codes of findings and notes that ``--fail-on`` matches, the most severe first."""
    from memdiag.render.support.words import in_order

    return [*over(in_order(report.findings), budgets), *(note.code for note in report.notes if note.code in budgets)]
