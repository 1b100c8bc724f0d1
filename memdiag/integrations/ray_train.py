"""Records the workers of Ray Train, inside the function that each worker runs.

Three lines in the program::

    from memdiag.integrations.ray_train import recorded
    with recorded(steps="3:6"):
        train()

A step ends with an optimizer step. memdiag writes the report at the end of the block, or, if the loop calls ``step()``
of the object that the block gets, as soon as the steps are recorded.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray.train

from memdiag.integrations.loop import TrainingRecorder
from memdiag.recorder.guard import contained
from memdiag.text import phrase


@contextlib.contextmanager
def recorded(folder: str | Path | None = None, **options: Any) -> Iterator[TrainingRecorder]:
    """Records steps of the training inside the block.

    Args:
        folder: Folder for the files, or None for ``memdiag`` in the storage of the experiment, beside its checkpoints.
        options: As for ``memdiag.integrations.loop.TrainingRecorder``.

    Raises:
        MemdiagError: An option cannot be read.
    """
    context = ray.train.get_context()
    options = {"rank": context.get_world_rank(), "log": logging.getLogger("ray.train.memdiag").warning, **options}
    storage = _storage(context) if folder is None else None
    if storage is None or storage.storage_filesystem.type_name == "local":
        place = folder or (Path(storage.experiment_fs_path) / "memdiag" if storage else "memdiag")
        with TrainingRecorder(place, **options) as recorder:
            yield recorder
        return
    with tempfile.TemporaryDirectory(prefix="memdiag-") as local:
        try:
            with TrainingRecorder(local, **options) as recorder:
                yield recorder
        finally:
            copy_to_storage(Path(local), storage, options["log"])


def _storage(context: Any) -> Any:
    """Returns the storage of the experiment, or None in a run without one."""
    try:
        return context.get_storage()
    except (NotImplementedError, AttributeError):
        return None


@contained
def copy_to_storage(local: Path, storage: Any, log: Callable[[str], None]) -> None:
    """Copies the files of a folder to ``memdiag`` in the storage of an experiment.

    Args:
        local: The folder.
        storage: Ray's StorageContext.
        log: Receives the name of the target.
    """
    target = f"{storage.experiment_fs_path}/memdiag"
    if any(local.iterdir()):
        storage.storage_filesystem.create_dir(target)
    for file in local.iterdir():
        with file.open("rb") as source, storage.storage_filesystem.open_output_stream(f"{target}/{file.name}") as sink:
            while block := source.read(1 << 20):
                sink.write(block)
    log(phrase("integrations.copied", folder=target))
