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
from memdiag.text import Language, Phrase, in_language, joined, language, phrase, sentence
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from memdiag.cli.recorded_run import Done, Order

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
    report = _report(order, values, trials, folder.shown, fits, fails, language() if as_json else "en")
    write_json(str(Path(folder.path, RESULT)), redact_manifest(report) if is_on() else report)
    write_out(json.dumps(report, indent=2) + "\n" if as_json else "\n".join(_table(report, values, trials)) + "\n")
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
    with busy(f"memdiag: {phrase('find_max.busy', value=f'{values.name}={value}')}"), _talking_to(output):
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
        return phrase("find_max.why", bytes=format_bytes(first.get("requested_bytes")))
    return " ".join(found[0].text.split())[:100] if found else ""


def _other_failure(values: Range, value: int, done: Done, output: Path) -> MemdiagError:
    lines = _tail(output)
    status = done.ended.status
    name = f"{values.name}={value}"
    if status >= 0:
        said = phrase("find_max.other.status", value=name, status=str(status))
    else:
        said = phrase("find_max.other.signal", value=name, signal=signal.Signals(-status).name)
    hint = phrase("find_max.other.hint", file=str(output))
    if status in {-_KILLED, 128 + _KILLED}:
        hint = joined((phrase("find_max.other.killed"), hint))
    return MemdiagError("\n  ".join([said, *lines]), hint)


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

    said = phrase("find_max.fits") if trial.fits else phrase("find_max.fails", why=trial.why)
    peak = phrase("find_max.peak", bytes=format_bytes(trial.reserved_bytes)) if trial.reserved_bytes else ""
    facts = joined((said, peak), ", ")
    say(f"memdiag: {phrase('find_max.trial', value=f'{values.name}={trial.value}', facts=facts, seconds=f'{trial.seconds:.1f}')}")


def _report(order: Order, values: Range, trials: Sequence[Trial], folder: str, fits: int, fails: int, chosen: Language) -> dict[str, Any]:
    """Returns the result as JSON has it, with its texts in the language ``chosen``."""
    return {
        "schema_version": 1, "name": values.name, "low": values.low, "high": values.high, "step": values.step,
        "fits": values.at(fits) if fits >= 0 else None,
        "fails": values.at(fails) if fails <= values.last else None,
        "phantom": order.phantom, "assumed": in_language(phrase("find_max.assumed"), chosen),
        "notes": [in_language(note, chosen) for note in _notes(values, trials, fits)], "folder": folder,
        "trials": [
            {
                "value": trial.value, "fits": trial.fits, "why": in_language(trial.why, chosen) or None,
                "peak_reserved_bytes": trial.reserved_bytes,
                "peak_allocated_bytes": trial.allocated_bytes, "steps": trial.steps, "seconds": round(trial.seconds, 3),
                "folder": trial.folder if trial.place in {fits, fails} else None,
            }
            for trial in trials
        ],
    }  # fmt: skip


def _notes(values: Range, trials: Sequence[Trial], fits: int) -> list[Phrase]:
    """What makes the answer less certain."""
    best = next((trial for trial in trials if trial.fits and trial.place == fits), None)
    if best is None:
        return []
    name = f"{values.name}={best.value}"
    notes = []
    if best.reserved_bytes is None:
        notes.append(phrase("find_max.note.nothing", value=name))
    elif best.steps < 2:
        notes.append(phrase("find_max.note.steps", value=name, count=best.steps))
    if best.caught:
        notes.append(phrase("find_max.note.caught", value=name, count=best.caught))
    return notes


def _table(report: dict[str, Any], values: Range, trials: Sequence[Trial]) -> list[str]:
    """Returns the answer, and a table of the runs below it."""
    from memdiag.render.support.lightpage import LightPage
    from memdiag.render.support.look import Look

    rows = [[report["name"], "", *(phrase(f"find_max.head.{head}") for head in ("reserved", "allocated", "seconds"))]]
    for trial in sorted(trials, key=lambda trial: trial.value):
        peaks = [format_bytes(value) for value in (trial.reserved_bytes, trial.allocated_bytes)]
        fate = phrase("find_max.fits") if trial.fits else phrase("outlook.fate.oom")
        rows.append([str(trial.value), fate, *peaks, f"{trial.seconds:.1f}"])
    page = LightPage(Look(width=80))
    page.grid("rlrrr", rows, indent=0)
    found = next((trial.place for trial in trials if trial.value == report["fits"]), -1)
    return [*_answer(report, _notes(values, trials, found), trials), "", *page.finish().splitlines()]


def _answer(report: dict[str, Any], notes: list[Phrase], trials: Sequence[Trial]) -> list[str]:
    name, fits, fails = report["name"], report["fits"], report["fails"]
    by_value = {trial.value: trial for trial in trials}
    largest, failing = f"{name}={fits}", f"{name}={fails}"
    if fits is None:
        said: list[str] = [phrase("find_max.none", value=failing, why=by_value[fails].why)]
    elif fails is None:
        said = [phrase("find_max.all", value=largest)]
    else:
        said = [phrase("find_max.largest", value=largest, next=failing, why=by_value[fails].why), sentence(phrase("find_max.assumed"))]
    said += [phrase("find_max.note", note=note) for note in notes]
    folders = [by_value[value].folder for value in (fails, fits) if value is not None]
    return said + [phrase("find_max.next", command=f"memdiag analyze {folder}") for folder in folders]
