"""``memdiag plan``: lifetimes in, one place in memory for each of them out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.errors import BUDGET_HIT, MemdiagError

if TYPE_CHECKING:
    from memdiag.allocator.placement.model import Plan
    from memdiag.results.plan import PlanReport
    from memdiag.trace.model import DeviceTrace
    from memdiag.trace.table import Array

ENDS = ("half-open", "open", "closed")
OF_ALLOCATORS = 512  # bytes: what PyTorch's allocators round to


def plan(
    trace: Annotated[
        Path | None,
        typer.Argument(
            metavar="TRACE", help="A CSV file with id,lower,upper,size, or a trace. Default: the newest run.", show_default=False
        ),
    ] = None,
    *,
    capacity: Annotated[
        str | None,
        typer.Option(
            "--capacity",
            metavar="SIZE",
            help="Memory of the device, for example 64GiB; the search stops at a plan that fits.",
            show_default=False,
        ),
    ] = None,
    align: Annotated[
        str | None,
        typer.Option(
            "--align", metavar="SIZE", help="Alignment of offsets in bytes. Default: 512 for a trace, 1 for a CSV file.", show_default=False
        ),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", metavar="N", help="Time limit in seconds for the search.")] = 60.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Random seed.")] = 0,
    ends: Annotated[
        str | None,
        typer.Option(
            "--ends",
            metavar="half-open|open|closed",
            help="Ends of a lifetime in a CSV file that count as live: lower, none or both.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        int | None,
        typer.Option(
            "--device",
            metavar="N",
            min=0,
            help="Use only this device of a trace. Default: the one with the most bytes.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.csv", help="Write id,lower,upper,size,offset to this CSV file.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain plan).")] = False,
) -> None:
    """Place tensors with known lifetimes in as little memory as possible.

    The result is what an allocator that knew the future could achieve. Every plan is verified: tensors live at the same time never overlap.

    Exit status: 0 success, 1 the plan exceeds --capacity, 2 error.
    """
    from memdiag.cli.choose import choose_trace, is_same
    from memdiag.units import parse_bytes

    capacity_bytes = None if capacity is None else parse_bytes(capacity)
    align_bytes = None if align is None else parse_bytes(align)
    if align_bytes == 0:
        raise MemdiagError(f"--align {align}: it cannot be 0", "1 means any byte; PyTorch's allocators use 512")
    if not 0 < seconds < 1e9:
        raise MemdiagError(f"--seconds {seconds:g}: not a time to spend", "for example --seconds 60")
    if ends is not None and ends not in ENDS:
        raise MemdiagError(
            f"--ends {ends}: neither {', '.join(ENDS[:-1])} nor {ENDS[-1]}", "half-open: alive from lower until before upper"
        )
    path = choose_trace(trace)
    if output is not None and is_same(output, path):
        raise MemdiagError(f"--output {output}: this is the input itself", "name another file")
    given = _read(path, ends, device)
    report = _plan(given, path, capacity_bytes, align_bytes or given.align, seconds, seed, output)

    from memdiag.cli.emit import emit
    from memdiag.render import renderer

    emit(partial(renderer("plan", "json" if as_json else "terminal"), report), None)
    if report.fits is False:
        raise typer.Exit(BUDGET_HIT)


@dataclass(frozen=True)
class _Given:
    """What is to be placed: names, times as they stand in the file, and lifetimes [lower, upper)."""

    ids: tuple[str, ...]
    shown_lower: Array
    shown_upper: Array
    lower: Array
    upper: Array
    size: Array
    form: str
    ends: str
    align: int
    device: int | None = None
    before: int = 0
    after: int = 0
    recorded: int | None = None
    outside: int | None = None


def _read(path: Path, ends: str | None, device: int | None) -> _Given:
    from memdiag.sources import lifespans_csv
    from memdiag.sources.files import read_head

    if not lifespans_csv.sniff(read_head(path)):
        if ends is not None:
            raise MemdiagError(
                "--ends is of lists of lifetimes, and this is a trace", "leave it out: the order of a trace's events is known"
            )
        return _from_trace(path, device)
    if device is not None:
        raise MemdiagError("--device is of traces, and this is a list of lifetimes", "leave it out")
    rows = lifespans_csv.read_rows(path)
    kind = ends or ("closed" if rows.is_last else "half-open")
    lower, upper = rows.lower + (kind == "open"), rows.upper + (kind == "closed")
    return _Given(rows.ids, rows.lower, rows.upper, lower, upper, rows.size, lifespans_csv.FORMAT, kind, 1)


def _from_trace(path: Path, device: int | None) -> _Given:
    """The tensors of one device, by the events between which they live.

    Raises:
        MemdiagError: It has no such device, or no tensors.
    """
    import numpy as np

    from memdiag.cli.loading import read_trace
    from memdiag.cli.talk import say
    from memdiag.units import plural

    trace = read_trace(path)
    if device is not None and all(each.device != device for each in trace.devices):
        have = ", ".join(str(each.device) for each in trace.devices) or "none"
        raise MemdiagError(f"device {device} is not in this trace", f"devices in it: {have}")
    usable = [each for each in trace.devices if len(each.tensors) and (device is None or each.device == device)]
    if not usable:
        raise MemdiagError(f"{path} has no tensors to place", "record the run from its beginning: memdiag record -- python train.py")
    chosen = max(usable, key=lambda each: int(_sizes(each).sum()))
    if len(usable) > 1:
        say(f"planning device {chosen.device}, the one with most bytes of {plural(len(usable), 'device')}; --device chooses another")
    tensors = chosen.tensors
    reserved = int(chosen.usage.reserved.max(initial=-1))
    return _Given(
        ids=tuple(str(row) for row in range(len(tensors))),
        shown_lower=tensors.alloc_at,
        shown_upper=tensors.free_completed_at,
        lower=tensors.alloc_at,
        upper=np.maximum(tensors.free_completed_at, tensors.alloc_at + 1),
        size=_sizes(chosen),
        form=trace.format,
        ends="half-open",
        align=OF_ALLOCATORS,
        device=chosen.device,
        outside=chosen.card.outside_bytes,
        before=int((tensors.alloc_at < 0).sum()),
        after=int((tensors.free_completed_at >= chosen.num_events).sum()),
        recorded=reserved if reserved >= int(chosen.usage.requested.max(initial=0)) else None,  # some files contradict themselves
    )


def _sizes(device: DeviceTrace) -> Array:
    """Bytes of each tensor: as asked for, else those of its block."""
    import numpy as np

    tensors = device.tensors
    sizes: Array = np.maximum(np.where(tensors.requested_bytes >= 0, tensors.requested_bytes, tensors.block_bytes), 0)
    return sizes


def _plan(
    given: _Given, path: Path, capacity: int | None, align: int, seconds: float, seed: int, output: Path | None
) -> PlanReport:  # fmt: skip
    from memdiag.cli.progress import Line
    from memdiag.cli.talk import busy

    with busy("loading the planner …"):
        from memdiag.allocator.placement.api import plan as make_plan
        from memdiag.allocator.placement.improve import warm
        from memdiag.allocator.placement.rivals import rivals
        from memdiag.allocator.placement.sections import load_of
        from memdiag.results.plan import PlanReport

        warm()
    room = None if capacity is None else max(capacity - (given.outside or 0), 0)
    with Line() as line:
        made = make_plan(given.size, given.lower, given.upper, align, room, seconds, seed=seed, say=lambda text: line(f"planning: {text}"))
    if output is not None:
        _write(output, given, made)
    with busy("comparing it with simpler ways …"):
        others = rivals(given.size, given.lower, given.upper, align)
    exists = given.lower < given.upper
    return PlanReport(
        source=str(path),
        format=given.form,
        device=given.device,
        ends=given.ends,
        num_buffers=len(given.size),
        num_empty=int((~exists | (given.size == 0)).sum()),
        before=given.before,
        after=given.after,
        align=align,
        seed=seed,
        seconds_allowed=seconds,
        capacity_bytes=capacity,
        outside_bytes=given.outside,
        load_bytes=made.load_bytes,
        requested_bytes=load_of(given.size[exists], given.lower[exists], given.upper[exists]),
        height_bytes=made.height_bytes,
        bound_bytes=made.bound_bytes,
        method=made.method,
        ended=made.ended,
        seconds=made.seconds,
        rivals=others,
        recorded_bytes=given.recorded,
        output=None if output is None else str(output),
    )


def _write(output: Path, given: _Given, made: Plan) -> None:
    """Writes the offsets as minimalloc does: the columns of its input, and one more."""
    import csv
    import io

    from memdiag.cli.talk import say
    from memdiag.output_file import whole_file

    columns = (given.shown_lower.tolist(), given.shown_upper.tolist(), given.size.tolist(), made.offsets.tolist())
    with whole_file(output) as file, io.TextIOWrapper(file, "utf-8", newline="") as text:
        table = csv.writer(text, lineterminator="\n")
        table.writerow(("id", "lower", "upper", "size", "offset"))
        table.writerows(zip(given.ids, *columns, strict=True))
    say(f"wrote {output}")
