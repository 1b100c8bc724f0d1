"""``memdiag fix``: choose remedies for a program, apply them without editing it, and measure the result."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli.options import AsRank, ComputedSizes, ExpertLoad, SyntheticValues, World
from memdiag.errors import BUDGET_HIT, DONE, MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.runs.recording import Order


def fix(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN] [COMMAND …]",
            help="Recorded run or trace to start from, or the command to fix, as you would type it.",
            show_default=False,
        ),
    ] = None,
    *,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="SIZE",
            help="Memory of the card that the program should fit into, for example 40GiB. Default: the device's.",
            show_default=False,
        ),
    ] = None,
    phantom: Annotated[
        str | None,
        typer.Option(
            "--phantom",
            metavar="DEVICE",
            help="Run on a simulated device, for example cuda:h100-80g.",
            show_default=False,
        ),
    ] = None,
    as_rank: AsRank = None,
    world: World = None,
    values: SyntheticValues = None,
    compute: ComputedSizes = None,
    selected: Annotated[
        str | None,
        typer.Option(
            "--selected",
            metavar="FRACTION",
            help="Fraction of the elements that masks, nonzero and unique select if their values are unknown (requires "
            "--phantom). Default: 1.",
            show_default=False,
        ),
    ] = None,
    expert_load: ExpertLoad = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, and do not run the fixed program.")
    ] = False,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Also choose remedies that change the results of the training.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="NAME", help="Leave out this remedy; can be repeated.", show_default=False),
    ] = None,
    measure_each: Annotated[
        bool | None,
        typer.Option(
            "--measure-each/--no-measure-each",
            help="Also run the program with each remedy alone, and measure its peak. Default: on simulated devices.",
            show_default=False,
        ),
    ] = None,
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="If the fixed program fits, write memdiag_fix.py and import it at the top of the script."
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="DIR", help="Directory for the recorded runs.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Choose remedies for a program, apply them without editing it, and measure the result.

    memdiag records the program, predicts the peak with each remedy, and chooses
    the cheapest remedies with which the program fits into the budget. It then
    runs the program again with these remedies, and compares the prediction with
    the measured peak. Files of the program change only with --write.

    Exit status: 0 the program fits, 1 it does not, 2 error.
    """
    from memdiag.cli.emit import emit
    from memdiag.cli.loading import OnTerminal
    from memdiag.cli.talk import stdout_to_stderr
    from memdiag.fix.remedies import known
    from memdiag.fix.run import FixOrder
    from memdiag.fix.run import fix as find
    from memdiag.fix.write import write as write_files
    from memdiag.render import renderer
    from memdiag.runs.order import assumed_values
    from memdiag.runs.recording import Order
    from memdiag.units import parse_bytes

    words = list(command or [])
    recorded: Path | None
    if dry_run and len(words) == 1 and Path(words[0]).suffix != ".py" and Path(words[0]).is_file():
        order, recorded = Order((), phantom=phantom), Path(words[0])  # a plan needs no command to run again
    else:
        order, recorded = _order(words, phantom, output)
        if as_rank is not None or world is not None:
            order = replace(order, as_rank=as_rank, world=world)
        if selected is not None and ".." in selected:
            raise MemdiagError(
                phrase("fix.error.selected-range", text=selected), phrase("fix.error.selected-range.hint")
            )
        assumed = assumed_values(
            order.phantom, values=values, compute=compute, expert_load=expert_load, selected=selected
        )
        if assumed or values == "auto":
            order, recorded = replace(order, environment={**order.environment, **assumed}), None
    budget_bytes = None if budget is None else parse_bytes(budget)
    if budget_bytes == 0:
        raise MemdiagError(phrase("errors.not-size", text=f"{budget!r}"), phrase("errors.not-size.hint"))
    wanted = FixOrder(
        order,
        budget_bytes,
        unsafe,
        dry_run,
        known(without or ()),
        measures_each=measure_each,
        finds_values=values == "auto",
    )
    with stdout_to_stderr() if as_json else nullcontext():
        report, plan = find(wanted, recorded, OnTerminal())
    end = report.predicted if report.actual is None else report.actual
    if write and plan.chosen and end.fits:
        report = replace(report, written=write_files(plan, order.command))
    emit(lambda look: renderer("fix", "json" if as_json else "terminal")(report, look), None)
    raise typer.Exit(DONE if end.fits else BUDGET_HIT)


def _order(words: list[str], phantom: str | None, output: str | None) -> tuple[Order, Path | None]:
    """Returns the command to run, and the trace to start from, or None to record the command.

    Raises:
        MemdiagError: There is neither a command nor a run.
    """
    from memdiag.cli.talk import say
    from memdiag.runs.recording import Order
    from memdiag.runs.rerun import again, find_run

    first = Path(words[0]) if words else None
    if first is None:
        raise MemdiagError(phrase("errors.no-command"), "memdiag fix [options] -- python train.py")
    if not first.is_dir() and first.suffix not in {".pkl", ".pickle"}:
        return Order(tuple(words), {}, output, phantom, has_short_name=False), None
    run = find_run(first, say)
    order = again(run, {}, output)
    if len(words) > 1:
        order = replace(order, command=tuple(words[1:]))
    if phantom is not None:
        order = replace(order, phantom=phantom)
    from memdiag.fix.run import usable_trace

    return order, usable_trace(run)
