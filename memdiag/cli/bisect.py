"""``memdiag bisect``: find the commit or package version that raised the peak of a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from memdiag.cli.options import OutputText
from memdiag.errors import MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.gates.revisions import Revisions


def bisect(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GOOD..BAD -- COMMAND …",
            help="Commits, or with --package two versions (GOOD BAD), then the command.",
            show_default=False,
        ),
    ] = None,
    *,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="SIZE",
            help="Peak above which a run is bad, for example 12GiB. Default: halfway between the peaks of GOOD and "
            "BAD.",
            show_default=False,
        ),
    ] = None,
    package: Annotated[
        str | None,
        typer.Option(
            "--package",
            metavar="NAME",
            help="Search the released versions of this package instead of commits.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", metavar="reserved|allocated", help="Peak that is compared with the budget.")
    ] = "reserved",
    phantom: Annotated[
        str | None,
        typer.Option(
            "--phantom",
            metavar="DEVICE",
            help="Run the command on this simulated device, for example cuda:h100-80g.",
            show_default=False,
        ),
    ] = None,
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Directory for the recordings.")] = Path(
        "memdiag-bisect"
    ),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain bisect describes the keys).")
    ] = False,
    output: OutputText = None,
) -> None:
    """Find the commit or package version that raised the peak of a command.

    memdiag records the command at as few commits or versions as possible. It
    checks commits out in a temporary git worktree, and installs versions into
    temporary environments. It skips a run that fails for another reason than
    memory.

    Exit status: 0 found, 1 BAD is within the budget, 2 error.
    """
    import tempfile

    from memdiag.cli.emit import emit, form_of
    from memdiag.cli.loading import OnTerminal
    from memdiag.cli.talk import say
    from memdiag.gates.bisect import METRICS, BisectOrder
    from memdiag.gates.bisect import bisect as search
    from memdiag.render import renderer
    from memdiag.render.bisect.terminal import line
    from memdiag.units import parse_bytes

    form = form_of(as_json=as_json, as_md=False, output=output)
    if metric not in METRICS:
        raise MemdiagError(phrase("bisect.metric", value=metric), phrase("bisect.metric.hint"))
    if runs.exists() and any(runs.iterdir()):
        raise MemdiagError(phrase("bisect.runs", folder=str(runs)), phrase("bisect.runs.hint"))
    good, bad, command = _ends(list(words or []), package)
    order = BisectOrder(
        tuple(command),
        runs.absolute(),
        cast('Literal["reserved", "allocated"]', metric),
        None if budget is None else parse_bytes(budget),
        phantom,
        package or "",
    )
    with tempfile.TemporaryDirectory(prefix="memdiag-bisect-") as scratch:
        revisions = _revisions(package, good, bad, command, Path(scratch))
        try:
            report = search(order, revisions, OnTerminal(), lambda step: say(line(step)))
        finally:
            revisions.close()
    emit(lambda look: renderer("bisect", form)(report, look), output)


def _ends(words: list[str], package: str | None) -> tuple[str, str, list[str]]:
    """Returns both ends of the search, and the command.

    Raises:
        MemdiagError: One of them is missing.
    """
    hint = phrase("bisect.words.hint")
    if package is not None:
        if len(words) < 3:
            raise MemdiagError(phrase("bisect.words.versions"), hint)
        return words[0], words[1], words[2:]
    good, dots, bad = (words[0] if words else "").partition("..")
    if not good or not dots or not bad.lstrip("."):
        raise MemdiagError(phrase("bisect.words"), hint)
    if len(words) < 2:
        raise MemdiagError(phrase("errors.no-command"), hint)
    return good, bad.lstrip("."), words[1:]


def _revisions(package: str | None, good: str, bad: str, command: list[str], scratch: Path) -> Revisions:
    from memdiag.gates.revisions import Commits, Versions

    if package is None:
        return Commits(good, bad, scratch)
    return Versions(package, good, bad, command, scratch)
