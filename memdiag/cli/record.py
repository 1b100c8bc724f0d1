"""``memdiag record``: run a command and record the allocations of all its Python processes that use torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli.options import AsRank, ComputedSizes, ExpertLoad, SelectedFraction, SyntheticValues, World
from memdiag.errors import BUDGET_HIT, DONE, MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.runs.recording import Order


def record(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND …", help="Command to run, as you would type it without memdiag.", show_default=False
        ),
    ] = None,
    *,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR|FILE.pkl",
            help="Directory for the files of the run, or the trace file if the run has one process.",
            show_default=False,
        ),
    ] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option(
            "--backend",
            metavar="cuda|npu|xpu|mps|accelerator|cpu",
            help="Backends to record. Default: the accelerators in use, else the CPU.",
        ),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            metavar="FROM:TO",
            help="Record only the training steps from FROM up to, but not including, TO.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        int,
        typer.Option(
            "--every",
            metavar="N",
            min=0,
            help="Also write the files every N training steps; 0 writes them only at the end.",
            show_default=False,
        ),
    ] = 0,
    samples: Annotated[
        str,
        typer.Option(
            "--samples",
            metavar="SECONDS|off",
            help="Time between samples of device memory; 0 samples only at the marks of phases and steps, off never.",
        ),
    ] = "1",
    max_events: Annotated[
        int,
        typer.Option(
            "--max-events",
            metavar="N",
            min=1,
            help="Maximum number of events to keep for each device; older ones are dropped.",
        ),
    ] = 2_000_000,
    phantom: Annotated[
        str | None,
        typer.Option(
            "--phantom",
            metavar="DEVICE",
            help="Run on a simulated device, for example npu:910b-64g (memdiag devices lists them).",
            show_default=False,
        ),
    ] = None,
    as_rank: AsRank = None,
    world: World = None,
    values: SyntheticValues = None,
    compute: ComputedSizes = None,
    selected: SelectedFraction = None,
    expert_load: ExpertLoad = None,
    logs: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="nccl-log|hccl-log",
            help="Switch on the log of a communication library, and read it at the end; can be repeated.",
            show_default=False,
        ),
    ] = None,
    find_max: Annotated[
        str | None,
        typer.Option(
            "--find-max",
            metavar="NAME=LOW..HIGH",
            help="Find the largest value of the placeholder {NAME} in the command with which the run fits into memory.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts (requires --find-max).")] = False,
    no_names: Annotated[
        bool,
        typer.Option(
            "--no-names", help="Do not search for the names of parameters, gradients, optimizer states and activations."
        ),
    ] = False,
    holders: Annotated[
        bool,
        typer.Option(
            "--holders", help="If a call site holds ever more memory, search for the variables that hold its tensors."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary at the end.")] = False,
) -> None:
    """Run a command and record its memory.

    Works for python -m, torchrun, accelerate, deepspeed and shell scripts, and
    records every Python process of the command that uses torch. The program
    itself, its input, output, signals and exit status stay unchanged.

    Writes memdiag-<run>/rank<k>.pkl (PyTorch snapshots with names, phases and
    steps) and, for a single process, trace.pkl. Run memdiag analyze next.

    Exit status: the command's own; 127 command not found, 126 command not
    executable, 2 error.
    """
    if not command:
        raise MemdiagError(phrase("errors.no-command"), "memdiag record [options] -- python train.py")
    from memdiag.cli.loading import OnTerminal
    from memdiag.recorder.launch import end_as
    from memdiag.runs.order import assumed_values, chosen_logs, settings_of
    from memdiag.runs.recording import Order, perform

    settings = settings_of(
        backend or [], steps, every, max_events, names=not no_names, samples=samples, holders=holders
    )
    assumed = assumed_values(phantom, values=values, compute=compute, expert_load=expert_load, selected=selected)
    order = Order(tuple(command), settings, output, phantom, as_rank, world, assumed, logs=chosen_logs(logs or []))
    searches = {
        "--find-max": find_max is not None,
        "--values auto": values == "auto",
        "--selected LOW..HIGH": selected is not None and ".." in selected,
    }
    if len(chosen := [option for option, is_given in searches.items() if is_given]) > 1:
        raise MemdiagError(phrase("errors.searches", first=chosen[0], second=chosen[1]), phrase("errors.searches.hint"))
    if find_max is not None:
        raise typer.Exit(_find_max(order, find_max, as_json=as_json, quiet=quiet))
    if as_json:
        raise MemdiagError(phrase("errors.json-find-max"), phrase("errors.json-find-max.hint"))
    from memdiag.cli.run_summary import print_summary

    then = None if quiet else print_summary
    if values == "auto":
        from memdiag.runs.values_auto import perform_auto

        done, _ = perform_auto(order, OnTerminal(), then)
    elif selected is not None and ".." in selected:
        from memdiag.runs.selected import perform_selected, read_fractions

        done = perform_selected(order, read_fractions(selected), OnTerminal(), then)
    else:
        done = perform(order, OnTerminal(), then)
    raise typer.Exit(end_as(done.ended))


def _find_max(order: Order, values: str, *, as_json: bool, quiet: bool) -> int:
    """Prints the largest value that fits, and returns the exit status: 1 if not even the smallest fits."""
    from memdiag.cli.loading import OnTerminal
    from memdiag.cli.talk import say, write_out
    from memdiag.render.find_max import json, terminal
    from memdiag.render.support.look import Look
    from memdiag.runs.find_max import find_max
    from memdiag.text import language

    chosen = language() if as_json else "en"
    on_trial = None if quiet else lambda searched, trial: say(terminal.progress(searched, trial))
    found = find_max(order, values, listener=OnTerminal(), on_trial=on_trial, language_of_texts=chosen)
    write_out(json.render(found, chosen=chosen) if as_json else terminal.render(found, Look(width=80)))
    return DONE if found.largest_fitting is not None else BUDGET_HIT
