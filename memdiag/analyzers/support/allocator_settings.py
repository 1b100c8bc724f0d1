"""The recorded allocator settings of a trace, and the text of a changed settings line.

CUDA snapshots since 2.1 contain the raw text and some resulting values; torch_npu snapshots and most other formats
contain no settings. Settings visible in the trace itself (expandable segments) count as set even if the file
contradicts them, since settings can be changed at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.remedies import offer, offers
from memdiag.diagnosis.remedies.model import Situation
from memdiag.results.finding import Fix
from memdiag.results.shared_cards import Neighbour
from memdiag.settings.conf import parse_conf
from memdiag.settings.exclusions import EXCLUDED_BY_EXPANDABLE
from memdiag.sizes.cuda import SMALL_SEGMENT
from memdiag.trace.layout import Layout
from memdiag.trace.model import Trace

# Only the first variable that is set is read (verified with torch 2.13).
VARIABLES: tuple[str, ...] = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NPU_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
)
_VARIABLE_OF = {
    "cuda": "PYTORCH_CUDA_ALLOC_CONF",
    "hip": "PYTORCH_HIP_ALLOC_CONF",
    "npu": "PYTORCH_NPU_ALLOC_CONF",
}
NPU_EXCLUDED = EXCLUDED_BY_EXPANDABLE


@dataclass(frozen=True)
class AllocatorSettings:
    """Settings of one trace.

    Attributes:
        backend: "cuda", "npu", …, or None if unknown.
        variable: Environment variable that contained the text, or would contain it.
        text: The raw text, "" if the variable was not set, or None if the file does not record it.
        keys: Keys and values of the text.
        expandable_seen: Whether a device of the trace has an expandable segment.
        expandable_recorded: Value of expandable_segments in the file, or None.
        layout: Block sizes for requests, according to settings and blocks of the file.
        neighbours: Other recorded processes on the card, see ``Trace.neighbours``.
        on_windows: Whether the program ran on Windows, where PyTorch has no expandable segments.
    """

    backend: str | None
    variable: str
    text: str | None
    keys: Mapping[str, str]
    expandable_seen: bool
    expandable_recorded: bool | None
    layout: Layout
    neighbours: tuple[Neighbour, ...] = ()
    on_windows: bool = False

    @classmethod
    def of(cls, trace: Trace) -> AllocatorSettings:
        """Returns the settings of ``trace``."""
        texts = {name: value for name in VARIABLES if isinstance(value := trace.settings.get(name), str)}
        chosen = next((name for name, value in texts.items() if value), next(iter(texts), None))
        variable = chosen or _VARIABLE_OF.get(trace.backend or "", "PYTORCH_ALLOC_CONF")
        text = texts[chosen] if chosen else None
        keys = parse_conf(text or "")
        recorded = trace.settings.get("expandable_segments")
        if not isinstance(recorded, bool):
            recorded = keys["expandable_segments"].lower() == "true" if "expandable_segments" in keys else None
        seen = any(
            bool(device.regions.expandable.any() or device.segments.expandable.any()) for device in trace.devices
        )
        return cls(
            trace.backend,
            variable,
            text,
            keys,
            seen,
            recorded,
            trace.layout,
            trace.neighbours,
            trace.stacks.on_windows,
        )

    @property
    def is_known(self) -> bool:
        """True if the file records any settings."""
        return self.text is not None or self.expandable_recorded is not None

    @property
    def expandable(self) -> bool:
        """True if expandable segments are set or seen."""
        return self.expandable_seen or bool(self.expandable_recorded)

    @property
    def can_change(self) -> bool:
        """True if memdiag knows an environment variable of this backend."""
        return self.backend in _VARIABLE_OF

    def page_bytes(self, *, small: bool) -> int:
        """Returns the bytes of one page of an expandable segment, the unit of release."""
        return SMALL_SEGMENT if small else self.layout.large_segment

    def line(self, changes: Mapping[str, str | None]) -> str:
        """Returns the line to paste: the settings in effect with ``changes`` (None: the key is removed)."""
        return self.situation().line(changes)

    def situation(self, facts: Facts | None = None) -> Situation:
        """Returns what remedies need to know; ``facts`` are the numbers of a failure or of a request."""
        return Situation(
            backend=self.backend or "",
            facts=facts or Facts(is_printed=False, backend=self.backend or ""),
            variable=self.variable,
            settings=self.keys,
            is_expandable=self.expandable,
            large_segment=self.page_bytes(small=False),
            has_settings=self.can_change,
            on_windows=self.on_windows,
            neighbours=self.neighbours,
            framework="torch_npu" if self.backend == "npu" else "pytorch",
        )

    def offer(self, name: str, *, when: str = "", caveat: str = "") -> Fix | None:
        """Returns a remedy by name; see ``remedies.offer``."""
        return offer(name, self.situation(), when=when, caveat=caveat)

    def offers(self, *names: str) -> tuple[Fix, ...]:
        """Returns the remedies that apply, in this order."""
        return offers(self.situation(), *names)
