"""Selects the parts of a command line and an environment that explain a recording, without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

HIDDEN = "(hidden)"
_SECRET = re.compile(
    r"token$|secret|passw|passphrase|api[-_]?key|credential|(private|access|auth)[-_]?key|(^|[-_])auth([-_]|$)",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"://[^/@\s]+:[^/@\s]+@")
_KEPT = re.compile(
    r"(CUDA|NVIDIA|HIP|ROCR|HSA|ASCEND|NPU|HCCL|NCCL|GLOO|TORCH|PYTORCH|PYTHON|OMP|MKL|MULTI_STREAM_MEMORY|TASK_QUEUE|"
    r"ACCELERATE|"
    r"DEEPSPEED|FSDP|SLURM_(JOB|STEP|PROC|NODE|NTASKS|LOCAL)|MEMDIAG)(_|[A-Z]|$)"
    r"|^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR|MASTER_PORT|VIRTUAL_ENV|CONDA_PREFIX|"
    r"LD_PRELOAD|"
    r"LD_LIBRARY_PATH|MALLOC_CONF|MALLOC_ARENA_MAX)$"
)


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that affect memory, processes and Python, without those that look like secrets."""
    return {name: given[name] for name in sorted(given) if _KEPT.match(name) and not _SECRET.search(name)}


def arguments(given: Sequence[str]) -> list[str]:
    """Returns a command line without the values of options such as ``--hf-token``, and passwords in addresses."""
    kept: list[str] = []
    hide = False
    for word in given:
        name, is_assigned, _ = word.partition("=")
        is_secret = bool(_SECRET.search(name)) and (name.startswith("-") or bool(is_assigned))
        if hide and not word.startswith("-"):
            kept.append(HIDDEN)
            hide = False
        elif is_secret and is_assigned:
            kept.append(f"{name}={HIDDEN}")
            hide = False
        else:
            kept.append(_IN_ADDRESS.sub(f"://{HIDDEN}@", word))
            hide = is_secret
    return kept
