"""``memdiag serve-fit``: the plan of an inference server for a card, from the configuration of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memdiag.cli.options import AsJson, AsMarkdown


def serve_fit(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder with a config.json, or that file.")],
    *,
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="Card of the server (memdiag devices lists them).")
    ],
    engine: Annotated[
        str, typer.Option("--engine", metavar="vllm|sglang", help="Inference engine of the server.")
    ] = "vllm",
    context: Annotated[
        int | None,
        typer.Option(
            "--context",
            metavar="N",
            min=1,
            help="Number of tokens in a request. Default: the maximum of the model.",
            show_default=False,
        ),
    ] = None,
    max_num_seqs: Annotated[
        int, typer.Option("--max-num-seqs", metavar="N", min=1, help="Maximum number of requests in a batch.")
    ] = 256,
    max_batched_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-num-batched-tokens",
            metavar="N",
            min=1,
            help="Maximum number of tokens in a batch. Default: 8192, and with SGLang its default for the card.",
            show_default=False,
        ),
    ] = None,
    kv_dtype: Annotated[
        str,
        typer.Option(
            "--kv-dtype", metavar="auto|fp8", help="Data type of the KV cache; auto uses the data type of the model."
        ),
    ] = "auto",
    eager: Annotated[bool, typer.Option("--eager", help="Run without CUDA graphs.")] = False,
    tp: Annotated[str, typer.Option("--tp", metavar="N,N", help="Tensor-parallel sizes to compare.")] = "1,2,4,8",
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
    """Estimate the context, requests and flags of an inference server that fit on a card.

    Weights and KV cache are computed from the configuration; activations,
    graphs and libraries are estimates. Neither the weights nor a card are
    needed.

    Exit status: 0 success, also if nothing fits; 2 error.
    """
    from typing import Literal, cast

    from memdiag.cli.emit import emit, form_of
    from memdiag.errors import MemdiagError
    from memdiag.render import renderer
    from memdiag.runs.serve_fit import serve_plan
    from memdiag.serving.plan import ServeRequest
    from memdiag.text import phrase

    if engine not in {"vllm", "sglang"}:
        raise MemdiagError(phrase("serve_fit.engine", name=engine), phrase("serve_fit.engine.hint"))
    if kv_dtype not in {"auto", "fp8"}:
        raise MemdiagError(phrase("serve_fit.kv-dtype", name=kv_dtype), phrase("serve_fit.kv-dtype.hint"))
    if not all(part.strip().isascii() and part.strip().isdigit() and int(part) for part in tp.split(",")):
        raise MemdiagError(phrase("serve_fit.tp", text=tp), phrase("serve_fit.tp.hint"))
    asked = ServeRequest(
        cast("Literal['vllm', 'sglang']", engine),
        context=context or 0,
        max_num_seqs=max_num_seqs,
        max_batched_tokens=max_batched_tokens or 0,
        kv_dtype=cast("Literal['auto', 'fp8']", kv_dtype),
        has_graphs=not eager,
        sizes=tuple(int(part) for part in tp.split(",")),
    )
    report = serve_plan(model, device, asked)
    render = renderer("serve_fit", form_of(as_json=as_json, as_md=as_md, output=output))
    emit(lambda look: render(report, look), output)
