"""Checks traces as ``memdiag check`` does: budgets and a baseline as they are written, files in, a report out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memdiag.errors import COULD_NOT, MemdiagError
from memdiag.gates.baseline import BaselineEntry, read_baseline, write_baseline
from memdiag.gates.budgets import Budget, read_budgets
from memdiag.gates.judging import Tolerances, read_tolerances
from memdiag.results.check import CheckReport
from memdiag.text import phrase
from memdiag.trace.moments import DEFAULT

if TYPE_CHECKING:
    from memdiag.gates.check import MeasuredDevice
    from memdiag.trace.model import Trace


@dataclass(frozen=True)
class CheckRequest:
    """What traces are checked against.

    Attributes:
        budgets: Limits of metrics.
        tolerances: Allowed increase over the baseline.
        baseline: The baseline file, or None.
        before: Entries of the baseline file; empty if it is to be written and does not exist.
        is_update: Whether to write the baseline file instead of comparing with it.
    """

    budgets: Sequence[Budget]
    tolerances: Tolerances
    baseline: Path | None
    before: Mapping[str, BaselineEntry]
    is_update: bool = False

    @classmethod
    def read(
        cls,
        budgets: Sequence[str] = (),
        baseline: Path | None = None,
        tolerances: Sequence[str] = (),
        *,
        update: bool = False,
    ) -> CheckRequest:
        """Reads a request from texts, and the baseline file.

        Args:
            budgets: As ``peak_reserved=60GiB``.
            baseline: The baseline file; None: no comparison with a baseline.
            tolerances: As ``2%`` or ``stranded=10%``.
            update: Whether to write the baseline file.

        Raises:
            MemdiagError: One of them has no meaning, nothing is left to check against, or the file cannot be read.
        """
        limits, allowed = read_budgets(budgets), read_tolerances(tolerances)
        if not limits and baseline is None:
            raise MemdiagError(phrase("errors.nothing-to-check"), phrase("check.nothing.hint"))
        if baseline is None and (update or tolerances):
            raise MemdiagError(
                phrase("errors.needs-baseline", value=str("--update" if update else "--tolerance")),
                phrase("errors.needs-baseline.hint"),
            )
        before = {} if baseline is None or (update and not baseline.exists()) else read_baseline(baseline)
        return cls(limits, allowed, baseline, before, update)

    def check(
        self,
        paths: Sequence[Path],
        device: int | None = None,
        at: str | int = DEFAULT,
        read: Callable[[Path], Trace] | None = None,
    ) -> CheckReport:
        """Returns the report on the traces, and writes the baseline file if that is requested and it changes.

        Args:
            paths: The traces.
            device: Only this device; None: every device with data.
            at: The moment of the metrics, as for ``build_report``.
            read: Reads a trace; None: ``memdiag.load``.

        Raises:
            MemdiagError: A trace lacks the device or the moment, or the baseline cannot be written.
        """
        from memdiag.gates.check import check, updated

        subjects = _measured(paths, device, at, read)
        compared = self.before if self.baseline is not None and not self.is_update else None
        name = str(self.baseline or "")
        report = check(subjects, self.budgets, compared, self.tolerances, name=name, root=Path())
        if not self.is_update or self.baseline is None:
            return report
        broken = next((subject for subject in subjects if subject.error), None)
        if broken is not None:
            raise MemdiagError(
                phrase("errors.not-updated", baseline=str(self.baseline), path=str(broken.path)), broken.error
            )
        report, entries = updated(report, self.before, subjects)
        if report.changes or not self.baseline.exists():
            write_baseline(self.baseline, entries)
        return report


def _measured(
    paths: Sequence[Path], device: int | None, at: str | int, read: Callable[[Path], Trace] | None
) -> list[MeasuredDevice]:
    """Returns the measurements of all traces; one that cannot be read is among the results, with its error."""
    from memdiag.gates.check import MeasuredDevice, examine, keys_of
    from memdiag.sources import load

    subjects: list[MeasuredDevice] = []
    for key, path in zip(keys_of(paths), paths, strict=True):
        try:
            subjects += examine(key, (read or load)(path), device, at)
        except MemdiagError as error:
            if error.exit_code != COULD_NOT:
                raise
            subjects.append(
                MeasuredDevice(key, str(path), error=f"{error.message} ({error.hint})" if error.hint else error.message)
            )
    return subjects
