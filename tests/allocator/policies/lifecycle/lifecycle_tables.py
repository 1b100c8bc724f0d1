"""MindSpeed's prediction of a tensor's lifetime, translated line by line: the second half of the reference.

It is slow and simple: tables are sets, which are searched from the latest entry to the earliest.
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER = 1 << 62  # the end of an entry that is not freed in its window
DEFAULT, LONG = "default", "long"


class Table:
    """The lifetimes learned from one kind of window (forward, or step).

    They are the entries (start, end, size) of the current and the last window, and a history of older windows.
    """

    def __init__(self) -> None:
        self.tik = 1
        self.count = 0
        self.entries: set[tuple[int, int, int]] = set()
        self.last: set[tuple[int, int, int]] = set()
        self.history: list[set[tuple[int, int, int]]] = []
        self.look_ups = 0
        self.met_unknown = False

    def look_up(self, size: int) -> tuple[int, int] | None:
        """Returns start and end of the nearest entry of this size at or before this position."""
        number = self.look_ups
        self.look_ups += 1
        for table in [self.last, *self.history]:
            for start, end, of in sorted(table, reverse=True):
                if start <= self.tik and of == size:
                    return start, end
        if len(self.last) >= number:
            self.met_unknown = True
        return None

    def end(self) -> None:
        self.look_ups = 0
        self.tik = 1
        self.count += 1
        if self.met_unknown:
            self.history.append(self.entries)
            self.met_unknown = False
        self.last, self.entries = self.entries, set()

    def freed(self, start: int, size: int) -> None:
        self.entries.discard((start, NEVER, size))
        self.entries.add((start, self.tik, size))


@dataclass(eq=False)
class Life:
    """Recorded facts about a tensor: the positions of its entries."""

    requested: int
    rounded: int
    forward: tuple[int, int] | None = None  # start, and number of the window
    step: tuple[int, int] | None = None


class Lifetimes:
    """Predicts the lifetime of tensors."""

    def __init__(self, threshold: float = 0.0) -> None:
        self.threshold = threshold
        self.precise = False
        self.in_forward = False
        self.forward_starts = 0
        self.in_step = False
        self.forward = Table()
        self.step = Table()
        self.predicted: tuple[int, int] | None = None  # prediction of the step tables for the last request

    def mark(self, kind: str) -> None:
        if kind == "precise_begin":
            self.precise = True
        elif kind == "precise_end":
            self.precise = False
        elif kind == "forward_begin":
            if not self.precise:
                if self.forward_starts != 0:
                    self.in_forward = True
                self.forward_starts += 1
            self.forward.tik = 1
        elif kind == "forward_end":
            self.in_forward = False
            self.forward.end()
        elif kind == "step_begin":
            self.in_step = True
            self.step.tik = 1
        elif kind == "step_end":
            self.in_step = False
            self.step.end()

    def decide(self, requested: int, rounded: int) -> str:
        self.predicted = None
        if self.precise:
            lifetime = LONG
        elif not self.in_forward:
            lifetime = DEFAULT
        elif not self.forward.last:
            lifetime = LONG
        else:
            found = self.forward.look_up(requested)
            lifetime = LONG if found is not None and found[1] == NEVER else DEFAULT
        if not self.precise and self.in_step:
            self.predicted = self.step.look_up(rounded)
            if self.predicted is not None and self.predicted[1] == NEVER:
                lifetime = LONG
        return DEFAULT if rounded <= self.threshold else lifetime

    def allocated(self, requested: int, rounded: int) -> Life:
        life = Life(requested, rounded)
        if self.in_forward:
            life.forward = (self.forward.tik, self.forward.count)
            self.forward.entries.add((self.forward.tik, NEVER, requested))
        if self.in_step:
            life.step = (self.step.tik, self.step.count)
            self.step.entries.add((self.step.tik, NEVER, rounded))
        self.forward.tik += 1
        self.step.tik += 1
        return life

    def freed(self, life: Life) -> None:
        if life.step is not None and self.in_step and life.step[1] == self.step.count:
            self.step.freed(life.step[0], life.rounded)
        if life.forward is not None and self.in_forward and life.forward[1] == self.forward.count:
            self.forward.freed(life.forward[0], life.requested)
