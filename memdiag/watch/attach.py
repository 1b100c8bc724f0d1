"""Chooses how to attach to a process, and starts the agent in it."""

from __future__ import annotations

from memdiag.errors import MemdiagError
from memdiag.text import phrase

from .door import Door
from .link import AgentLink
from .mechanisms import armed, gdb, remote_exec
from .target import target_of

MECHANISMS = {each.NAME: each for each in (armed, remote_exec, gdb)}
_SECONDS = 15.0


def attach(pid: int, by: str = "", *, seconds: float = _SECONDS) -> AgentLink:
    """Starts the agent in a process and returns the connection to it.

    Args:
        pid: The process.
        by: Name of a mechanism; "" for the first that applies.
        seconds: Time to wait for the process.

    Raises:
        MemdiagError: It is not possible; the hint names what is missing.
    """
    target = target_of(pid)
    if by and by not in MECHANISMS:
        raise MemdiagError(phrase("watch.by", name=by), phrase("watch.by.hint", names=", ".join(MECHANISMS)))
    chosen = [MECHANISMS[by]] if by else [each for each in MECHANISMS.values() if each.can_enter(target)]
    if not chosen or not chosen[0].can_enter(target):
        raise MemdiagError(phrase(f"watch.closed.{by or 'all'}", pid=f"{pid}"), phrase("watch.closed.hint"))
    if target.has_torch is False:
        raise MemdiagError(phrase("watch.no-torch", pid=f"{pid}"), phrase("watch.no-torch.hint"))
    with Door(target, seconds) as door:
        chosen[0].enter(target, door)
        if door.connection is None:
            door.wait()
        return AgentLink(target, door, chosen[0].NAME)
