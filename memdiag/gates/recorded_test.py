"""Records and judges one test, for the pytest plugin.

Allocators cache memory that earlier tests freed. So before a test begins, garbage is collected and the device cache
released. Memory that earlier tests or fixtures of a wider scope still hold counts as existing before, without a call
site.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from memdiag.errors import MemdiagError
from memdiag.gates.budgets import Budget, read_budget
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.gates.baseline import BaselineEntry
    from memdiag.gates.check import MeasuredDevice
    from memdiag.results.check import CheckReport, DeviceCheck
    from memdiag.trace.model import Trace

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_DEVICE = re.compile(r"/device\d+$")  # suffix of a test's name if it used several devices
_LONGEST = 100  # characters of the name of a file
_BACKENDS = ("cuda", "npu", "cpu")
_NO_METRICS = ("backend", "baseline", "device")  # arguments of the marker that are not budgets


@dataclass(frozen=True)
class RecordedResult:
    """Result of a test.

    Attributes:
        status: "ok", "failed", or "unknown" if it cannot be judged.
        text: Text for the report of the test, or "".
        entries: Its baseline entries as JSON, one for each device that it used, by key; None if it was not measured, or
            no baseline is written.
    """

    status: Literal["ok", "failed", "unknown"]
    text: str = ""
    entries: dict[str, dict[str, Any]] | None = None


class RecordedTest:
    """The recording of one test.

    Args:
        name: Name of the test in pytest.
        budgets: Budgets to compare with.
        problem: Why it is not recorded, or "" if it is.
        baseline: The baseline file of its marker, or None.
    """

    def __init__(self, name: str, budgets: Sequence[Budget], problem: str, baseline: Path | None = None) -> None:
        self.name = name
        self.budgets = budgets
        self.problem = problem
        self.baseline = baseline
        self._folder: Path | None = None
        self._open = contextlib.ExitStack()

    @classmethod
    def begin(cls, name: str, wanted: Mapping[str, Any], positional: Sequence[Any], folder: Path) -> RecordedTest:
        """Starts the recording; problems are stored, and reported when the test is judged.

        Args:
            name: Name of the test in pytest.
            wanted: Named arguments of the marker.
            positional: Arguments without a name, which are an error.
            folder: Folder of the test's file, in which the marker's baseline is.
        """
        try:
            backends, budgets = _read(wanted, positional)
        except MemdiagError as error:
            return cls(name, (), f"{error.message} ({error.hint})")
        baseline = wanted.get("baseline")
        recorded = cls(name, budgets, "", None if baseline is None else folder / str(baseline))
        try:
            with _quiet():
                recorded._start(backends)
        except Exception as error:  # noqa: BLE001 - any error becomes the test's result instead of ending the run
            recorded.end()
            recorded.discard()
            recorded.problem = f"memdiag cannot record the test: {type(error).__name__}: {error}"
        return recorded

    def _start(self, backends: tuple[str, ...]) -> None:
        from memdiag.recorder.in_program import part, recording

        if part("session").current() is not None:
            raise RuntimeError("memdiag already records this process")
        _tidy()
        self._folder = Path(tempfile.mkdtemp(prefix="memdiag-test-"))
        self._open.enter_context(recording(self._trace, backends=backends))

    @property
    def _trace(self) -> Path:
        assert self._folder is not None  # noqa: S101 - created when it began
        return self._folder / "trace.pkl"

    def end(self) -> None:
        """Ends the recording."""
        try:
            with _quiet():
                self._open.close()
        except Exception as error:  # noqa: BLE001 - as above
            self.problem = self.problem or f"memdiag could not end the recording: {type(error).__name__}: {error}"

    def discard(self) -> None:
        """Removes the files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def judge(
        self, baseline: Path | None, tolerance: Sequence[str], keep_in: Path | None, *, has_failed: bool, updates: bool
    ) -> RecordedResult:
        """Judges the test, and keeps its trace if it or the judgement has failed.

        Args:
            baseline: Baseline file to compare with as well, or None.
            tolerance: As for ``memdiag check --tolerance``.
            keep_in: Folder for kept traces, or None.
            has_failed: Whether the test itself has failed.
            updates: Whether the baseline is rewritten, so that it is not compared with.
        """
        try:
            return self._judge(baseline, tolerance, keep_in, has_failed=has_failed, updates=updates)
        except MemdiagError as error:
            hint = f" ({error.hint})".replace("--update", "--memdiag-update") if error.hint else ""
            return RecordedResult("unknown", f"memdiag: {error.message}{hint}")
        except Exception as error:  # noqa: BLE001 - as above
            return RecordedResult(
                "unknown", f"memdiag: the memory of the test cannot be checked: {type(error).__name__}: {error}"
            )
        finally:
            self.discard()

    def _judge(
        self, baseline: Path | None, tolerance: Sequence[str], keep_in: Path | None, *, has_failed: bool, updates: bool
    ) -> RecordedResult:
        if self.problem:
            return RecordedResult("unknown", f"memdiag: {self.problem}")
        from memdiag.gates.inside import innermost_lines
        from memdiag.sources import load

        if not self._trace.exists():
            return RecordedResult(
                "unknown", f"memdiag: nothing was recorded: the test allocated nothing on {_devices()}"
            )
        with _quiet():
            trace = load(self._trace)
            report, subjects = self._checked(trace, None if updates else baseline, tolerance)
            inside = innermost_lines(trace) if report.status == "failed" else {}
            lines = [line for each in report.traces for line in _lines(each, inside, is_one=len(report.traces) == 1)]
            if report.status == "failed":
                lines += _diagnosis(trace)
        if (report.status != "ok" or has_failed) and keep_in is not None:
            lines.append(f"  trace: {_kept(self._trace, keep_in, self.name)}")
        entries = {subject.key: _as_json(subject.entry) for subject in subjects} if updates else None
        return RecordedResult(report.status, "\n".join(lines), entries)

    def _checked(
        self, trace: Trace, baseline: Path | None, tolerance: Sequence[str]
    ) -> tuple[CheckReport, list[MeasuredDevice]]:
        from memdiag.gates.baseline import read_baseline
        from memdiag.gates.check import check, examine
        from memdiag.gates.judging import read_tolerances

        subjects = examine(self.name, trace)
        known: dict[str, BaselineEntry] | None = None
        if baseline is not None:
            entries = read_baseline(baseline)
            known = {subject.key: entries[subject.key] for subject in subjects if subject.key in entries}
        return check(
            subjects, self.budgets, known, read_tolerances(tolerance), name=str(baseline or ""), root=Path()
        ), subjects


def _read(wanted: Mapping[str, Any], positional: Sequence[Any]) -> tuple[tuple[str, ...], list[Budget]]:
    """Returns backends and budgets of a marker.

    Raises:
        MemdiagError: The marker has other arguments.
    """
    if positional:
        raise MemdiagError(
            phrase("check.marker.name", mark=f"@pytest.mark.memdiag({positional[0]!r})"),
            phrase("check.marker.name.hint", example='@pytest.mark.memdiag(peak="2GiB")'),
        )
    given = wanted.get("backend", ())
    if device := wanted.get("device"):
        if given:
            raise MemdiagError(phrase("check.marker.twice"), phrase("check.marker.twice.hint"))
        given = str(device).partition(":")[0]
    backends = (given,) if isinstance(given, str) else tuple(given)
    for backend in backends:
        if backend not in _BACKENDS:
            raise MemdiagError(
                phrase("check.marker.backend", mark=_marked("device" if device else "backend", device or backend)),
                phrase("check.marker.backend.hint", backends=", ".join(_BACKENDS)),
            )
    budgets = [
        read_budget(name, value, _marked(name, value)) for name, value in wanted.items() if name not in _NO_METRICS
    ]
    return backends, budgets


def _marked(name: str, value: object) -> str:
    return f"@pytest.mark.memdiag({name}={value!r})"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides warnings of the recording from the test, which may have turned warnings into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _tidy() -> None:
    """Releases memory that earlier tests freed, which would count on a device; CPU memory has no history."""
    torch = sys.modules.get("torch")
    devices = [device for name in ("cuda", "npu") if (device := getattr(torch, name, None)) is not None]
    used = [device for device in devices if getattr(device, "is_initialized", bool)()]
    if used:
        gc.collect()
    for device in used:
        device.empty_cache()


def _devices() -> str:
    torch = sys.modules.get("torch")
    has_accelerator = torch is not None and (torch.version.cuda or torch.version.hip or "torch_npu" in sys.modules)
    return 'an accelerator (for the CPU, write backend="cpu" in the marker)' if has_accelerator else "the CPU"


def _lines(each: DeviceCheck, inside: Mapping[str, str], *, is_one: bool) -> list[str]:
    """Returns the judgements on a test in words, worst first; ``inside``: lines in libraries by call site."""
    from memdiag.render.check.words import holder_words, title
    from memdiag.text import plain

    order = ("failed", "unknown", "ok")
    found = sorted(each.checks, key=lambda judgement: order.index(judgement.status))
    where = "" if is_one else f"device {each.device}: "
    lines = [f"memdiag: {where}{plain(judgement.reason)}" for judgement in found]
    if each.error:
        lines.insert(0, f"memdiag: {where}{each.error}".replace("--update", "--memdiag-update"))
    if each.sites:
        lines.append(f"  {title(each)}:")
    for holder in each.sites:
        lines.append(f"    {holder_words(holder)}")
        if holder.label in inside:
            lines.append(f"      {phrase('bisect.inside', place=plain(inside[holder.label]))}")
    return lines


def _diagnosis(trace: Trace) -> list[str]:
    """Returns the headline of the report on a trace, and its first finding."""
    from memdiag.analyzers.report import build_report
    from memdiag.text import plain

    report = build_report(trace, replay=False)
    lines = [f"  {plain(report.headline)}"]
    for finding in report.findings[:1]:
        lines.append(f"  {finding.code}: {plain(finding.title)}")
        lines += [f"    {phrase('check.fix', fix=plain(fix.title))}" for fix in finding.fixes[:1]]
    return lines


def _kept(trace: Path, folder: Path, name: str) -> str:
    """Moves a trace to the folder for kept traces; returns its new path, or why it is missing."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    target = folder / f"{_UNSAFE.sub('-', name.rsplit('/', 1)[-1])[:_LONGEST]}-{digest}.pkl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.move(trace, target)
    except OSError as error:
        return f"not kept: {error.strerror or error}"
    shown = os.path.relpath(target)
    return str(target) if shown.startswith("..") else shown


def _as_json(entry: BaselineEntry) -> dict[str, Any]:
    from memdiag.gates.baseline import stored_form

    return stored_form(entry)


def write_entries(path: Path, measured: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Writes the measured tests into a baseline, keeping its other entries; returns the changes.

    Args:
        path: The baseline.
        measured: The entries of each test. Old entries of these tests for other devices are removed.

    Raises:
        MemdiagError: The file is not a baseline, or cannot be written.
    """
    from memdiag.gates.baseline import changes_of, entry_from, read_baseline, write_baseline

    before = read_baseline(path) if path.exists() else {}
    after = {key: entry for key, entry in before.items() if _DEVICE.sub("", key) not in measured}
    after |= {key: entry_from(stored) for entries in measured.values() for key, stored in entries.items()}
    changes = changes_of(before, after)
    if changes or not path.exists():
        write_baseline(path, after)
    return [f"{path}: {'written' if changes else 'unchanged'}", *(f"  {line}" for line in changes)]
