"""The host waits for the device in every step of training."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.findings import Fix, Severity
from memdiag.lint.module import Hit, Module
from memdiag.lint.waits import waits

CODE = "MD807"
TITLE = "the host waits for the device in every step: the queue of launches runs dry"
SEVERITY: Severity = "warning"
WORDS = (".item(", ".tolist(", ".cpu(", ".to(", "synchronize(")
FIX = Fix(
    "add up on the device (total += loss.detach()) and read every hundred steps; let streams and events wait for each other instead",
    "code",
    applicability="training loops",
    caveat="a few waits a step cost little where the steps are long: measure",
)


def check(module: Module) -> Iterator[Hit]:
    """Points at waits in the loop that trains; those under a condition (every so many steps) are what should be done."""
    for call, what in waits(module):
        where = module.in_step(call)
        if where is not None and not module.guarded(call, where) and module.in_forward(call) is None:
            yield Hit(call, f"{what} in every step: the host waits for the device, and its queue of launches runs dry")
