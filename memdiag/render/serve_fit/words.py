"""Words and rows that every form of the plan of an inference server shares."""

from __future__ import annotations

from memdiag.results.serve_fit import ServeFitReport, ServePlan
from memdiag.text import phrase
from memdiag.units import format_bytes, format_count

_HEAD = ("tp", "weights", "reserve", "kv", "tokens", "longest", "requests")
_RESERVE = {"activations", "graphs", "other", "before_start", "margin"}
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}


def title(report: ServeFitReport) -> str:
    """Returns the model, the device and the engine."""
    return phrase("serve_fit.title", model=report.model, device=report.device, engine=_ENGINES[report.engine])


def subject(report: ServeFitReport) -> str:
    """Returns the architecture, the parameters and the length of a request."""
    return phrase(
        "serve_fit.model",
        architecture=report.architecture,
        parameters=f"{report.num_parameters / 1e9:.2f}e9",
        context=report.context,
    )


def head() -> list[str]:
    """Returns the headings of the table of plans."""
    return [phrase(f"serve_fit.head.{name}") for name in _HEAD]


def row(plan: ServePlan) -> list[str]:
    """Returns a plan's cells; fewer than there are headings if the model does not fit."""
    sizes = {part.kind: part.bytes for part in plan.parts}
    reserve = sum(size for kind, size in sizes.items() if kind in _RESERVE)
    cells = [str(plan.tp), format_bytes(sizes["weights"]), format_bytes(reserve)]
    if not plan.longest:
        return [*cells, phrase("serve_fit.not-fit")]
    numbers = (format_count(plan.kv_tokens), format_count(plan.longest), f"{plan.concurrency:.2f}")
    return [*cells, format_bytes(sizes["kv_cache"]), *numbers]


def parts(plan: ServePlan) -> list[tuple[str, str, str]]:
    """Returns the name, size and basis of each part of a card."""
    return [
        (phrase(f"serve_fit.part.{part.kind}"), format_bytes(part.bytes), phrase(f"serve_fit.basis.{part.basis}"))
        for part in plan.parts
    ]


def shown(report: ServeFitReport) -> ServePlan | None:
    """Returns the plan whose parts are listed: the smallest that fits, else the largest."""
    fits = next((plan for plan in report.plans if plan.flags), None)
    return fits or (report.plans[-1] if report.plans else None)
