"""``memdiag record --values auto``: runs a command on a simulated device again if values that were not computed end it.

The first run reads zeros, the default. The following runs compute small tensors, which gives true values. They differ
in the values that the program reads for other results. A run is repeated if it failed, or waits in a loop without a
training step, after the program read such values. A run is also repeated if it failed after memdiag assumed sizes that
depend on such values. Other values do not change these sizes, so the next run is one that computes more. After an
out-of-memory error, a signal, or a call that cannot be simulated, the command does not run again. The files of a
repeated run are removed, because the next run writes its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memdiag.phantom.launch import COMPUTE, SMALL_BYTES, VALUES
from memdiag.recorder.phantom_facts import END_VARIABLE
from memdiag.recorder.process import is_of_code
from memdiag.runs.listener import SILENT, Listener
from memdiag.runs.recording import Done, Order, perform
from memdiag.runs.unsupported import unsupported_code
from memdiag.text import Phrase, phrase
from memdiag.units import MIB

if TYPE_CHECKING:
    from memdiag.recorder.launch import ProgramEnd
    from memdiag.runs.finishing import FinishedRun

AUTO = "auto"
# As little as possible first. With computed tensors, the values apply only to results that are too large or unknown:
# finite passes checks with isfinite and all, ones a logarithm or a division, random numbers a comparison of two. To
# compute larger tensors gives true values as well, but can take long.
_LARGER_BYTES = 64 * MIB
_ORDER = (
    ("zeros", 0),
    ("zeros", SMALL_BYTES),
    ("finite", SMALL_BYTES),
    ("zeros", _LARGER_BYTES),
    ("ones", SMALL_BYTES),
    ("random", SMALL_BYTES),
)
_REFUSED = ("cannot imitate", "does not imitate")


@dataclass(frozen=True)
class _Choice:
    """Settings of one run: the variables, and the options that set them."""

    variables: Mapping[str, str]
    options: str

    @property
    def computed(self) -> int:
        """Bytes of the largest tensors that are computed."""
        return int(self.variables.get(COMPUTE) or 0)


@dataclass(frozen=True)
class _Culprit:
    """The values that no kernel computed and that may have ended a run, in the process that ended it.

    Attributes:
        where: The place of the last one.
        count: Number of values.
        how: "failed" after the program read them, "waited" for one, or "sizes": memdiag assumed sizes that depend on
            them, and the program read none.
    """

    where: str
    count: int
    how: str


def perform_auto(
    order: Order, listener: Listener = SILENT, then: Callable[[FinishedRun, ProgramEnd, str], None] | None = None
) -> tuple[Done, dict[str, str]]:
    """Runs a command with one setting of values after the other, until one gets past the failure.

    Args:
        order: The command, without a setting of values; other settings hold in each run.
        listener: Receives progress.
        then: As for ``perform``, for the last run.

    Returns:
        The last run, and the variables that set its values.

    Raises:
        MemdiagError: The command cannot be started, or the run cannot be written.
    """
    later = _choices(order)
    tried: list[_Choice] = []
    while True:
        tried.append(later.pop(0))
        look = _Look(tried[-1], later, then)
        variables = {**order.environment, **tried[-1].variables, END_VARIABLE: "1" if later else "0"}
        done = perform(replace(order, environment=variables), listener, look)
        if look.culprit is None:
            _say_how_it_ended(tried, done, listener)
            return done, dict(tried[-1].variables)
        later = look.next
        facts: dict[str, str | int] = {"value": value_of(tried[-1].variables[VALUES]), "place": look.culprit.where}
        facts = {**facts, "count": look.culprit.count, "next": later[0].options}
        said = {
            "failed": phrase("record.auto.failed", **facts),
            "waited": phrase("record.auto.waits", **facts),
            "sizes": phrase("record.auto.sizes", **facts),
        }
        listener.say(f"memdiag: {said[look.culprit.how]}")
        _remove(done)


class _Look:
    """Looks for the culprit of a run that has ended; without one, the run is the last, and ``then`` is called.

    Args:
        choice: The settings of the run.
        later: The settings of the runs that may follow.
        then: As for ``perform``.

    Attributes:
        culprit: The values that may have ended the run; None if the run is the last.
        next: The later settings that can change the failure. Sizes depend only on what is computed.
    """

    def __init__(
        self,
        choice: _Choice,
        later: Sequence[_Choice],
        then: Callable[[FinishedRun, ProgramEnd, str], None] | None,
    ) -> None:
        self._choice, self._later, self._then = choice, later, then
        self.culprit: _Culprit | None = None
        self.next: list[_Choice] = []

    def __call__(self, run: FinishedRun, ended: ProgramEnd, before: str) -> None:
        """Called when the files of a run are complete."""
        found = culprit_of(run, ended) if self._later else None
        is_by_size = found is not None and found.how == "sizes"
        self.next = [each for each in self._later if not is_by_size or each.computed > self._choice.computed]
        self.culprit = found if self.next else None
        if self.culprit is None and self._then is not None:
            self._then(run, ended, before)


def _choices(order: Order) -> list[_Choice]:
    """Returns the settings in the order of the runs; a limit of computed tensors that the user gave always holds."""
    given = order.environment.get(COMPUTE) or os.environ.get(COMPUTE)
    found: list[_Choice] = []
    for values, limit in _ORDER:
        variables = {VALUES: values}
        options = [f"--values {values}"] if values != "zeros" else []
        if limit and not given:
            variables[COMPUTE] = str(limit)
            options.append("--compute small" if limit == SMALL_BYTES else f"--compute small={limit // MIB}MiB")
        if not found or options:
            found.append(_Choice(variables, " ".join(options)))
    return found


def culprit_of(run: FinishedRun, ended: ProgramEnd) -> _Culprit | None:
    """Returns the values that may have ended a run, or None if the run succeeded or has another answer."""
    if ended.status == 0 or ended.signals:
        return None
    errors = [str(process.get("exception") or "") for process in run.processes]
    if any("out of memory" in error.lower() or any(text in error for text in _REFUSED) for error in errors):
        return None
    if any(map(unsupported_code, errors)) or any(map(is_of_code, errors)):
        return None
    waited = [process["waited"] for process in run.processes if isinstance(process.get("waited"), dict)]
    if waited:
        return _Culprit(str(waited[0].get("last") or ""), int(waited[0].get("count") or 0), "waited")
    for how, key in (("failed", "synthetic"), ("sizes", "assumed_sizes")):
        known = [(process, process.get(key) or {}) for process in run.processes]
        known = [(process, facts) for process, facts in known if facts.get("count")]
        if known:
            _, facts = min(known, key=lambda pair: (not pair[0].get("exception"), pair[0].get("ended") or 0))
            return _Culprit(str(facts.get("last") or ""), int(facts["count"]), how)
    return None


def value_of(values: str) -> Phrase:
    """Returns what a result that no kernel computed reads as, with a setting of ``--values``."""
    return phrase(f"record.value.{values if values in dict(_ORDER) else 'zeros'}")


def _say_how_it_ended(tried: Sequence[_Choice], done: Done, listener: Listener) -> None:
    if len(tried) < 2:
        return
    if done.ended.status == 0:
        said = phrase("record.auto.found", options=tried[-1].options)
    elif done.ended.signals:
        return
    else:
        said = phrase("record.auto.none", options=", ".join(choice.options for choice in tried[1:]))
    listener.say(f"memdiag: {said}")


def _remove(done: Done) -> None:
    """Removes the files of a run that is repeated, and nothing that the program may have written next to them."""
    from memdiag.recorder import run_folder

    if done.run is not None and done.run.single is not None:
        run_folder.remove_file(done.run.single)
    run_folder.clear(done.folder)
