"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TraceOrRun = Annotated[
    Path | None,
    typer.Argument(
        metavar="TRACE",
        help="A trace file or run directory. Default: the newest run in this directory.",
        show_default=False,
    ),
]
AsMarkdown = Annotated[bool, typer.Option("--md", help="Print Markdown to paste into an issue.")]
FailOnFindings = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="warning|critical|CODE",
        help="Exit with status 1 if a finding has this severity or code; can be repeated.",
        show_default=False,
    ),
]
Top = Annotated[int, typer.Option("--top", metavar="N", min=1, help="Maximum number of rows in each list.")]
AsHtml = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page to FILE.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
AsRank = Annotated[
    int | None,
    typer.Option(
        "--as-rank",
        metavar="K",
        min=0,
        help="Run only one process of a distributed program, as rank K of --world N (requires --phantom).",
        show_default=False,
    ),
]
World = Annotated[
    int | None,
    typer.Option(
        "--world",
        metavar="N",
        min=1,
        help="Number of ranks that the program sees (requires --phantom).",
        show_default=False,
    ),
]
OutputText = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the report to FILE; the ending .json selects JSON.",
        show_default=False,
    ),
]
OutputReport = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the report to FILE; the ending .json, .md or .html selects the format.",
        show_default=False,
    ),
]
NoReplay = Annotated[
    bool,
    typer.Option("--no-replay", help="Skip the replays that predict how much memory other allocator settings save."),
]
DeviceNumber = Annotated[
    int | None,
    typer.Option(
        "--device",
        metavar="N",
        min=0,
        help="Use only this device. Default: the one with the highest peak.",
        show_default=False,
    ),
]
ExpertLoad = Annotated[
    str | None,
    typer.Option(
        "--expert-load",
        metavar="balanced|skew=F|counts=FILE",
        help="Assumed distribution of tokens over the experts of a mixture of experts (requires --phantom).",
        show_default=False,
    ),
]
SyntheticValues = Annotated[
    str | None,
    typer.Option(
        "--values",
        metavar="zeros|ones|random|finite|auto",
        help="Values that kernels of the simulated device return; auto runs the command again with other values "
        "if it fails after reading them (requires --phantom). Default: zeros.",
        show_default=False,
    ),
]
ComputedSizes = Annotated[
    str | None,
    typer.Option(
        "--compute",
        metavar="none|small|masks[=SIZE]",
        help="Compute tensors of at most SIZE, for example 1MiB, on the CPU, so that they have true values; masks: "
        "also larger integers and masks (requires --phantom). Default: indices, masks and counters up to 1 MiB.",
        show_default=False,
    ),
]
SelectedFraction = Annotated[
    str | None,
    typer.Option(
        "--selected",
        metavar="FRACTION|LOW..HIGH",
        help="Fraction of the elements that masks, nonzero and unique select if their values are unknown; a range "
        "reports the peak at both ends (requires --phantom). Default: 1.",
        show_default=False,
    ),
]
