"""Parses PYTORCH_CUDA_ALLOC_CONF and PYTORCH_NPU_ALLOC_CONF into the numbers that affect block placement.

Texts are parsed as the allocator of that version parses them (``memdiag.settings.parsers``). A text that it would
refuse is refused here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from memdiag.allocator.versions.rules import DEFAULT_VERSION, rules_for
from memdiag.errors import MemdiagError
from memdiag.settings.model import parse_version
from memdiag.settings.parsers import Value, in_bytes, parse
from memdiag.settings.tables import VARIABLE
from memdiag.sizes import npu
from memdiag.sizes.cuda import LARGE_SEGMENT, SMALL_SEGMENT
from memdiag.text import phrase
from memdiag.units import GIB, MIB


@dataclass(frozen=True, slots=True)
class Reserve:
    """expandable_segments_reserve: upper bound of the address space of an expandable segment.

    Attributes:
        value: A fraction of the device, or GiB.
        is_share: Whether ``value`` is a fraction.
    """

    value: float
    is_share: bool

    @classmethod
    def parse(cls, text: str) -> Reserve | None:
        """Reads ``0.5`` or ``40G``; None for other texts, which the allocator ignores."""
        number = text[:-1] if text[-1:] in ("G", "g") else text
        if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", number, re.ASCII):
            return None
        value = float(number)
        return cls(value, number == text) if 0 < value < math.inf else None

    def of(self, device_bytes: int) -> int:
        """Returns the bytes on a device of a given size; at most 9/8 of the device are reserved."""
        return int(min(self.value * (device_bytes if self.is_share else GIB), float(device_bytes + device_bytes // 8)))


@dataclass(frozen=True, slots=True)
class Conf:
    """One settings text for one backend and version. Sizes are bytes.

    Attributes:
        expandable: expandable_segments.
        large_segment: Size of a new segment for a request of 1 to 10 MiB; with huge pages, the unit of all large
            segments.
        large_page, small_page: Units in which expandable segments grow.
        max_split: Blocks of this size or more are not split; None: no limit.
        non_split_rounding: Bytes by which such a block may exceed the request.
        divisions: roundup_power2_divisions, 16 entries.
        gc_threshold: garbage_collection_threshold; 0: off.
        fraction: per_process_memory_fraction; None: not set.
        rejects: throw_on_cudamalloc_oom, throw_on_npumalloc_oom.
        huge_pages: page_size:1g.
        alignment: Large blocks of expandable segments begin at multiples of this; 0: anywhere.
        is_lazy: multi_stream_lazy_reclaim.
        reserve: expandable_segments_reserve; None: not set.
        is_reused_in_capture: graph_capture_record_stream_reuse.
    """

    expandable: bool = False
    large_segment: int = LARGE_SEGMENT
    large_page: int = LARGE_SEGMENT
    small_page: int = SMALL_SEGMENT
    max_split: int | None = None
    non_split_rounding: int = LARGE_SEGMENT
    divisions: tuple[int, ...] = (0,) * 16
    gc_threshold: float = 0.0
    fraction: float | None = None
    rejects: bool = False
    huge_pages: bool = False
    alignment: int = 0
    is_lazy: bool = False
    reserve: Reserve | None = None
    is_reused_in_capture: bool = False

    @classmethod
    def parse(cls, text: str, backend: str, version: str) -> Conf:
        """Reads ``text`` as ``backend`` ("cuda", "npu") does in ``version`` ("2.13").

        Raises:
            MemdiagError: The allocator refuses the text, or the text selects another allocator than PyTorch's own.
        """
        number = parse_version(version) or DEFAULT_VERSION
        outcome = parse(text, backend, number)
        if outcome.refused:
            raise MemdiagError(
                phrase(
                    "errors.refuses",
                    value=str(VARIABLE[backend]),
                    text=str(text),
                    key=str(outcome.refused.key),
                    reason=str(outcome.refused.reason),
                ),
                phrase("errors.refuses.hint", text=str(text)),
            )
        values = in_bytes(outcome.values)
        if values.get("backend", "native") != "native":
            raise MemdiagError(
                phrase("errors.backend", value=str(values["backend"])),
                phrase("errors.backend.hint"),
            )
        return cls._from(values, backend, version)

    @classmethod
    def _from(cls, values: dict[str, Value], backend: str, version: str) -> Conf:
        rules = rules_for(backend, version)
        large = _whole(values, "large_segment_size_mb", LARGE_SEGMENT)
        huge = values.get("page_size") == "1g"
        page = (
            npu.HUGE_PAGE
            if huge
            else _whole(values, "large_segment_size_mb", _whole(values, "segment_size_mb", LARGE_SEGMENT))
        )
        max_split = _whole(values, "max_split_size_mb", -1)
        divisions = values.get("roundup_power2_divisions", (0,) * 16)
        fraction = values.get("per_process_memory_fraction")
        expandable = values.get("expandable_segments") is True
        if expandable and backend == "cuda" and page % SMALL_SEGMENT:
            raise MemdiagError(
                phrase("errors.odd-page", size=str(page // MIB)),
                phrase("errors.even"),
            )
        return cls(
            expandable=expandable,
            large_segment=large,
            large_page=page,
            max_split=None if max_split < 0 or max_split >= 1 << 62 else max_split,
            non_split_rounding=_whole(
                values, "max_non_split_rounding_mb", large if rules.rounding_follows_segment else LARGE_SEGMENT
            ),
            divisions=divisions if isinstance(divisions, tuple) else (0,) * 16,
            gc_threshold=_real(values.get("garbage_collection_threshold", 0.0)),
            fraction=None if fraction is None else _real(fraction),
            rejects=values.get("throw_on_cudamalloc_oom") is True or values.get("throw_on_npumalloc_oom") is True,
            huge_pages=huge,
            alignment=_whole(values, "base_addr_aligned_kb", npu.ALIGNMENT) if backend == "npu" else 0,
            is_lazy=values.get("multi_stream_lazy_reclaim") is True,
            is_reused_in_capture=values.get("graph_capture_record_stream_reuse") is True,
            reserve=Reserve.parse(str(values.get("expandable_segments_reserve", ""))),
        )


def _whole(values: dict[str, Value], key: str, default: int) -> int:
    value = values.get(key, default)
    return value if isinstance(value, int) else default


def _real(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
