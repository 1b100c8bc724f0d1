"""``memdiag serving``: the memory account of an inference server, read from its start-up log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memdiag.cli.options import AsJson, AsMarkdown


def serving(
    log: Annotated[str, typer.Argument(metavar="FILE", help="Start-up log of the server, or - for standard input.")],
    *,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="DEVICE",
            help="Card of the server, for example h100-80g (memdiag devices lists them); needed if the log does not "
            "contain the size of the card.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    as_md: AsMarkdown = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the report to FILE; the ending .json or .md selects the format.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show from an inference server's start-up log what fills the memory of each card.

    memdiag reads the logs of vLLM, vllm-ascend, SGLang, TensorRT-LLM, llama.cpp
    and Ollama. If the server failed to start, memdiag computes the flags that
    leave enough memory.

    Exit status: 0 success, also if the log has a failure; 2 error.
    """
    from memdiag.cli.emit import emit, form_of
    from memdiag.errors import MemdiagError
    from memdiag.output_file import is_same
    from memdiag.render import renderer
    from memdiag.runs.serving import read_server_log
    from memdiag.text import phrase

    if output is not None and log != "-" and is_same(output, Path(log)):
        raise MemdiagError(phrase("errors.is-input", output=str(output)), phrase("errors.name-another"))
    report = read_server_log(log, device)
    render = renderer("serving", form_of(as_json=as_json, as_md=as_md, output=output))
    emit(lambda look: render(report, look), output)
