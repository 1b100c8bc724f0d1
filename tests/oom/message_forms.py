"""Templates from which tests generate messages: a text with slots, and how each slot is printed.

Each file of tests/oom/dialects has a list ``FORMS``. test_round_trip.py fills them with random values, wraps and
prefixes the text as logs do, and expects the same values back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Slot:
    """A value in a message.

    Attributes:
        name: Name of the field in the JSON output ("requested_bytes").
        values: The strategy for its values.
        show: Formats a value as the system prints it.
        read: Returns the value expected back, from the printed text and the original value.
    """

    name: str
    values: st.SearchStrategy
    show: Callable[[object], str] = str
    read: Callable[[str, object], object] = lambda _text, value: value


@dataclass(frozen=True)
class Form:
    """A message with slots.

    Attributes:
        dialect: The expected ``dialect`` in the report.
        template: The text, with ``{requested}`` for the slot of that key; braces of the message itself are doubled.
        slots: The slots by their keys in the template.
        fixed: Fields that every message of this form has, with their values.
    """

    dialect: str
    template: str
    slots: Mapping[str, Slot] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)

    def messages(self) -> st.SearchStrategy[tuple[str, dict[str, object]]]:
        """Returns a strategy of messages and the fields in them."""

        def fill(values: Mapping[str, object]) -> tuple[str, dict[str, object]]:
            texts = {key: slot.show(values[key]) for key, slot in self.slots.items()}
            expected = {slot.name: slot.read(texts[key], values[key]) for key, slot in self.slots.items()}
            return self.template.format(**texts), {**self.fixed, **expected}

        return st.fixed_dictionaries({key: slot.values for key, slot in self.slots.items()}).map(fill)


def _times(text: str, _value: object) -> int:
    number, unit = text.split()
    return round(float(number) * {"bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}[unit])


def _torch(value: object) -> str:
    size = int(str(value))
    for limit, unit in ((1024, "bytes"), (MIB, "KiB"), (GIB, "MiB")):
        if size <= limit:
            return f"{size} bytes" if unit == "bytes" else f"{size / (limit / 1024):.2f} {unit}"
    return f"{size / GIB:.2f} GiB"


def torch_size(name: str, largest: int = 1 << 42) -> Slot:
    """Returns the slot of a size as PyTorch prints it: two decimals and bytes, KiB, MiB or GiB."""
    return Slot(f"{name}_bytes", st.integers(0, largest), _torch, _times)


def unit_size(name: str, form: str, unit: int, largest: int = 1 << 40) -> Slot:
    """Returns the slot of a size in a fixed unit: ``unit_size("limit", "{:.2f}GB", GIB)``."""

    def read(text: str, _value: object) -> int:
        digits = "".join(character for character in text if character.isdigit() or character == ".")
        return round(float(digits) * unit)

    return Slot(f"{name}_bytes", st.integers(0, largest), lambda value: form.format(int(str(value)) / unit), read)


def whole_bytes(name: str, largest: int = 1 << 45, least: int = 0) -> Slot:
    """Returns the slot of a whole number of bytes."""
    return Slot(f"{name}_bytes", st.integers(least, largest))


def integer(name: str, low: int = 0, high: int = 1 << 22) -> Slot:
    """Returns the slot of a whole number, such as a device, rank or process."""
    return Slot(name, st.integers(low, high))


def fraction(name: str, form: str = "{:.2f}") -> Slot:
    """Returns the slot of a number between 0 and 1."""
    return Slot(name, st.floats(0.01, 1.0), form.format, lambda text, _value: float(text))


def shape(name: str = "shape", form: str = "[{}]", comma: str = ",") -> Slot:
    """Returns the slot of a shape, such as "[16,112,3]" or "(104812, 5070)"."""
    sizes = st.lists(st.integers(1, 100_000), min_size=2, max_size=5)

    def write(value: object) -> str:
        return form.format(comma.join(str(size) for size in value))  # type: ignore[attr-defined]

    return Slot(name, sizes, write)


def choice(name: str, *values: object) -> Slot:
    """Returns the slot of one of these values."""
    return Slot(name, st.sampled_from(values))
