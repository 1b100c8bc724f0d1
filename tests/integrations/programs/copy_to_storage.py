"""Copies files to a storage that is not the local file system; argument: the folder that stands for it."""

import sys
from pathlib import Path

from pyarrow import fs
from ray.train.v2._internal.execution.storage import StorageContext

from memdiag.integrations.ray_train import copy_to_storage

folder = Path(sys.argv[1])
(folder / "local").mkdir()
(folder / "local" / "rank0.pkl").write_bytes(b"trace")
remote = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
copy_to_storage(folder / "local", StorageContext("bucket", "run", storage_filesystem=remote), print)
