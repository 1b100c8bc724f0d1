"""Marks for the functions that MindSpeed's allocator hooks: model set-up, forward calls, steps, first optimizer step.

The allocator learns of five moments from wrappers around Python functions. A workload only has calls of the allocator,
so each mark is placed between two calls. Every request is *long-lived by phase* between PRECISE_BEGIN and PRECISE_END.
FORWARD and STEP marks are the windows from which lifetimes are learned. RELEASE is the ``empty_cache()`` that the
wrapper of the optimizer makes before its first real steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from memdiag.trace.table import Array

KINDS: tuple[str, ...] = (
    "precise_begin",
    "precise_end",
    "forward_begin",
    "forward_end",
    "step_begin",
    "step_end",
    "release",
)
PRECISE_BEGIN, PRECISE_END, FORWARD_BEGIN, FORWARD_END, STEP_BEGIN, STEP_END, RELEASE = range(7)


@dataclass(frozen=True)
class HookMarks:
    """Marks in order.

    Attributes:
        at: Index of the next call (int64, not decreasing); the number of calls: none follows.
        kind: Index into ``KINDS`` (int8).
        bases: Evidence for each of "setup", "forward", "step" and "optimizer": "marks", "stacks", "periodicity" … or
            "none".
        hooks: Unit of a forward call: "layer" (each element of a module list) or "stack" (the whole list).
    """

    at: Array
    kind: Array
    bases: dict[str, str] = field(default_factory=dict)
    hooks: str = "layer"

    @classmethod
    def none(cls) -> HookMarks:
        """Returns an empty set of marks, with which the predictor classifies every tensor as short-lived."""
        return cls(
            np.empty(0, np.int64),
            np.empty(0, np.int8),
            dict.fromkeys(("setup", "forward", "step", "optimizer"), "none"),
        )

    @classmethod
    def of(cls, marks: list[tuple[int, int]], bases: dict[str, str] | None = None, hooks: str = "layer") -> HookMarks:
        """Returns marks given as (call, kind) in order."""
        table = np.array(marks, np.int64).reshape(-1, 2)
        return cls(table[:, 0].copy(), table[:, 1].astype(np.int8), bases or {}, hooks)


@dataclass(frozen=True)
class HookWindows:
    """The state that the marks set for every call; one value per call.

    Attributes:
        precise, forward, step: The flags of the allocator (bool).
        ends: Index of the call before which its window ends: the window of the phase, else of the forward call, else of
            the step; outside of any, the next step. The number of calls: not in this trace (int64).
    """

    precise: Array
    forward: Array
    step: Array
    ends: Array

    @classmethod
    def of(cls, marks: HookMarks, num_calls: int) -> HookWindows:
        """Computes the state of every call."""
        count = len(marks.at)
        flags = np.zeros((3, count + 1), bool)
        precise = forward = step = False
        starts = 0
        for number, kind in enumerate(marks.kind.tolist()):
            if kind in (PRECISE_BEGIN, PRECISE_END):
                precise = kind == PRECISE_BEGIN
            elif kind == FORWARD_BEGIN and not precise:
                forward, starts = forward or starts > 0, starts + 1
            elif kind == FORWARD_END:
                forward = False
            elif kind in (STEP_BEGIN, STEP_END):
                step = kind == STEP_BEGIN
            flags[:, number + 1] = precise, forward, step
        passed = np.searchsorted(marks.at, np.arange(num_calls), side="right")
        now = flags[:, passed]
        following = [_next(marks, kind, num_calls)[passed] for kind in (PRECISE_END, FORWARD_END, STEP_END)]
        ends = np.where(now[0], following[0], np.where(now[1], following[1], following[2]))
        return cls(now[0], now[1], now[2], ends)


def _next(marks: HookMarks, kind: int, num_calls: int) -> Array:
    """Returns, for each number of marks passed, the call of the next mark of a kind."""
    at = np.append(np.where(marks.kind == kind, marks.at, num_calls), num_calls)
    following: Array = np.minimum.accumulate(at[::-1])[::-1]
    return following
