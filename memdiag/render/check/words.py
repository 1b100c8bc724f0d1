"""The call sites of a failed check in words, for all forms for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdiag.text import phrase, plain
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from memdiag.results.check import CheckedSite, DeviceCheck


def title(each: DeviceCheck) -> str:
    """Returns the title of the list of call sites."""
    if any(holder.baseline_bytes is not None for holder in each.sites):
        return phrase("check.title.grew")
    return phrase("check.title.peak" if each.has_history else "check.title.snapshot")


def holder_words(holder: CheckedSite) -> str:
    """Returns ``+2.90 GiB activations of train.py:38 mlp (30 tensors → 60)``.

    Without a baseline, it is the memory that the call site holds.
    """
    label = plain(holder.label, 90)
    place = phrase("check.moved", place=label, line=str(holder.baseline_line)) if holder.baseline_line else label
    counts = phrase("check.tensors", count=holder.num_tensors)
    if holder.baseline_bytes is None:
        return phrase("check.holder", bytes=format_bytes(holder.bytes), kind=holder.kind, place=place, tensors=counts)
    if holder.baseline_num_tensors != holder.num_tensors:
        counts = phrase("check.tensors.changed", count=holder.baseline_num_tensors or 0, now=holder.num_tensors)
    more = f"+{format_bytes(holder.bytes - holder.baseline_bytes)}"
    return phrase("check.holder", bytes=more, kind=holder.kind, place=place, tensors=counts)
