"""Small snapshots for comparisons: a list of call sites and their retained tensors, in PyTorch's format."""

from __future__ import annotations

import pickle

import pytest

MIB = 1 << 20


@pytest.fixture
def snapshot(tmp_path):
    """Writes a snapshot in which call sites allocate tensors in turn, each in its own segment."""

    def write(name, held, folder="/home/ann/job", conf=""):
        """Writes a snapshot.

        Args:
            held: (file, line, function, MiB, number of tensors).
            folder: Prefix of each file.
            conf: Settings string.
        """
        entries, segments, addr = [], [], 0
        for file, line, function, size, count in held:
            frames = [{"filename": f"{folder}/{file}", "line": line, "name": function}]
            for _ in range(count):
                size_bytes = size * MIB
                entry = {"addr": addr, "size": size_bytes, "stream": 0, "frames": frames}
                entries += [{"action": action, **entry} for action in ("segment_alloc", "alloc")]
                block = {
                    "size": size_bytes,
                    "requested_size": size_bytes,
                    "state": "active_allocated",
                    "address": addr,
                    "frames": frames,
                }
                segments.append(
                    {
                        "address": addr,
                        "total_size": size_bytes,
                        "allocated_size": size_bytes,
                        "active_size": size_bytes,
                        "stream": 0,
                        "requested_size": size_bytes,
                        "segment_type": "large",
                        "device": 0,
                        "blocks": [block],
                    }
                )
                addr += size_bytes
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        settings = {"PYTORCH_CUDA_ALLOC_CONF": conf}
        with path.open("wb") as file:
            pickle.dump({"segments": segments, "device_traces": [entries], "allocator_settings": settings}, file)
        return path

    return write
