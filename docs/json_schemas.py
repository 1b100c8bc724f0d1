"""Writes the JSON Schemas in docs/json anew from the types of the results: ``python docs/json_schemas.py``."""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from memdiag.allocator.policies.gmlake.detail import Stitching
from memdiag.allocator.policies.lifecycle.detail import LifetimePools
from memdiag.allocator.policies.mempool.detail import Mempools
from memdiag.allocator.policies.static_plan.detail import PlanDetail
from memdiag.offload.detail import Offloading
from memdiag.render import FORMS
from memdiag.render.support.shape import PROGRAM_KEY, VERSION_KEY, JsonLayout, ShapeKey

# What only some results have (``Shape.more``): the classes, which have their own key. tests/test_json_schemas.py finds
# new ones.
MORE: dict[str, tuple[type[Any], ...]] = {
    "Prediction": (LifetimePools, Mempools, Offloading, PlanDetail, Stitching),
}

FOLDER = Path(__file__).with_name("json")
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SIMPLE: dict[object, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}
# An entry of "Attributes:": names, and a text whose further lines are indented.
_ENTRY = re.compile(r"^(?P<names>\w+(?:, \w+)*): (?P<text>.*(?:\n .*)*)", re.MULTILINE)


def layouts() -> Iterator[JsonLayout]:
    """Yields the layout of every JSON output of every command."""
    for command, forms in FORMS.items():
        for form in forms:
            if form == "json" or form.endswith("_json"):
                yield import_module(f"memdiag.render.{command}.{form}").LAYOUT


def schema_of(layout: JsonLayout) -> dict[str, Any]:
    """Returns the JSON Schema of one output."""
    writer = _Writer(layout)
    body = writer.object_of(layout.root)
    head: dict[str, Any] = {
        VERSION_KEY: {
            "const": layout.version,
            "description": "Version of this format. A removed, renamed or redefined key raises it; a new key does not.",
        }
    }
    if layout.has_program_version:
        head[PROGRAM_KEY] = {"type": "string", "description": "Version of memdiag that wrote this."}
    return {
        "$schema": DIALECT,
        "$id": f"urn:memdiag:{layout.name}:{layout.version}",
        "title": layout.title,
        "description": layout.meaning,
        **body,
        "properties": {**head, **body["properties"]},
        "required": [*head, *body["required"]],
        "$defs": dict(sorted(writer.definitions.items())),
    }


class _Writer:
    """Writes the schema of one layout; classes become definitions."""

    def __init__(self, layout: JsonLayout) -> None:
        self.layout = layout
        self.definitions: dict[str, Any] = {}

    def object_of(self, cls: type) -> dict[str, Any]:
        """Returns the schema of a class."""
        shape = self.layout.shape_of(cls)
        meanings = _meanings(cls)
        hints = get_type_hints(cls)
        properties, required = {}, []
        for key in shape.names():
            if isinstance(key, ShapeKey):
                name, hint, meaning, is_optional = key.name, key.hint, key.meaning, key.is_optional
            else:
                name, hint, meaning, is_optional = key, *_field(cls, key, hints, meanings), False
                if key in shape.null_if_empty | shape.null_if_negative:
                    hint |= None
            properties[name] = {**self.schema_of(hint), "description": meaning}
            if not is_optional:
                required.append(name)
        for part in MORE.get(cls.__name__, ()):
            about = _plain((inspect.getdoc(part) or "").partition("\n\n")[0])
            properties[part.key] = {**self.schema_of(part), "description": f"{about} Only with policies that have it."}
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def dict_of(self, cls: type) -> dict[str, Any]:
        """Returns the schema of a dict whose keys are declared."""
        hints, meanings = get_type_hints(cls), _meanings(cls)
        properties = {name: {**self.schema_of(hint), "description": meanings[name]} for name, hint in hints.items()}
        required = sorted(cls.__required_keys__)  # type: ignore[attr-defined]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def schema_of(self, hint: Any) -> dict[str, Any]:
        """Returns the schema of a type."""
        if hint in _SIMPLE:
            return dict(_SIMPLE[hint])
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return _any_of([self.schema_of(each) for each in arguments])
        if origin in (tuple, list) and (origin is list or arguments[-1] is ...):
            return {"type": "array", "items": self.schema_of(arguments[0])}
        if origin is tuple:
            return {"type": "array", "prefixItems": [self.schema_of(each) for each in arguments], "items": False}
        if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
            return {"type": "object", "additionalProperties": self.schema_of(arguments[1])}
        if is_typeddict(hint):
            return self.dict_of(hint)
        if is_dataclass(hint) and isinstance(hint, type):
            if hint.__name__ not in self.definitions:
                self.definitions[hint.__name__] = {}  # a class may contain itself
                about = inspect.getdoc(hint) or ""
                self.definitions[hint.__name__] = {
                    "description": _plain(about.partition("\n\n")[0]),
                    **self.object_of(hint),
                }
            return {"$ref": f"#/$defs/{hint.__name__}"}
        if isinstance(hint, type) and issubclass(hint, str):
            return {"type": "string"}
        raise TypeError(f"{self.layout.name}: no JSON Schema for {hint}")


def _any_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    if all(set(part) == {"type"} for part in parts):
        return {"type": [part["type"] for part in parts]}
    return {"anyOf": parts}


def _field(cls: type, name: str, hints: Mapping[str, Any], meanings: Mapping[str, str]) -> tuple[Any, str]:
    """Returns the type and the meaning of a field or property."""
    found = inspect.getattr_static(cls, name, None)
    if isinstance(found, property) and found.fget is not None:
        return get_type_hints(found.fget)["return"], _plain(found.__doc__ or "")
    if name not in meanings:
        raise LookupError(f"the docstring of {cls.__name__} does not explain {name}")
    return hints[name], meanings[name]


def _meanings(cls: type) -> dict[str, str]:
    """Returns the texts of the fields in the docstrings of a class and of those that it extends."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__[:-1]):
        about = inspect.cleandoc(each.__doc__ or "").partition("Attributes:\n")[2]
        for entry in _ENTRY.finditer(dedent(about)):
            for name in entry["names"].split(", "):
                found[name] = _plain(entry["text"])
    return found


def _plain(text: str) -> str:
    """Returns a text of a docstring on one line, without markup."""
    return re.sub(r"\bNone\b", "null", " ".join(text.replace("``", "`").split()))


def files() -> dict[str, str]:
    """Returns the text of each schema by the name of its file."""
    return {
        f"{layout.name}.schema.json": json.dumps(schema_of(layout), indent=1, ensure_ascii=False) + "\n"
        for layout in layouts()
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    written = files()
    for old in FOLDER.glob("*.schema.json"):
        if old.name not in written:
            old.unlink()
    for name, text in written.items():
        FOLDER.joinpath(name).write_text(text, encoding="utf-8")
