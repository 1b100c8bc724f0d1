"""The account of memory in an out-of-memory report, as rows: owners of the device memory when the request failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memdiag.render.oom.words import card
from memdiag.render.support.amounts import AmountRow
from memdiag.results.oom import LedgerEntry, Message
from memdiag.sizes.cuda import LARGE_SEGMENT, SMALL_SEGMENT
from memdiag.text import phrase, plain
from memdiag.units import format_bytes

LONGEST_PART = 300  # characters of the name of a part
MOST_OTHERS = 2  # rows for other processes in a short account
_VISIBLE = 0.005  # fraction of the total: smaller unknown parts are not listed in a short account
_OWN = (("█", "green"), ("▒", "red"), ("▓", "blue"), ("▚", "yellow"))
_DRAWN = {"other processes": ("░", "magenta"), "free": ("·", "cyan"), "unknown": ("?", "dim")}
# Sizes in messages that do not allow an account.
_SIZES = (
    "requested_bytes",
    "free_bytes",
    "limit_bytes",
    "total_bytes",
    "allocated_bytes",
    "reserved_bytes",
    "process_bytes",
    "anon_rss_bytes",
    "total_vm_bytes",
    "program_bytes",
    "static_bytes",
)
# Frameworks whose messages are about one tensor, not about a model or a pool.
_ALLOCATORS = frozenset(
    {"pytorch", "torch_npu", "jax", "tensorflow", "mindspore", "paddle", "onnxruntime", "cupy", "mlx"}
)


def total_of(message: Message) -> int | None:
    """Returns the total of the account in bytes, or None if unknown."""
    return next((entry.bytes for entry in message.ledger if entry.owner == "total"), None)


def scale_of(message: Message) -> int | None:
    """Returns the bytes that fractions refer to: the total, else the sum of the known parts; None without any."""
    if all(entry.owner in {"unknown", "total"} for entry in message.ledger):
        return None
    parts = [entry.bytes for entry in message.ledger if entry.owner != "total" and entry.bytes]
    return total_of(message) or (sum(parts) if len(parts) > 1 else None)


def title(message: Message) -> str:
    """Returns the title of the account."""
    if not scale_of(message):
        return phrase("oom.account.sizes")
    total = total_of(message)
    if total is None:
        return phrase("oom.account.unknown", card=card(message))
    return phrase("oom.account", card=card(message), total=format_bytes(total))


def rows(message: Message) -> list[AmountRow]:
    """Returns the parts of a device's memory; if no account can be made, the sizes in the message.

    ``meaning`` is how a number is known if it is not printed in the message.
    """
    whole = scale_of(message)
    if not whole:
        sizes = ((name, message.fields.get(name)) for name in _SIZES)
        return [
            AmountRow(phrase(f"oom.size.{name}"), size, None, "", " ") for name, size in sizes if isinstance(size, int)
        ]
    return list(_parts([entry for entry in message.ledger if entry.owner != "total"], whole))


def short_rows(message: Message) -> list[AmountRow]:
    """Returns the parts worth a line each: without unprinted and tiny unknown ones, and with few other processes."""
    whole = scale_of(message)
    if not whole:
        return []
    entries = [entry for entry in message.ledger if entry.owner != "total" and entry.bytes is not None]
    entries = [entry for entry in entries if entry.owner != "unknown" or (entry.bytes or 0) >= _VISIBLE * whole]
    others = sorted(
        (entry for entry in entries if entry.owner == "other processes"), key=lambda entry: -(entry.bytes or 0)
    )
    rest = others[MOST_OTHERS:]
    if len(rest) < 2:  # a sum of one is not shorter
        return list(_parts(entries, whole))
    last = max(index for index, entry in enumerate(entries) if entry.owner == "other processes")
    total = sum(entry.bytes or 0 for entry in rest)
    entries.insert(
        last + 1, LedgerEntry(phrase("oom.account.more", count=len(rest)), total, "other processes", "computed")
    )
    return list(_parts([entry for entry in entries if entry not in rest], whole))


def _parts(entries: Sequence[LedgerEntry], whole: int) -> Iterator[AmountRow]:
    num_own = 0
    for entry in entries:
        glyph, style = _DRAWN.get(entry.owner) or _OWN[min(num_own, len(_OWN) - 1)]
        num_own += entry.owner == "this process"
        share = entry.bytes / whole if entry.bytes is not None else None
        basis = phrase(f"oom.basis.{entry.basis}") if entry.basis in {"computed", "inferred"} else ""
        yield AmountRow(plain(entry.what, LONGEST_PART), entry.bytes, share, basis, glyph, style)


def request_size(message: Message) -> int | None:
    """Returns the bytes of the failed request, or None if unknown."""
    size = message.fields.get("requested_bytes")
    return size if isinstance(size, int) and size > 0 else None


def tried(message: Message) -> str:
    """Returns the meaning of "Tried to allocate" in this message, or "" if it has no such text."""
    requested = request_size(message)
    if requested is None:
        return ""
    size = format_bytes(requested)
    if "workspace" in message.dialect:
        return phrase("oom.tried.workspace", size=size)
    if message.framework not in _ALLOCATORS:
        return ""
    if message.framework == "jax" and message.backend != "cpu":
        return phrase("oom.tried.jax", size=size)
    if message.framework not in {"pytorch", "torch_npu"} or message.backend not in {"cuda", "hip", "npu", "xpu"}:
        return phrase("oom.tried.request", size=size)
    if requested == SMALL_SEGMENT:
        return phrase("oom.tried.small", size=size)
    if requested == LARGE_SEGMENT:
        return phrase("oom.tried.medium", size=size)
    return phrase("oom.tried.tensor", size=size)
