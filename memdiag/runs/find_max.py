"""``memdiag record --find-max batch=1..256``: the largest placeholder value with which a command fits into memory.

Each value is tried by running the command, with its output written to a file. The ends of the range come first. Then a
straight line through the peaks of two runs that fitted predicts where memory ends, and the next value is tried there.
If that fails, the range is halved. The answer depends on two runs only: the last that fitted and the first that did
not, one step apart.

memdiag assumes that larger values need at least as much memory, so values above the first failure are not tried. The
value below the answer is tried at the end, to check this assumption where it matters most.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.results.find_max import LargestFit, Trial, ValueRange
from memdiag.runs.listener import SILENT, Listener
from memdiag.runs.recording import Done, Order, perform
from memdiag.runs.summary import LARGEST
from memdiag.text import Language, joined, phrase
from memdiag.units import format_bytes

OUTPUT, RESULT = "output.txt", "find-max.json"

_RANGE = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(\d+)\s*\.\.\s*(\d+)\s*(?::\s*(\d+)\s*)?")
_LAST_LINES, _LAST_BYTES = 30, 64 << 10
_KILLED = 9


def read_range(text: str, command: Sequence[str]) -> ValueRange:
    """Reads NAME=LOW..HIGH or NAME=LOW..HIGH:STEP.

    Raises:
        MemdiagError: The text is not a range, or the command has no such placeholder.
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        raise MemdiagError(phrase("errors.find-max", text=str(text)), phrase("errors.find-max.hint", batch="{batch}"))
    found = ValueRange(match[1], int(match[2]), int(match[3]), int(match[4] or 1))
    if found.low > found.high or not found.step:
        raise MemdiagError(
            phrase("errors.find-max-empty", text=str(text)), phrase("errors.find-max.hint", batch="{batch}")
        )
    if not any(f"{{{found.name}}}" in word for word in command):
        raise MemdiagError(
            phrase("errors.find-max-name", text=text, name=f"{{{found.name}}}"),
            phrase("errors.find-max.hint", batch="{batch}"),
        )
    return found


def find_max(
    order: Order,
    text: str,
    *,
    listener: Listener = SILENT,
    on_trial: Callable[[ValueRange, Trial], None] | None = None,
    language_of_texts: Language = "en",
) -> LargestFit:
    """Finds the largest value of a placeholder with which a command fits into memory.

    Args:
        order: The run, with the placeholder ``{NAME}`` in its command.
        text: The range: NAME=LOW..HIGH or NAME=LOW..HIGH:STEP.
        listener: Receives progress.
        on_trial: Called after each run.
        language_of_texts: Language of the texts in find-max.json.

    Returns:
        The answer. It is also in find-max.json in its folder, with the files of the two runs that it is based on.

    Raises:
        MemdiagError: A run failed for another reason than memory, or cannot be started.
    """
    from memdiag.recorder import run_folder
    from memdiag.recorder.files import write_json
    from memdiag.redaction import is_on
    from memdiag.render.find_max.json import as_dict
    from memdiag.sources.redacted_file import redact_manifest

    values = read_range(text, order.command)
    folder = run_folder.make(order.output)
    trials: list[Trial] = []
    fits, fails = -1, values.last + 1

    def fits_at(place: int) -> bool:
        trials.append(_run(order, values, place, folder.path, listener))
        if on_trial is not None:
            on_trial(values, trials[-1])
        return trials[-1].fits

    while fails - fits > 1 and fails > 0:
        place = next_place(trials, values, fits, fails, _capacity(order, trials))
        fits, fails = (place, fails) if fits_at(place) else (fits, place)
        _leave_boundary(folder.path, values, trials, fits, fails)
    if 0 < fits < values.last and all(trial.place != fits - 1 for trial in trials):
        fits_at(fits - 1)
        _leave_boundary(folder.path, values, trials, fits, fails)
    largest = values.at(fits) if fits >= 0 else None
    failing = values.at(fails) if fails <= values.last else None
    found = LargestFit(values, tuple(trials), largest, failing, order.phantom, folder.shown)
    report = as_dict(found, language_of_texts)
    write_json(str(Path(folder.path, RESULT)), redact_manifest(report) if is_on() else report)
    return found


# ----------------------------------------------------------------------------------------------------- what to try next


def next_place(trials: Sequence[Trial], values: ValueRange, fits: int, fails: int, capacity: int | None) -> int:
    """Returns the index to try next, between the last that fits and the first that does not.

    Args:
        trials: Previous trials, in order.
        values: The range.
        fits: The largest index that fits, or -1.
        fails: The smallest index that does not fit, or one after the last.
        capacity: Bytes of the device available to PyTorch, or None if unknown.
    """
    if fits < 0:
        return 0
    if fails > values.last:
        return values.last
    guess = _where_memory_ends(trials, capacity) if not _was_wrong(trials) else None
    if guess is None:
        guess = _between(values, fits, fails)
    return min(max(guess, fits + 1), fails - 1)


def _between(values: ValueRange, fits: int, fails: int) -> int:
    """Returns the middle; for a wide range the geometric one, since fitting values tend to be at its lower end."""
    low, high = values.at(fits), values.at(fails)
    if low > 0 and high > 4 * low:
        return (math.isqrt(low * high) - values.low) // values.step
    return (fits + fails) // 2


def _where_memory_ends(trials: Sequence[Trial], capacity: int | None) -> int | None:
    """Returns the index at which a straight line through the two largest fitting runs reaches the capacity, or None."""
    known = sorted(
        (trial.place, trial.peak_allocated_bytes) for trial in trials if trial.fits and trial.peak_allocated_bytes
    )
    if capacity is None or len(known) < 2:
        return None
    (near, less), (far, more) = known[-2:]
    if more <= less:
        return None
    place: int = far + (capacity - more) * (far - near) // (more - less)
    return place


def _was_wrong(trials: Sequence[Trial]) -> bool:
    """Returns whether the last value did not fit: if the line pointed there, it would point there again."""
    return not trials[-1].fits and len(trials) > 2


def _capacity(order: Order, trials: Sequence[Trial]) -> int | None:
    if order.phantom is not None:
        from memdiag.phantom.profiles import choose

        return choose(order.phantom).capacity_bytes
    return next((trial.capacity_bytes for trial in trials if trial.capacity_bytes), None)


# -------------------------------------------------------------------------------------------------------------- one run


def _run(order: Order, values: ValueRange, place: int, folder: str, listener: Listener) -> Trial:
    from memdiag.recorder.launch import end_as
    from memdiag.recorder.run_folder import shown
    from memdiag.redaction import is_on
    from memdiag.sources.redacted_file import redact_lines

    value = values.at(place)
    inside = Path(folder, f"{values.name}={value}")
    inside.mkdir()
    command = tuple(word.replace(f"{{{values.name}}}", str(value)) for word in order.command)
    output = inside.with_name(f"{inside.name}.txt")  # moved inside afterwards: a run's folder must be empty
    with listener.busy(f"memdiag: {phrase('find_max.busy', value=f'{values.name}={value}')}"), talking_to(output):
        done = perform(replace(order, command=command, output=str(inside), has_short_name=False), listener)
    output = output.rename(inside / OUTPUT)
    if is_on():
        redact_lines(output)
    if asked := {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}.intersection(done.ended.signals):
        raise SystemExit(end_as(done.ended) or 128 + max(asked))
    recorded = done.run.recorded if done.run is not None else ()
    failures = [failure for status in recorded for failure in status.get("ooms") or ()]
    why = "" if done.ended.status == 0 else _why(failures, output)
    if done.ended.status and not why:
        for line in _tail(output):
            listener.say(f"  {line}")
        raise _other_failure(values, value, done, output)
    reserved, allocated, unknown = peaks_of([status["trace"] for status in recorded], listener)
    return Trial(
        place,
        value,
        done.ended.status == 0,
        reserved,
        allocated,
        max((failure.get("total_bytes") or 0 for failure in failures), default=0) or _capacity(order, []),
        max((status.get("steps") or 0 for status in recorded), default=0),
        done.ended.seconds,
        shown(str(inside)),
        why,
        0 if done.ended.status else len(failures),
        unknown,
    )


@contextlib.contextmanager
def talking_to(path: Path) -> Iterator[None]:
    """Redirects the output of the command and memdiag to a file, and its input from nothing."""
    sys.stdout.flush()
    if sys.stderr is not None:
        sys.stderr.flush()
    kept = {number: os.dup(number) for number in (0, 1, 2)}
    try:
        # Does not contain anybody's path.
        with path.open("wb") as file, open(os.devnull, "rb") as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), 0)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            yield
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


def _why(failures: list[dict[str, Any]], output: Path) -> str:
    """Returns the out-of-memory error that ended a program, in one line, or "" if it ended for another reason."""
    from memdiag.oom.read import read_files

    found = [message for message in read_files([output]).messages if not message.is_warning]
    if failures:
        first = min(failures, key=lambda failure: failure.get("time") or 0)
        return phrase("find_max.why", bytes=format_bytes(first.get("requested_bytes")))
    return " ".join(found[0].text.split())[:100] if found else ""


def _other_failure(values: ValueRange, value: int, done: Done, output: Path) -> MemdiagError:
    status = done.ended.status
    name = f"{values.name}={value}"
    if status >= 0:
        said = phrase("find_max.other.status", value=name, status=str(status))
    else:
        said = phrase("find_max.other.signal", value=name, signal=signal.Signals(-status).name)
    hint = phrase("find_max.other.hint", file=str(output))
    if status in {-_KILLED, 128 + _KILLED}:
        hint = joined((phrase("find_max.other.killed"), hint))
    return MemdiagError(said, hint)


def _tail(path: Path) -> list[str]:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LAST_BYTES))
        return file.read().decode(errors="replace").splitlines()[-_LAST_LINES:]


def peaks_of(traces: list[str], listener: Listener) -> tuple[int | None, int | None, int]:
    """Returns the peaks of reserved and allocated bytes over all devices of all processes, or None if unknown.

    The third number is the additional memory that a card may need.
    """
    peaks: dict[str, int] = {}
    unknown = 0
    for path in traces:
        if Path(path).stat().st_size > LARGEST:
            continue
        trace = listener.read_trace(Path(path))
        scratch = trace.recorded.ended.scratch if trace.recorded is not None else None
        unknown = max(unknown, scratch.more_bytes if scratch is not None else 0)
        for device in trace.devices:
            for name in ("reserved", "allocated"):
                at = device.peak(name)
                peaks[name] = max(peaks.get(name, 0), device.usage_at(at)[name])
    return peaks.get("reserved") or None, peaks.get("allocated") or None, unknown


def _leave_boundary(folder: str, values: ValueRange, trials: Sequence[Trial], fits: int, fails: int) -> None:
    """Keeps the files of the two runs that the current answer is based on."""
    for trial in trials:
        if trial.place not in {fits, fails}:
            shutil.rmtree(Path(folder, f"{values.name}={trial.value}"), ignore_errors=True)
