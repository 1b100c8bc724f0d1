"""Records a Trainer of Hugging Face transformers, and of libraries that extend it, such as TRL.

Three lines in the program::

    from memdiag.integrations.huggingface import attach
    attach(trainer, steps="3:6")
    trainer.train()

A callback of transformers does not see exceptions. So ``attach`` also catches them in ``trainer.train`` and raises them
again. ``HuggingFaceCallback`` alone logs the diagnosis when the program ends.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.utils import logging

from memdiag.integrations.loop import TrainingRecorder


class HuggingFaceCallback(TrainerCallback):  # type: ignore[misc]
    """Records steps of the training; the files are in ``memdiag`` in the Trainer's ``output_dir``.

    Args:
        folder: Folder for the files instead, or None.
        options: As for ``memdiag.integrations.loop.TrainingRecorder``.

    Attributes:
        recorder: The recorder of the current training.

    Raises:
        MemdiagError: An option cannot be read.
    """

    def __init__(self, folder: str | Path | None = None, **options: Any) -> None:
        self._folder = folder
        options.setdefault("log", logging.get_logger("transformers.memdiag").warning)
        self._options = options
        self.recorder = TrainingRecorder(folder or "memdiag", **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Starts the recording."""
        if self.recorder.is_running:  # auto_find_batch_size starts again after an out-of-memory error
            self.recorder.failed()
        else:
            folder = self._folder or Path(args.output_dir) / "memdiag"
            self.recorder = TrainingRecorder(folder, **{"rank": args.process_index, **self._options})
        self.recorder.start(declares_steps=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Ends a step."""
        self.recorder.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Writes the report, if the training had fewer steps than were to be recorded."""
        self.recorder.finish()


def attach(trainer: Any, folder: str | Path | None = None, **options: Any) -> HuggingFaceCallback:
    """Adds the callback to a Trainer, and logs the diagnosis of an error that ends ``trainer.train()``.

    Args:
        trainer: The Trainer.
        folder: Folder for the files, or None for ``memdiag`` in the Trainer's ``output_dir``.
        options: As for ``memdiag.integrations.loop.TrainingRecorder``.

    Raises:
        MemdiagError: An option cannot be read.
    """
    callback = HuggingFaceCallback(folder, **options)
    trainer.add_callback(callback)
    train = trainer.train

    @functools.wraps(train)
    def watched(*args: Any, **kwargs: Any) -> Any:
        try:
            return train(*args, **kwargs)
        except BaseException as error:
            callback.recorder.failed(error)
            raise

    trainer.train = watched
    return callback


MemdiagCallback = HuggingFaceCallback  # the name in earlier versions
