"""The settings that GMLake reads from its environment, in addition to the only PyTorch setting that it uses."""

from __future__ import annotations

import math
from dataclasses import dataclass

from memdiag.allocator.versions import variables
from memdiag.allocator.versions.conf import Conf
from memdiag.errors import MemdiagError
from memdiag.settings.conf import parse_conf
from memdiag.text import phrase
from memdiag.units import GIB, MIB

NAMES: tuple[str, ...] = ("fragLimit", "reuseLimit", "defragLevel", "autoGC", "reAlloc")
NO_LIMIT = 1 << 62
_HEEDED = "max_split_size_mb"
_LEVELS = 2


@dataclass(frozen=True)
class GMLakeSettings:
    """The settings of stitching.

    Attributes:
        frag_limit_bytes: Smaller requests are never served by stitching (fragLimit).
        reuse_limit: A stitched block may be reused up to this multiple of the requested size (reuseLimit).
        level: When to stitch (defragLevel): 0 before reserving new memory, 1 if the device has no more memory, 2 only
            after releasing all cached memory.
        collect_bytes: If all stitched blocks together are larger, idle ones are unmapped (autoGC, in GiB).
        adds_missing: Whether to reserve only the bytes that free blocks lack, and to stitch them together (reAlloc).
        max_split_bytes: Blocks of this size or more are never split; ``NO_LIMIT``: no limit.
    """

    frag_limit_bytes: int = 512 * MIB
    reuse_limit: float = 10.0
    level: int = 0
    collect_bytes: int = 1000 * GIB
    adds_missing: bool = False
    max_split_bytes: int = NO_LIMIT

    @classmethod
    def parse(cls, text: str, default: GMLakeSettings | None = None) -> GMLakeSettings:
        """Reads variables and settings: ``fragLimit=268435456,max_split_size_mb:512``.

        Raises:
            MemdiagError: One of them is unknown or invalid.
        """
        default = default or cls()
        given, rest = variables.split(text)
        variables.known(given, NAMES, "GMLake")
        keys = parse_conf(rest)
        others = [key for key in keys if key != _HEEDED]
        if others:
            raise MemdiagError(
                phrase("errors.stitch", value=str(others[0])),
                phrase("errors.stitch.hint", setting=_HEEDED, names=", ".join(NAMES)),
            )
        split = Conf.parse(rest, "cuda", "2.1").max_split
        return cls(
            frag_limit_bytes=_number(given, "fragLimit", default.frag_limit_bytes),
            reuse_limit=_factor(given, default.reuse_limit),
            level=min(_number(given, "defragLevel", default.level), _LEVELS + 1),
            collect_bytes=min(_number(given, "autoGC", default.collect_bytes // GIB), 1 << 31) * GIB,
            adds_missing=_number(given, "reAlloc", default.adds_missing) > 0,
            max_split_bytes=NO_LIMIT if split is None else split,
        )


# Defaults of GMLake's port for NPUs in MindSpeed's SmartSwap.
ON_NPU = GMLakeSettings(frag_limit_bytes=16 * MIB, collect_bytes=3000 * GIB)


def _number(given: dict[str, str], name: str, default: int) -> int:
    return variables.number(name, given[name]) if name in given else default


def _factor(given: dict[str, str], default: float) -> float:
    text = given.get("reuseLimit")
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1 <= value < 1e9:
        raise MemdiagError(phrase("errors.reuse-limit", text=str(text)), phrase("errors.reuse-limit.hint"))
    return value
