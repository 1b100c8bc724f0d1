"""What a remedy is: one object that looks at a recording and proposes a change, or says why it does not apply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from memdiag.fix.case import FixCase, PooledRun
from memdiag.fix.edit import Edit
from memdiag.text import Phrase


@dataclass(frozen=True)
class Proposal:
    """A remedy for one program.

    Attributes:
        name: Name of the remedy.
        text: What it does, an imperative sentence.
        where: Lines of the program that it concerns.
        edit: How it changes the requests.
        by_hand: How to do it in the program's own code.
        cost: What it costs in time, in words; None: the costs below say it.
        caveat: When not to use it, or what changes.
        inside: Name of its part that runs in the program; "": none.
        settings: Arguments of that part.
        conf: Allocator settings; "": the recorded ones stay.
        pools: The lifetime-segregated pools that it turns on, or None.
        lifts_fraction: Whether the process may use the whole device, whatever memory fraction it sets.
        is_safe: Whether the results stay the same, bit for bit or within the rounding that the caveat states.
        forward_share: Share of a forward pass that is computed again in each step; estimated.
        moved_bytes: Bytes that each step copies to the host, and back again.
        copy_us: Time of these copies in microseconds; estimated from the speed of a usual link.
        recompute_us: Time in microseconds that each step recomputes; a rough estimate, only to compare remedies.
    """

    name: str
    text: Phrase
    where: tuple[str, ...]
    edit: Edit
    by_hand: str
    caveat: Phrase
    cost: Phrase | None = None
    inside: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    conf: str = ""
    pools: PooledRun | None = None
    lifts_fraction: bool = False
    is_safe: bool = True
    forward_share: float = 0.0
    moved_bytes: int = 0
    copy_us: int = 0
    recompute_us: int = 0

    @property
    def cost_us(self) -> int:
        """Time that each step takes longer, in microseconds; estimated."""
        return self.copy_us + self.recompute_us


@dataclass(frozen=True)
class Refusal:
    """A remedy that the structure of the program does not allow, in all of the program or in a part of it.

    Attributes:
        name: Name of the remedy.
        reason: Why.
        where: Lines of the program, or parts of the model, that it concerns.
        instead: What to do instead, in the program's own code or command.
        is_whole: Whether the remedy could do nothing at all in the running program.
    """

    name: str
    reason: Phrase
    where: tuple[str, ...]
    instead: str
    is_whole: bool = False


class ProgramRemedy(Protocol):
    """A remedy.

    Attributes:
        NAME: Its name.
    """

    NAME: str

    def propose(self, case: FixCase) -> Iterable[Proposal | Refusal]:
        """Yields its proposals for a program, those that cost least first; nothing if it does not apply.

        memdiag chooses at most one of the proposals. Refusals name parts of the program that it must leave alone.
        """
        ...
