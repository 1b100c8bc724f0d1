"""Messages of PyTorch for given numbers, and what the joined report says of them."""

from memdiag.analyzers.support.joined import join
from memdiag.oom.read import read_text
from memdiag.units import GIB, MIB


def printed(size):
    """Returns a size as PyTorch prints it."""
    for limit, unit in ((1024, ""), (MIB, "KiB"), (GIB, "MiB")):
        if size <= limit:
            return f"{size} bytes" if not unit else f"{size / (limit // 1024):.2f} {unit}"
    return f"{size / GIB:.2f} GiB"


def message(requested, allocated, reserved, free, total=GIB, device=0, limit=None, others=(), pool=0):
    """Returns the message of PyTorch 2.5 and later for these numbers."""
    text = (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {printed(requested)}. GPU {device} has a total "
        "capacity of "
    )
    text += f"{printed(total)} of which {printed(free)} is free. "
    text += "".join(f"Process {pid} has {printed(size)} memory in use. " for pid, size in others)
    text += f"Including non-PyTorch memory, this process has {printed(reserved)} memory in use. " if others else ""
    text += f"{printed(limit)} allowed; " if limit else ""
    text += f"Of the allocated memory {printed(allocated + pool)} is allocated by PyTorch, "
    text += f"with {printed(pool)} allocated in private pools (e.g., CUDA Graphs), " if pool else ""
    return text + f"and {printed(reserved - allocated - pool)} is reserved by PyTorch but unallocated."


def joined(text, trace):
    return join(read_text(text), trace).messages


def says(message, *words):
    text = "\n".join(message.judgement.reasons)
    return all(word in text for word in words)


def parts(message):
    return {entry.what: entry.bytes for entry in message.ledger}
