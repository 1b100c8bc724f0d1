"""The description of a setting and of the versions that have it: plain data, filled in by one file per backend.

Versions are releases of torch for CUDA and ROCm, and of torch_npu for Ascend, as (major, minor). A key's first version
is the first release whose library contains its name. torch_npu also backports some keys to later post-releases of older
lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from memdiag.text import Phrase, catalogue, phrase

Version = tuple[int, int]
Kind = Literal["mib", "kib", "count", "fraction", "bool", "word", "divisions"]
Backend = Literal["cuda", "hip", "npu", "mindspeed"]
BACKENDS: tuple[Backend, ...] = ("cuda", "hip", "npu", "mindspeed")

NEWEST: dict[str, Version] = {"cuda": (2, 13), "hip": (2, 13), "npu": (2, 13), "mindspeed": (2, 13)}


def type_words(kind: Kind) -> Phrase:
    """Returns the type of a value of ``kind``, in words."""
    return phrase(f"conf_keys.kind.{kind}")


@dataclass(frozen=True, slots=True)
class Key:
    """One key of an allocator setting. The catalogue ``conf_keys`` has its effect, default and range.

    Attributes:
        name: As written in the text.
        kind: Type of its value.
        since: First version that supports it.
        until: First version that no longer supports it, or None.
        lowest: Smallest allowed number.
        highest: Largest allowed number.
        is_open: Whether ``lowest`` and ``highest`` themselves are excluded.
        words: Allowed words.
        is_power_of_two: Only powers of two are allowed.
        is_digits: Whether the value must consist of digits only (torch_npu checks this for some keys).
        at_least_segment: The number must not be below large_segment_size_mb.
        replaced_by: The name to use instead; "" unless deprecated.
        host_only: Whether it concerns pinned host memory instead of the device.
        of: Backend whose texts in the catalogue apply ("hip", "mindspeed"), if the key has different texts there.
    """

    name: str
    kind: Kind
    since: Version
    until: Version | None = None
    lowest: float | None = None
    highest: float | None = None
    is_open: bool = False
    words: tuple[str, ...] = ()
    is_power_of_two: bool = False
    is_digits: bool = False
    at_least_segment: bool = False
    replaced_by: str = ""
    host_only: bool = False
    of: str = ""

    @property
    def meaning(self) -> Phrase:
        """Its effect, in a sentence."""
        return phrase(f"conf_keys.{self._text}")

    @property
    def default(self) -> Phrase:
        """The behaviour without it, in words."""
        return self._part("default")

    @property
    def range(self) -> Phrase:
        """Allowed values, in words."""
        return self._part("range")

    @property
    def _text(self) -> str:
        return f"{self.of}.{self.name}" if self.of else self.name

    def _part(self, part: str) -> Phrase:
        own = f"{self._text}.{part}" in catalogue("conf_keys")
        return phrase(f"conf_keys.{self._text}.{part}") if own else phrase(f"conf_keys.all.{self.kind}.{part}")

    def is_in(self, version: Version) -> bool:
        """Returns whether ``version`` supports this key."""
        return self.since <= version and (self.until is None or version < self.until)


def parse_version(text: str) -> Version | None:
    """Returns ``(2, 6)`` for ``2.6``, ``2.6.0+cu124`` or ``v2.6.0.post3``, or None if it is not a version."""
    match = re.match(r"\s*v?(\d{1,4})\.(\d{1,4})(?![0-9])", text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def version_text(version: Version) -> str:
    """Returns ``2.6``."""
    return f"{version[0]}.{version[1]}"
