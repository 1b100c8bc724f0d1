"""``memdiag record --find-max batch=1..256``: the largest value of a placeholder with which a command still fits into memory.

Each value is tried by running the command, with what it prints kept in a file. The ends of the range come first; in between, the peaks of
two runs that fitted say where memory would end if it grew evenly, and the next value is tried there; where that does not hold, the
range is halved. The answer rests on two runs alone: the last that fitted and the first that did not, one step apart.

That a larger value needs no less memory is taken for granted: what lies beyond the first that failed is not tried.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdiag.errors import BUDGET_HIT, DONE, MemdiagError
from memdiag.units import format_bytes, plural

if TYPE_CHECKING:
    from memdiag.cli.recorded_run import Done, Order

ASSUMED = "a larger value is taken to need no less memory: values beyond the first that failed were not tried"
OUTPUT, RESULT = "output.txt", "find-max.json"

_RANGE = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(\d+)\s*\.\.\s*(\d+)\s*(?::\s*(\d+)\s*)?")
_EXAMPLE = "for example --find-max batch=1..256 -- python train.py --batch {batch}; seq=512..8192:512 for multiples of 512 from 512 on"
_LAST_LINES, _LAST_BYTES = 30, 64 << 10
_KILLED = 9


@dataclass(frozen=True)
class Range:
    """The values that are looked at: ``low``, ``low + step``, … up to ``high``, which itself need not be one of them."""

    name: str
    low: int
    high: int
    step: int = 1

    @property
    def last(self) -> int:
        """The place of the largest value; values are counted from 0."""
        return (self.high - self.low) // self.step

    def at(self, place: int) -> int:
        """The value at a place."""
        return self.low + place * self.step


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes:
        place: Of the value in the range.
        value: What took the place of the placeholder.
        fits: Whether it came to its end without running out of memory.
        reserved_bytes, allocated_bytes: Peaks of the process that had most; None: nothing was recorded.
        capacity_bytes: Memory of the device, where a failure told.
        steps: Training steps of the process that did most.
        seconds: How long the program ran.
        folder: Its files, as people would type it here.
        why: The out-of-memory error in one line; "" if it fits.
        caught: Requests for memory that failed and did not end the program.
    """

    place: int
    value: int
    fits: bool
    reserved_bytes: int | None
    allocated_bytes: int | None
    capacity_bytes: int | None
    steps: int
    seconds: float
    folder: str
    why: str = ""
    caught: int = 0


def read_range(text: str, command: Sequence[str]) -> Range:
    """Reads NAME=LOW..HIGH or NAME=LOW..HIGH:STEP.

    Raises:
        MemdiagError: It is none, or the command has no such placeholder.
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        raise MemdiagError(f"--find-max {text}: not a range", _EXAMPLE)
    found = Range(match[1], int(match[2]), int(match[3]), int(match[4] or 1))
    if found.low > found.high or not found.step:
        raise MemdiagError(f"--find-max {text}: there is nothing in this range", _EXAMPLE)
    if not any(f"{{{found.name}}}" in word for word in command):
        raise MemdiagError(f"--find-max {text}: the command has no {{{found.name}}} that could be replaced", _EXAMPLE)
    return found


def find_max(order: Order, text: str, *, as_json: bool, quiet: bool) -> int:
    """Finds the largest value that fits, and says what was tried.

    Args:
        order: The run, with the placeholder in its command.
        text: The range, as given.
        as_json: Print JSON instead of a table.
        quiet: No progress on stderr.

    Returns:
        The exit code: 0 there is one, 1 not even the smallest fits.

    Raises:
        MemdiagError: A run failed for another reason than memory, or cannot be started.
    """
    from memdiag.cli.talk import write_out
    from memdiag.recorder import run_folder
    from memdiag.recorder.files import write_json
    from memdiag.redaction import is_on
    from memdiag.sources.redacted_file import redact_manifest

    values = read_range(text, order.command)
    folder = run_folder.make(order.output)
    trials: list[Trial] = []
    fits, fails = -1, values.last + 1
    while fails - fits > 1:
        place = next_place(trials, values, fits, fails, _capacity(order, trials))
        trial = _run(order, values, place, folder.path)
        trials.append(trial)
        if not quiet:
            _say_trial(values, trial)
        fits, fails = (place, fails) if trial.fits else (fits, place)
        _leave_boundary(folder.path, values, trials, fits, fails)
        if not trial.fits and place == 0:
            break
    report = _report(order, values, trials, folder.shown, fits, fails)
    write_json(str(Path(folder.path, RESULT)), redact_manifest(report) if is_on() else report)
    write_out(json.dumps(report, indent=2) + "\n" if as_json else "\n".join(_table(report, trials)) + "\n")
    return DONE if fits >= 0 else BUDGET_HIT


# ---------------------------------------------------------------------------------------------------------- what to try next


def next_place(trials: Sequence[Trial], values: Range, fits: int, fails: int, capacity: int | None) -> int:
    """Returns the place to try next, between the last that fits and the first that does not.

    Args:
        trials: What was tried, in order.
        values: The range.
        fits: The largest place that fits; -1: none yet.
        fails: The smallest that does not; one behind the last: none yet.
        capacity: Bytes that the device has for PyTorch; None: unknown.
    """
    if fits < 0:
        return 0
    if fails > values.last:
        return values.last
    guess = _where_memory_ends(trials, capacity) if not _was_wrong(trials) else None
    if guess is None:
        guess = _between(values, fits, fails)
    return min(max(guess, fits + 1), fails - 1)


def _between(values: Range, fits: int, fails: int) -> int:
    """The middle; of a range that is still wide the geometric one, since what fits tends to be at its lower end."""
    low, high = values.at(fits), values.at(fails)
    if low > 0 and high > 4 * low:
        return (math.isqrt(low * high) - values.low) // values.step
    return (fits + fails) // 2


def _where_memory_ends(trials: Sequence[Trial], capacity: int | None) -> int | None:
    """The place at which a straight line through the two largest runs that fitted reaches the capacity; None: there is no such line."""
    known = sorted((trial.place, trial.allocated_bytes) for trial in trials if trial.fits and trial.allocated_bytes)
    if capacity is None or len(known) < 2:
        return None
    (near, less), (far, more) = known[-2:]
    if more <= less:
        return None
    place: int = far + (capacity - more) * (far - near) // (more - less)
    return place


def _was_wrong(trials: Sequence[Trial]) -> bool:
    """Whether the last value did not fit: where a line pointed there, it points there again."""
    return not trials[-1].fits and len(trials) > 2


def _capacity(order: Order, trials: Sequence[Trial]) -> int | None:
    if order.phantom is not None:
        from memdiag.phantom.profiles import choose

        return choose(order.phantom).capacity_bytes
    return next((trial.capacity_bytes for trial in trials if trial.capacity_bytes), None)


# ------------------------------------------------------------------------------------------------------------------ one run


def _run(order: Order, values: Range, place: int, folder: str) -> Trial:
    from memdiag.cli.recorded_run import perform
    from memdiag.cli.talk import busy
    from memdiag.recorder.launch import end_as
    from memdiag.recorder.run_folder import shown
    from memdiag.redaction import is_on
    from memdiag.sources.redacted_file import redact_lines

    value = values.at(place)
    inside = Path(folder, f"{values.name}={value}")
    inside.mkdir()
    command = tuple(word.replace(f"{{{values.name}}}", str(value)) for word in order.command)
    output = inside.with_name(f"{inside.name}.txt")  # moved inside afterwards: a run's folder must be empty
    with busy(f"memdiag: trying {values.name}={value} …"), _talking_to(output):
        done = perform(replace(order, command=command, output=str(inside), has_short_name=False), quiet=True)
    output = output.rename(inside / OUTPUT)
    if is_on():
        redact_lines(output)
    if asked := {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}.intersection(done.ended.signals):
        raise SystemExit(end_as(done.ended) or 128 + max(asked))
    recorded = done.run.recorded if done.run is not None else ()
    failures = [failure for status in recorded for failure in status.get("ooms") or ()]
    why = "" if done.ended.status == 0 else _why(failures, output)
    if done.ended.status and not why:
        raise _other_failure(values, value, done, output)
    reserved, allocated = _peaks([status["trace"] for status in recorded])
    return Trial(
        place, value, done.ended.status == 0, reserved, allocated,
        max((failure.get("total_bytes") or 0 for failure in failures), default=0) or None,
        max((status.get("steps") or 0 for status in recorded), default=0), done.ended.seconds, shown(str(inside)), why,
        0 if done.ended.status else len(failures),
    )  # fmt: skip


@contextlib.contextmanager
def _talking_to(path: Path) -> Iterator[None]:
    """The command, and what memdiag says around it, write to a file, and read nothing."""
    sys.stdout.flush()
    if sys.stderr is not None:
        sys.stderr.flush()
    kept = {number: os.dup(number) for number in (0, 1, 2)}
    try:
        with path.open("wb") as file, open(os.devnull, "rb") as nothing:  # noqa: PTH123 - no path of anybody's
            os.dup2(nothing.fileno(), 0)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            yield
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


def _why(failures: list[dict[str, Any]], output: Path) -> str:
    """The out-of-memory error that ended a program, in one line; "" if it ended for another reason."""
    from memdiag.oom.read import read_files

    found = [message for message in read_files([output]).messages if not message.is_warning]
    if failures:
        first = min(failures, key=lambda failure: failure.get("time") or 0)
        return f"it wanted {format_bytes(first.get('requested_bytes'))} more"
    return " ".join(found[0].text.split())[:100] if found else ""


def _other_failure(values: Range, value: int, done: Done, output: Path) -> MemdiagError:
    lines = _tail(output)
    status = done.ended.status
    ended = f"ended with status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"
    hint = f"what it printed is in {output}; try it alone: memdiag record -- …"
    if status in {-_KILLED, 128 + _KILLED}:
        hint = "the system may have had no memory left for it (the host's, not the device's): " + hint
    return MemdiagError("\n  ".join([f"{values.name}={value}: the command {ended}, and not for want of memory:", *lines]), hint)


def _tail(path: Path) -> list[str]:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LAST_BYTES))
        return file.read().decode(errors="replace").splitlines()[-_LAST_LINES:]


def _peaks(traces: list[str]) -> tuple[int | None, int | None]:
    """Peaks of reserved and allocated bytes over all devices of all processes; None: nothing is known of them."""
    from memdiag.cli.after_run import LARGEST

    peaks: dict[str, int] = {}
    for path in traces:
        if Path(path).stat().st_size > LARGEST:
            continue
        from memdiag.cli.loading import read_trace

        for device in read_trace(Path(path)).devices:
            for name in ("reserved", "allocated"):
                at = device.peak(name)
                peaks[name] = max(peaks.get(name, 0), device.usage_at(at)[name])
    return peaks.get("reserved") or None, peaks.get("allocated") or None


def _leave_boundary(folder: str, values: Range, trials: Sequence[Trial], fits: int, fails: int) -> None:
    """Keeps the files of the two runs that the answer rests on so far."""
    for trial in trials:
        if trial.place not in {fits, fails}:
            shutil.rmtree(Path(folder, f"{values.name}={trial.value}"), ignore_errors=True)


# --------------------------------------------------------------------------------------------------------------- what is said


def _say_trial(values: Range, trial: Trial) -> None:
    from memdiag.cli.talk import say

    said = "fits" if trial.fits else f"does not fit: {trial.why}"
    peaks = f", peak {format_bytes(trial.reserved_bytes)} reserved" if trial.reserved_bytes else ""
    say(f"memdiag: {values.name}={trial.value} {said}{peaks} ({trial.seconds:.1f} s)")


def _report(order: Order, values: Range, trials: Sequence[Trial], folder: str, fits: int, fails: int) -> dict[str, Any]:
    return {
        "schema_version": 1, "name": values.name, "low": values.low, "high": values.high, "step": values.step,
        "fits": values.at(fits) if fits >= 0 else None,
        "fails": values.at(fails) if fails <= values.last else None,
        "phantom": order.phantom, "assumed": ASSUMED, "notes": _notes(values, trials, fits), "folder": folder,
        "trials": [
            {
                "value": trial.value, "fits": trial.fits, "why": trial.why or None, "peak_reserved_bytes": trial.reserved_bytes,
                "peak_allocated_bytes": trial.allocated_bytes, "steps": trial.steps, "seconds": round(trial.seconds, 3),
                "folder": trial.folder if trial.place in {fits, fails} else None,
            }
            for trial in trials
        ],
    }  # fmt: skip


def _notes(values: Range, trials: Sequence[Trial], fits: int) -> list[str]:
    """What makes the answer less certain."""
    best = next((trial for trial in trials if trial.fits and trial.place == fits), None)
    if best is None:
        return []
    notes = []
    if best.reserved_bytes is None:
        notes.append(f"nothing was recorded of {values.name}={best.value}: does it use the device?")
    elif best.steps < 2:
        notes.append(
            f"{values.name}={best.value} did {plural(best.steps, 'training step')}: a program often needs most in its second, when the "
            "optimizer has its states; let it do two or more"
        )
    if best.caught:
        notes.append(
            f"{values.name}={best.value} ran out of memory {plural(best.caught, 'time')} and went on: the program handles that itself"
        )
    return notes


def _table(report: dict[str, Any], trials: Sequence[Trial]) -> list[str]:
    rows: list[tuple[str, ...]] = [(report["name"], "", "RESERVED", "ALLOCATED", "SECONDS")]
    for trial in sorted(trials, key=lambda trial: trial.value):
        peaks = [format_bytes(value) for value in (trial.reserved_bytes, trial.allocated_bytes)]
        rows.append((str(trial.value), "fits" if trial.fits else "out of memory", *peaks, f"{trial.seconds:.1f}"))
    wide = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        f"{row[0]:>{wide[0]}}  {row[1]:<{wide[1]}}  {row[2]:>{wide[2]}}  {row[3]:>{wide[3]}}  {row[4]:>{wide[4]}}".rstrip() for row in rows
    ]
    return [*lines, "", *_answer(report, trials)]


def _answer(report: dict[str, Any], trials: Sequence[Trial]) -> list[str]:
    name, fits, fails = report["name"], report["fits"], report["fails"]
    by_value = {trial.value: trial for trial in trials}
    if fits is None:
        said = [f"Not even {name}={fails} fits: {by_value[fails].why}."]
    elif fails is None:
        said = [f"{name}={fits} fits, the largest of this range: nothing larger was tried."]
    else:
        said = [f"{name}={fits} is the largest that fits; {name}={fails} does not: {by_value[fails].why}."]
        said.append(ASSUMED[0].upper() + ASSUMED[1:] + ".")
    said += [f"note: {note}" for note in report["notes"]]
    said += [f"next: memdiag analyze {by_value[fails].folder}"] if fails is not None else []
    said += [f"      memdiag analyze {by_value[fits].folder}"] if fits is not None else []
    return said
