"""Records a Trainer of Lightning.

Three lines in the program::

    from memdiag.integrations.lightning import LightningCallback
    trainer = Trainer(callbacks=[LightningCallback(steps="3:6")])
    trainer.fit(model)

It works with the package ``lightning`` and with ``pytorch_lightning``: with the one that the program has imported.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdiag.integrations.loop import TrainingRecorder

if TYPE_CHECKING or "lightning" in sys.modules or "pytorch_lightning" not in sys.modules:
    from lightning.pytorch.callbacks import Callback

    _LOGGER = "lightning.pytorch.memdiag"
else:
    from pytorch_lightning.callbacks import Callback

    _LOGGER = "pytorch_lightning.memdiag"


class LightningCallback(Callback):  # type: ignore[misc]
    """Records steps of the training, and sends the peaks to the loggers of the Trainer.

    The files are in ``memdiag`` in the directory of the run, which also holds the checkpoints.

    Args:
        folder: Folder for the files instead, or None.
        options: As for ``memdiag.integrations.loop.TrainingRecorder``.

    Attributes:
        recorder: The recorder of the current training.

    Raises:
        MemdiagError: An option cannot be read.
    """

    def __init__(self, folder: str | Path | None = None, **options: Any) -> None:
        super().__init__()
        self._folder = folder
        options.setdefault("log", logging.getLogger(_LOGGER).info)  # Lightning shows its information
        self._options = options
        self._steps = 0
        self.recorder = TrainingRecorder(folder or "memdiag", **options)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Starts the recording, before Lightning's check of the validation."""
        folder = self._folder or Path(trainer.log_dir or trainer.default_root_dir) / "memdiag"
        self.recorder = TrainingRecorder(folder, **{"rank": trainer.global_rank, **self._options})
        self._steps = trainer.global_step
        self.recorder.start(declares_steps=True)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
        """Ends a step, unless this batch only accumulated gradients."""
        if trainer.global_step != self._steps and self.recorder.is_running:
            self._steps = trainer.global_step
            self.recorder.step()
            self._send(trainer)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Writes the report, if the training had fewer steps than were to be recorded."""
        if self.recorder.is_running:
            self.recorder.finish()
            self._send(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        """Logs the diagnosis if memory ran out."""
        self.recorder.failed(exception)

    def _send(self, trainer: Any) -> None:
        metrics = {} if self.recorder.is_running else self.recorder.metrics()
        for logger in trainer.loggers if metrics else ():
            logger.log_metrics(metrics, step=trainer.global_step)


MemdiagCallback = LightningCallback  # the name in earlier versions
