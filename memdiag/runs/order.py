"""Reads what ``memdiag record`` is to record, and with which assumptions: the parts of an ``Order`` that are texts."""

from __future__ import annotations

import math
import re
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.recorder.config import BACKENDS
from memdiag.runs.libraries import LOGS
from memdiag.text import phrase

_MOST_SECONDS = 86_400  # between two samples
_STEPS = re.compile(r"(\d*):(\d*)")  # FIRST:LAST


def assumed_values(
    phantom: str | None,
    *,
    values: str | None = None,
    compute: str | None = None,
    expert_load: str | None = None,
    selected: str | None = None,
) -> dict[str, str]:
    """Returns the variables that set the values of results on a simulated device.

    Args:
        phantom: The simulated device, or None.
        values, compute, expert_load, selected: The options of the same names of ``memdiag record``, or None. The values
            "auto" set no variable: ``perform_auto`` sets one for each run.

    Raises:
        MemdiagError: There is no simulated device, or a value cannot be read.
    """
    given = {"values": values, "compute": compute, "expert-load": expert_load, "selected": selected}
    used = [name for name, value in given.items() if value is not None]
    if phantom is None and used:
        raise MemdiagError(phrase("errors.needs-phantom", value=used[0]), phrase("errors.needs-phantom.hint"))
    said = {} if values in {None, "auto"} else {"MEMDIAG_PHANTOM_VALUES": str(values)}
    if compute is not None or expert_load is not None:
        from memdiag.phantom.launch import compute_limits

        # The counts of an assumed load are computed as well.
        said |= compute_limits("small" if compute is None else compute)
    if expert_load is not None:
        from memdiag.phantom.experts import VARIABLE, read_expert_load

        said[VARIABLE] = read_expert_load(expert_load)
    if selected is not None:
        from memdiag.phantom.launch import SELECTED
        from memdiag.runs.selected import read_fractions

        said[SELECTED] = f"{read_fractions(selected).high:g}"
    return said


def chosen_logs(words: list[str]) -> tuple[str, ...]:
    """Returns the logs of libraries to switch on, from texts that may name several, separated by commas.

    Raises:
        MemdiagError: A log is unknown.
    """
    chosen = tuple(dict.fromkeys(word.strip().lower() for item in words for word in item.split(",")))
    for word in chosen:
        if word not in LOGS:
            raise MemdiagError(
                phrase("errors.record-with", word=str(word)),
                phrase("errors.record-with.hint", known=", ".join(LOGS)),
            )
    return chosen


def settings_of(
    backends: list[str],
    steps: str | None,
    every: int,
    max_events: int,
    *,
    names: bool,
    samples: str = "1",
    holders: bool = False,
) -> dict[str, Any]:
    """Returns the settings of ``Order``.

    Args:
        backends: Names of backends, also several in one text, separated by commas; empty for all.
        steps: The steps to record, as ``FIRST:LAST``, or None for all.
        every: As in ``memdiag.recorder.config.Config``.
        max_events: As in ``memdiag.recorder.config.Config``.
        names: Whether to search for names of tensors.
        samples: Seconds between samples of device memory; "0" for samples at marks only, "off" for none.
        holders: Whether to search for who holds the tensors that accumulate.

    Raises:
        MemdiagError: A backend is unknown, or the steps or the interval of samples cannot be read.
    """
    chosen = tuple(dict.fromkeys(word.strip().lower() for item in backends for word in item.split(",")))
    for word in chosen:
        if word not in BACKENDS:
            raise MemdiagError(
                phrase("errors.record-backend", word=str(word)),
                phrase("errors.record-backend.hint", value=", ".join(BACKENDS)),
            )
    first, last = 0, None
    if steps is not None:
        match = _STEPS.fullmatch(steps.strip())
        if match is None or (match[2] and int(match[2]) <= int(match[1] or 0)):
            raise MemdiagError(phrase("errors.steps", steps=str(steps)), phrase("errors.steps.hint"))
        first, last = int(match[1] or 0), int(match[2]) if match[2] else None
    return {
        "backends": chosen,
        "every": every,
        "max_events": max_events,
        "first_step": first,
        "last_step": last,
        "names": names,
        "sample_interval": _interval(samples),
        "holders": holders,
    }


def _interval(text: str) -> float | None:
    if text.strip().lower() == "off":
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < _MOST_SECONDS:
        raise MemdiagError(phrase("errors.samples", text=text), phrase("errors.samples.hint"))
    return seconds
