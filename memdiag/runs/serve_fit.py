"""Plans an inference server: reads the configuration and the profile of the card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from memdiag.phantom.profiles import choose
from memdiag.results.serve_fit import ServeFitReport
from memdiag.serving.plan import ServeRequest, plan, size_of_files
from memdiag.serving.shapes import read_shapes


def serve_plan(model: Path, device: str, asked: ServeRequest) -> ServeFitReport:
    """Returns the plan of an inference server for a card.

    Args:
        model: Folder of a Hugging Face model, or its ``config.json``; the weights are not needed.
        device: Name of the card, such as "h100-80g".
        asked: The engine and its batch; the fields of the card are filled in.

    Raises:
        MemdiagError: The configuration cannot be read, the model is of another kind, or the device is unknown.
    """
    card = choose(device)
    asked = replace(asked, device=card.full_name, card_bytes=card.total_bytes, context_bytes=card.context_bytes)
    shapes = read_shapes(model)
    folder = model if model.is_dir() else model.parent
    return plan(folder.resolve().name, shapes, asked, size_of_files(folder))
