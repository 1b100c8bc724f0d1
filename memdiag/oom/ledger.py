"""The account of a device's memory at the failure: every byte of the card is somebody's, free, or said to be unknown."""

from __future__ import annotations

from memdiag.oom.model import Found, LedgerEntry


def account(found: Found) -> tuple[LedgerEntry, ...]:
    """Returns the ledger of a message: parts that add up to the total, which comes last; empty where nothing is printed."""
    total = found.fields.get("total_bytes")
    return (LedgerEntry("total", total, "total", "printed"),) if isinstance(total, int) else ()
