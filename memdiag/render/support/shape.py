"""How a result becomes JSON: keys are declared once per class, and define both the output and its JSON Schema.

A key is the name of a field or of a property, and its meaning is the text of the field in the docstring of the class. A
class without a ``Shape`` has all its fields as keys. ``docs/json_schemas.py`` writes the schemas.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from memdiag.render.support.json import DEEPEST, as_json
from memdiag.text import Language, in_language
from memdiag.version import __version__

ABSENT = object()  # the value of an omitted key
VERSION_KEY = "schema_version"
PROGRAM_KEY = "memdiag_version"


@dataclass(frozen=True)
class ShapeKey:
    """A key that is neither a field nor a property of its class.

    Attributes:
        name: The key.
        of: Returns its value, or ABSENT.
        hint: The type of the value, as in an annotation.
        meaning: Meaning of the value, with its unit.
        is_optional: Whether it may be omitted.
    """

    name: str
    of: Callable[[Any], Any]
    hint: Any
    meaning: str
    is_optional: bool = False


@dataclass(frozen=True)
class Shape:
    """The keys of one class, in their order.

    Attributes:
        cls: The class.
        keys: Names of fields and properties, or other keys; empty for every field.
        null_if_empty: Text fields whose "" is written as null, and numbers whose 0 is.
        null_if_negative: Numbers whose negative values are written as null.
        without: Fields that are omitted if ``keys`` is empty.
        more: Returns keys that depend on the result, such as those of a policy. The script knows their types.
    """

    cls: type
    keys: tuple[str | ShapeKey, ...] = ()
    null_if_empty: frozenset[str] = frozenset()
    null_if_negative: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    more: Callable[[Any], Mapping[str, Any]] | None = None

    def names(self) -> tuple[str | ShapeKey, ...]:
        """Returns the keys; without a list of them, the fields of the class."""
        if self.keys:
            return self.keys
        return tuple(field.name for field in fields(self.cls) if field.name not in self.without)

    def value(self, key: str | ShapeKey, owner: Any) -> Any:
        """Returns the value of a key, before its own parts are written."""
        if isinstance(key, ShapeKey):
            return key.of(owner)
        value = getattr(owner, key)
        if (key in self.null_if_empty and not value) or (key in self.null_if_negative and value < 0):
            return None
        return value


@dataclass(frozen=True)
class JsonLayout:
    """One JSON output.

    Attributes:
        name: Name of its schema file: "analyze" for ``analyze.schema.json``.
        title: The command that prints it.
        meaning: Its content, in a sentence.
        version: ``schema_version``; raised when a key is removed, renamed or changes its meaning.
        root: The class of the result.
        shapes: Shapes of classes with other keys than their fields.
        has_program_version: Whether it contains ``memdiag_version``.
        indent: Spaces for each level.
    """

    name: str
    title: str
    meaning: str
    version: int
    root: type
    shapes: tuple[Shape, ...] = ()
    has_program_version: bool = True
    indent: int = 2

    def shape_of(self, cls: type) -> Shape:
        """Returns the shape of a class."""
        return next((shape for shape in self.shapes if shape.cls is cls), Shape(cls))

    def as_dict(self, result: Any, chosen: Language | None = None) -> dict[str, Any]:
        """Returns the output for a result: dicts, lists, str, int, float, bool and None only.

        Args:
            result: The result, of class ``root``.
            chosen: Language of its phrases, or None for their original one.
        """
        head: dict[str, Any] = {VERSION_KEY: self.version}
        if self.has_program_version:
            head[PROGRAM_KEY] = __version__
        shown: dict[str, Any] = as_json({**head, **self._written(result, chosen, 0)})
        return shown

    def text(self, result: Any, chosen: Language | None = None) -> str:
        """Returns the output for a result as text, with a newline at its end."""
        return json.dumps(self.as_dict(result, chosen), indent=self.indent, allow_nan=False) + "\n"

    def _written(self, value: Any, chosen: Language | None, depth: int) -> Any:
        if is_dataclass(value) and not isinstance(value, type):
            shape = self.shape_of(type(value))
            pairs = [(key if isinstance(key, str) else key.name, shape.value(key, value)) for key in shape.names()]
            pairs += [] if shape.more is None else shape.more(value).items()
            return {name: self._written(each, chosen, depth + 1) for name, each in pairs if each is not ABSENT}
        if depth >= DEEPEST:
            return value  # only values from a file are nested this deeply; as_json truncates them
        if isinstance(value, Mapping):
            return {key: self._written(each, chosen, depth + 1) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._written(each, chosen, depth + 1) for each in value]
        return in_language(value, chosen) if chosen is not None and isinstance(value, str) else value
