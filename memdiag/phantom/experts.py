"""The option ``--expert-load``: how many tokens each expert of a mixture of experts receives on a simulated device."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.text import phrase

VARIABLE = "MEMDIAG_PHANTOM_EXPERTS"  # the assumption as JSON, for memdiag's part in the program
_MOST_EXPERTS = 1024  # as in boot/computing/experts.py


def read_expert_load(text: str) -> str:
    """Returns the assumption of ``--expert-load`` as JSON, for the environment of the command.

    Args:
        text: "balanced", "skew=F" (0 to 1) or "counts=FILE" (a relative load for each expert), optionally with
            ",experts=N" for routers among N experts only.

    Raises:
        MemdiagError: It is none of these, or the file cannot be used.
    """
    first, _, rest = text.strip().partition(",")
    said: dict[str, Any] = {"load": text.strip(), "skew": None, "counts": None, "experts": None}
    name, is_given, value = first.partition("=")
    if name == "balanced" and not is_given:
        said["skew"] = 0.0
    elif name == "skew" and is_given:
        said["skew"] = _fraction(value, text)
    elif name == "counts" and value:
        said["counts"] = _counts(value)
        said["load"] = said["load"].replace(value, Path(value).name)  # no folders of this machine in a recording
    else:
        raise _refused(text)
    if rest:
        key, _, number = rest.partition("=")
        if key.strip() != "experts" or not number.isdecimal() or not 1 < int(number) <= _MOST_EXPERTS:
            raise _refused(text)
        said["experts"] = int(number)
        if said["counts"] is not None and len(said["counts"]) != said["experts"]:
            raise _refused(text)
    return json.dumps(said)


def assumed_load(environment: Mapping[str, str]) -> str:
    """Returns the text of the assumption in an environment, or ""."""
    said = environment.get(VARIABLE)
    return str(json.loads(said)["load"]) if said else ""


def assumed_counts(environment: Mapping[str, str]) -> list[float]:
    """Returns the relative load of each expert that an environment gives, or [] if it gives none."""
    said = environment.get(VARIABLE)
    return list(json.loads(said)["counts"] or ()) if said else []


def _fraction(value: str, text: str) -> float:
    try:
        found = float(value)
    except ValueError:
        raise _refused(text) from None
    if not 0 <= found <= 1:
        raise _refused(text)
    return found


def _counts(name: str) -> list[float]:
    """Returns the numbers of a file: a JSON list, or numbers between spaces, commas or line ends."""
    try:
        words = Path(name).read_text(encoding="utf-8").replace(",", " ").strip().removeprefix("[").removesuffix("]")
        found = [float(word) for word in words.split()]
    except (OSError, ValueError) as error:
        raise MemdiagError(
            phrase("errors.expert-counts", name=name, why=str(error)), phrase("errors.expert-counts.hint")
        ) from None
    if not 1 < len(found) <= _MOST_EXPERTS or sum(found) <= 0 or not all(0 <= one < math.inf for one in found):
        raise MemdiagError(phrase("errors.expert-counts.numbers", name=name), phrase("errors.expert-counts.hint"))
    return found


def _refused(text: str) -> MemdiagError:
    return MemdiagError(phrase("errors.expert-load", text=text), phrase("errors.expert-load.hint"))
