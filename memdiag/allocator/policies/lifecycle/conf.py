"""The settings of MindSpeed's allocator: its own parser of PYTORCH_NPU_ALLOC_CONF, and ALR_MAX."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.errors import MemdiagError
from memdiag.settings.model import NEWEST
from memdiag.settings.parsers import in_bytes, parse
from memdiag.text import phrase

BACKEND = "mindspeed"
NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class MindSpeedSettings:
    """The settings that the allocator reads at its start.

    Attributes:
        max_split_bytes: Blocks of this size or more are never split; ``NO_LIMIT``: no limit.
        threshold_bytes: Blocks of at most this many bytes are short-lived, whatever the prediction.
        optimizes: open_memory_optimize: the first level has a separate search.
        alr_max_bytes: Limit on the reserved bytes (the variable ALR_MAX); ``NO_LIMIT``: no limit.
        expandable: expandable_segments. The feature's own documentation forbids it, but its code supports it.
    """

    max_split_bytes: int = NO_LIMIT
    threshold_bytes: float = 0.0
    optimizes: bool = False
    alr_max_bytes: int = NO_LIMIT
    expandable: bool = False

    @classmethod
    def parse(cls, text: str, alr_max_bytes: int | None = None) -> MindSpeedSettings:
        """Reads PYTORCH_NPU_ALLOC_CONF; as in the original, the collection threshold is read and has no effect.

        Raises:
            MemdiagError: The allocator would not start with it.
        """
        outcome = parse(text, BACKEND, NEWEST[BACKEND])
        if outcome.refused is not None:
            refused = outcome.refused
            raise MemdiagError(
                phrase("errors.mindspeed", value=f"{refused.key or text!r}", reason=str(refused.reason)),
                hint=phrase("errors.mindspeed.hint"),
            )
        values = in_bytes(outcome.values)
        return cls(
            max_split_bytes=min(int(values.get("max_split_size_mb", NO_LIMIT)), NO_LIMIT),  # type: ignore[arg-type]
            threshold_bytes=float(values.get("default_lc_threshold", 0.0)),  # type: ignore[arg-type]
            optimizes=values.get("open_memory_optimize") is True,
            alr_max_bytes=NO_LIMIT if alr_max_bytes is None else alr_max_bytes,
            expandable=values.get("expandable_segments") is True,
        )
