"""Records a training loop of Hugging Face Accelerate.

Three lines in the program::

    from memdiag.integrations.accelerate import recorded
    with recorded(accelerator, steps="3:6"):
        train(accelerator)

A step ends with an optimizer step. memdiag writes the report at the end of the block, or, if the loop calls ``step()``
of the object that the block gets, as soon as the steps are recorded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accelerate.logging import get_logger

from memdiag.integrations.loop import TrainingRecorder


@contextlib.contextmanager
def recorded(accelerator: Any, folder: str | Path | None = None, **options: Any) -> Iterator[TrainingRecorder]:
    """Records steps of the training inside the block, and sends the peaks to the trackers of the Accelerator.

    Args:
        accelerator: The Accelerator.
        folder: Folder for the files, or None for ``memdiag`` in its ``project_dir``, or in the working directory.
        options: As for ``memdiag.integrations.loop.TrainingRecorder``.

    Raises:
        MemdiagError: An option cannot be read.
    """

    def log(text: str) -> None:
        get_logger("memdiag").warning(text, main_process_only=False)

    place = folder or Path(accelerator.project_dir or ".") / "memdiag"
    recorder = TrainingRecorder(place, **{"rank": accelerator.process_index, "log": log, **options})
    with recorder:
        yield recorder
    if metrics := recorder.metrics():
        accelerator.log(metrics)
