"""Which keys a backend knows in a version, and which other backends know a key."""

from __future__ import annotations

from memdiag.settings import cuda_keys, mindspeed_keys, npu_keys
from memdiag.settings.model import BACKENDS, NEWEST, Backend, Key, Version
from memdiag.text import Phrase, phrase

KEYS: dict[str, tuple[Key, ...]] = {
    "cuda": cuda_keys.KEYS,
    "hip": cuda_keys.HIP_KEYS,
    "npu": npu_keys.KEYS,
    "mindspeed": mindspeed_keys.KEYS,
}
# The variable named in the documentation of each backend.
VARIABLE: dict[str, str] = {
    "cuda": "PYTORCH_CUDA_ALLOC_CONF",
    "hip": "PYTORCH_HIP_ALLOC_CONF",
    "npu": "PYTORCH_NPU_ALLOC_CONF",
    "mindspeed": "PYTORCH_NPU_ALLOC_CONF",
}


def backend_words(backend: str) -> Phrase:
    """Returns the name of a backend, in words."""
    return phrase(f"conf.backend.{backend}")


def known(backend: str, version: Version) -> dict[str, Key]:
    """Returns the keys that ``backend`` knows in ``version``, by name."""
    return {key.name: key for key in KEYS[backend] if key.is_in(version)}


def every(backend: str) -> dict[str, Key]:
    """Returns the keys of ``backend`` in any version, by name."""
    return {key.name: key for key in KEYS[backend]}


def elsewhere(name: str, backend: str) -> list[Backend]:
    """Returns the other backends that know the key ``name`` in any version."""
    return [other for other in BACKENDS if other not in {backend, "mindspeed"} and name in every(other)]


def newest(backend: str) -> Version:
    """Returns the newest version that the table of ``backend`` was checked against."""
    return NEWEST[backend]
