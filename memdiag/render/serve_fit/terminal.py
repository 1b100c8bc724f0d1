"""The plan of an inference server, for a terminal."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import TerminalPage
from memdiag.results.serve_fit import ServeFitReport, ServePlan
from memdiag.text import phrase, plain
from memdiag.units import format_bytes, format_count

_HEAD = ("tp", "weights", "reserve", "kv", "tokens", "longest", "requests")
_RESERVE = {"activations", "graphs", "other", "before_start", "margin"}
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}


def render(report: ServeFitReport, look: Look = PLAIN) -> str:
    """Returns the report for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    title = phrase("serve_fit.title", model=report.model, device=report.device, engine=_ENGINES[report.engine])
    page.text(plain(title), "bold")
    said = phrase(
        "serve_fit.model",
        architecture=report.architecture,
        parameters=f"{report.num_parameters / 1e9:.2f}e9",
        context=report.context,
    )
    page.text(plain(said))
    page.gap()
    head = [phrase(f"serve_fit.head.{name}") for name in _HEAD]
    page.columns("rrrrrrr", [head, *(_row(plan) for plan in report.plans)])
    chosen = next((plan for plan in report.plans if plan.flags), None)
    shown = chosen or (report.plans[-1] if report.plans else None)
    if shown is not None:
        _parts(page, shown)
    if chosen is None:
        page.gap()
        page.text(phrase("serve_fit.none", context=report.context))
    else:
        page.title(phrase("serve_fit.flags"))
        page.paste(" ".join(chosen.flags), 2)
    page.gap()
    for note in report.notes:
        page.text(note)
    page.text(phrase("serve_fit.verify"))
    return page.finish()


def _row(plan: ServePlan) -> list[str]:
    sizes = {part.kind: part.bytes for part in plan.parts}
    reserve = sum(size for kind, size in sizes.items() if kind in _RESERVE)
    cells = [str(plan.tp), format_bytes(sizes["weights"]), format_bytes(reserve)]
    if not plan.longest:
        return [*cells, phrase("serve_fit.not-fit")]
    numbers = (format_count(plan.kv_tokens), format_count(plan.longest), f"{plan.concurrency:.2f}")
    return [*cells, format_bytes(sizes["kv_cache"]), *numbers]


def _parts(page: TerminalPage, plan: ServePlan) -> None:
    page.title(phrase("serve_fit.parts", count=plan.tp))
    rows = [
        (phrase(f"serve_fit.part.{part.kind}"), format_bytes(part.bytes), phrase(f"serve_fit.basis.{part.basis}"))
        for part in plan.parts
    ]
    page.columns("wrl", rows)
    page.text(phrase("serve_fit.token", size=format_bytes(plan.token_bytes)), indent=2)
