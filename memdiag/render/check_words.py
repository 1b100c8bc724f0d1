"""The places behind a failed check in words, for every form of it that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memdiag.render.text import plain
from memdiag.units import format_bytes, format_count, plural

if TYPE_CHECKING:
    from memdiag.gates.model import Checked, Holder


def title(each: Checked) -> str:
    """Returns what the list of places says."""
    if any(holder.bytes_before is not None for holder in each.holders):
        return "where it grew"
    return "who holds the peak" if each.has_history else "who held memory when the file was taken"


def holder_words(holder: Holder) -> str:
    """Returns ``+2.90 GiB activations of train.py:38 mlp (30 tensors → 60)``; without a baseline what it holds."""
    place = plain(holder.label, 90) + (f" (line {holder.was} in the baseline)" if holder.was else "")
    if holder.bytes_before is None:
        return f"{format_bytes(holder.bytes)} {holder.kind} of {place} ({plural(holder.num_tensors, 'tensor')})"
    counts = plural(holder.num_tensors, "tensor")
    if holder.num_tensors_before != holder.num_tensors:
        counts = f"{plural(holder.num_tensors_before or 0, 'tensor')} → {format_count(holder.num_tensors)}"
    return f"+{format_bytes(holder.bytes - holder.bytes_before)} {holder.kind} of {place} ({counts})"
