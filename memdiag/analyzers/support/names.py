"""Names of tensors in a report: by name, by module, and by name and call site together.

Names are known in recordings by memdiag (``memdiag.trace.names``). Models repeat, so ``layers.0.mlp.up.weight`` to
``layers.31.mlp.up.weight`` become one line of a report, ``layers.*.mlp.up.weight``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np

from memdiag.analyzers.support.context import DeviceView
from memdiag.results.sites import ModuleUsage
from memdiag.text import phrase
from memdiag.trace.names import collapsed
from memdiag.trace.schema import CATEGORIES
from memdiag.trace.table import Array

NO_MODULE = "(outside of any module)"
TOP_MODULE = "(the model itself)"
NO_NAME = "(no name)"
LONGEST = 60  # characters of one name in a list
NUM_NAMES = 3

# "grad of X", "exp_avg of X", "gradient of X (by its size)", "X (gelu)": X is a path in the model
_OF = re.compile(r"^(?:[^\s.]+(?:\s[^\s.]+)? of )?([^\s:/\\()]+)(?: \(.*\))?$")
_LETTER = re.compile(r"[^\s(]*[^\W\d]")
_OF_PARAMETERS = [CATEGORIES.index(name) for name in ("parameter", "gradient", "optimizer_state")]


def kind_words(category: str) -> str:
    """Returns ``activations`` for ``activation``; ``tensors`` if unknown."""
    return phrase(f"vocabulary.categories.{category if category in CATEGORIES else 'unknown'}")


def counted_kind(category: str, count: int) -> str:
    """Returns ``1 activation`` or ``2 activations``; ``tensors`` if unknown."""
    return phrase(f"vocabulary.counted.{category if category in CATEGORIES else 'unknown'}", count=count)


def has_names(view: DeviceView) -> bool:
    """Returns whether any tensor of the device has a name."""
    return bool((view.device.tensors.name >= 0).any())


def name_of(view: DeviceView, row: int) -> str:
    """Returns the name of a tensor (a row of Tensors), or "" for none."""
    number = int(view.device.tensors.name[row])
    return view.trace.strings[number] if number >= 0 else ""


def names_of(view: DeviceView, rows: Array, most: int = NUM_NAMES) -> tuple[str, ...]:
    """Returns the names with the most bytes among the tensors ``rows``; differing numbers become stars."""
    return tuple(name for name, _, _, _ in largest_names(view, rows, most))


def largest_names(view: DeviceView, rows: Array, most: int) -> list[tuple[str, int, int, int]]:
    """Returns name (as ``names_of``), bytes, count and largest tensor of the names with the most bytes."""
    tensors = view.device.tensors
    found = []
    for name, size, own in [item for item in _grouped(view, rows, collapsed) if item[0]][:most]:
        largest = int(own[np.argmax(tensors.block_bytes[own])])
        alike = (tensors.name[own] == tensors.name[largest]).all()
        found.append((_plain(name_of(view, largest) if alike else name), size, len(own), largest))
    return found


def place_of(view: DeviceView, rows: Array, label: str) -> str:
    """Returns name and call site as one text: ``layers.*.act at model.py:35 forward``; either may be missing."""
    names = names_of(view, rows, 2)
    if not names:
        return label
    name = short(names[0]) + (", …" if len(names) > 1 else "")
    if not label or label in names[0]:
        return name
    return phrase("places.named.reason" if label.startswith("(") else "places.named", name=name, place=label)


def short(name: str) -> str:
    """Returns a very long name without its middle: both ends of a path carry information."""
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[: half - 1]}…{name[-half:]}"


def _plain(name: str) -> str:
    """Returns a name that is a bare number (of a list of modules) as words."""
    return name if _LETTER.match(name) else f"module {name}"


def by_module(view: DeviceView, rows: Array, top: int) -> tuple[ModuleUsage, ...] | None:
    """Returns the modules with the most bytes among the tensors ``rows``, or None without names.

    A module includes its submodules, down to one part below the first number: ``layers.*.mlp``.
    """
    if not has_names(view):
        return None
    tensors = view.device.tensors
    held: dict[str, list[int]] = {}
    weights = np.isin(tensors.category[rows], _OF_PARAMETERS)
    for own, of_parameter in ((rows[weights], True), (rows[~weights], False)):
        for name, size, mine in _grouped(view, own, partial(module_of, of_parameter=of_parameter)):
            entry = held.setdefault(name or NO_NAME, [0, 0])
            entry[0] += size
            entry[1] += len(mine)
    found = sorted(held.items(), key=lambda item: (-item[1][0], item[0]))
    total = int(tensors.block_bytes[rows].sum())
    words = {
        NO_MODULE: phrase("places.module.none"),
        TOP_MODULE: phrase("places.module.top"),
        NO_NAME: phrase("places.module.unnamed"),
    }
    return tuple(
        ModuleUsage(words.get(name, name), size, size / total if total else 0.0, count)
        for name, (size, count) in found[:top]
    )


def by_text(view: DeviceView, texts: Array, rows: Array, top: int) -> tuple[ModuleUsage, ...] | None:
    """Returns the texts with the most bytes among the tensors ``rows``; differing numbers become stars.

    Args:
        texts: Index of the text of each tensor into the strings of the trace; -1: none.

    Returns:
        None if no tensor has a text.
    """
    size = view.device.tensors.block_bytes[rows]
    held: dict[str, list[int]] = {}
    for number in np.unique(texts[texts >= 0]).tolist():
        own = texts == number
        entry = held.setdefault(short(collapsed(view.trace.strings[number])), [0, 0])
        entry[0] += int(size[own].sum())
        entry[1] += int(own.sum())
    found = sorted(held.items(), key=lambda item: (-item[1][0], item[0]))
    total = max(int(size.sum()), 1)
    usages = tuple(ModuleUsage(name, held, held / total, count) for name, (held, count) in found[:top])
    return usages or None


def module_of(name: str, *, of_parameter: bool) -> str:
    """Returns the module of a name, with numbers as stars.

    Args:
        of_parameter: Whether the last part is the parameter's own name.
    """
    found = _OF.match(name)
    if not found or name.startswith("input of "):
        return NO_MODULE
    parts = collapsed(found[1]).split(".")
    if of_parameter:
        parts = parts[:-1]
    if not parts:
        return TOP_MODULE
    star = parts.index("*") if "*" in parts else 0
    return _plain(".".join(parts[: star + 2]))


def _grouped(view: DeviceView, rows: Array, word: Callable[[str], str]) -> list[tuple[str, int, Array]]:
    """Returns words for the tensors' names, with their bytes and tensors, most bytes first; "" for unnamed ones."""
    tensors = view.device.tensors
    numbers, group = np.unique(tensors.name[rows], return_inverse=True)
    words: dict[str, int] = {}
    of_number = [
        words.setdefault(word(view.trace.strings[number]) if number >= 0 else "", len(words))
        for number in numbers.tolist()
    ]
    if not of_number:
        return []
    of_row = np.array(of_number, np.int64)[group]
    size = np.zeros(len(words), np.int64)
    np.add.at(size, of_row, tensors.block_bytes[rows])
    order = np.argsort(of_row, kind="stable")
    ends = np.searchsorted(of_row[order], np.arange(len(words) + 1))
    found = [(text, int(size[number]), rows[order[ends[number] : ends[number + 1]]]) for text, number in words.items()]
    return sorted(found, key=lambda item: (-item[1], item[0]))
