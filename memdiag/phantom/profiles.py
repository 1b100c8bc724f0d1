"""The known devices, from ``profiles.toml``, and their selection: ``cuda:h100-80g,capacity=60GiB``.

A figure that is not published is marked as an estimate, with the reason; ``assumptions`` lists those that affect a
trace.
"""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from memdiag.errors import MemdiagError
from memdiag.registry import Registry
from memdiag.text import phrase
from memdiag.units import format_bytes, parse_bytes

BACKENDS = {"cuda": "CUDA", "npu": "Ascend NPU"}

_TABLE = Path(__file__).with_name("profiles.toml")
_BYTES = ("total", "context", "context_error", "shared_memory_optin")
_VERSION = re.compile(r"[0-9]+(\.[0-9A-Za-z]+)*")
_COMMON = {
    "room": "memory for PyTorch's allocator, for example 60GiB",
    "capacity": "the same as room",
    "total": "memory of the device",
    "context": "memory that the runtime takes before PyTorch",
    "devices": "how many devices a process sees",
}
_OPTIONS: dict[str, dict[str, str]] = {
    "cuda": {**_COMMON, "sms": "multiprocessors", "capability": "compute capability, for example 9.0"},
    "npu": {
        **_COMMON,
        "soc": "name of the chip, for example Ascend910B3",
        "cann": "version of CANN",
        "driver": "version of the driver",
    },
}


@dataclass(frozen=True)
class Profile:
    """One device.

    Attributes:
        backend: "cuda" or "npu".
        name: Short name: "h100-80g".
        product: Product name of the manufacturer.
        total_bytes: Memory that the driver reports.
        context_bytes: Memory that the runtime takes before PyTorch allocates anything.
        context_error_bytes: By how much published figures differ from it; 0: unknown.
        figures: Other properties that change traces: compute capability and multiprocessors (CUDA), chip and versions
            (Ascend).
        sources: URL of the publication of a figure, by its name.
        estimates: Why a figure is an estimate, by its name.
        num_devices: How many a process sees; None: as many as the launcher starts processes for (LOCAL_WORLD_SIZE),
            else one.
        changed: What was given beside the name.
    """

    backend: str
    name: str
    product: str
    total_bytes: int
    context_bytes: int
    figures: Mapping[str, int | str]
    sources: Mapping[str, str] = field(default_factory=dict)
    estimates: Mapping[str, str] = field(default_factory=dict)
    num_devices: int | None = None
    changed: tuple[str, ...] = ()
    context_error_bytes: int = 0

    @property
    def full_name(self) -> str:
        """The name with the backend, as ``--phantom`` takes it."""
        return f"{self.backend}:{self.name}"

    @property
    def capacity_bytes(self) -> int:
        """Memory that PyTorch's allocator can reserve."""
        return self.total_bytes - self.context_bytes

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Returns sentences about the assumptions of a trace from this device."""
        said = [
            (
                f"{self.product}: {format_bytes(self.total_bytes)}, of which {format_bytes(self.context_bytes)} is "
                "taken by the runtime"
            )
        ]
        said += [f"{option} was given on the command line" for option in self.changed]
        given = {option.partition("=")[0] for option in self.changed}
        if self.context_error_bytes and "context" not in given:
            said.append(f"the part of the runtime is known to within {format_bytes(self.context_error_bytes)}")
        said += [f"{name} is an estimate: {why}" for name, why in self.estimates.items() if name not in given]
        return tuple(said)


class Device(Protocol):
    """A device of another package: a row of ``profiles.toml`` plus ``backend``, the table that it would be in."""

    def items(self) -> Iterable[tuple[str, Any]]:
        """Returns keys and values."""


DEVICES: Registry[Device] = Registry("device", Device, {}, "memdiag.devices")


def profiles() -> tuple[Profile, ...]:
    """Returns all devices, in the order of the table, then those of plug-ins."""
    added = (DEVICES.attempt(name, functools.partial(_of_plug_in, name)) for name in DEVICES)
    return *_own_profiles(), *(profile for profile in added if profile is not None)


def _of_plug_in(name: str, device: Device) -> Profile:
    row = dict(device.items())
    backend = row.pop("backend")
    if backend not in BACKENDS:
        raise MemdiagError(
            phrase("phantom.backend", backend=repr(backend), backends=", ".join(BACKENDS)),
            phrase("phantom.backend.hint"),
        )
    return _profile(backend, name, row, {})


@functools.cache
def _own_profiles() -> tuple[Profile, ...]:
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return tuple(
        _profile(backend, name, entry, table[backend]) for backend in table for name, entry in _devices(table[backend])
    )


def _devices(backend: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, entry) for name, entry in backend.items() if isinstance(entry, dict)]


def _profile(backend: str, name: str, entry: Mapping[str, Any], shared: Mapping[str, Any]) -> Profile:
    own = dict(entry)
    sources = dict(own.pop("source", {}))
    estimates = dict(own.pop("estimate", {}))
    for key, text in shared.items():
        if isinstance(text, str):
            what, _, kind = key.rpartition("_")
            if what not in sources and what not in estimates:  # the row itself knows better
                (estimates if kind == "estimate" else sources)[what] = text
    values: dict[str, Any] = {key: _bytes(value) if key in _BYTES else value for key, value in own.items()}
    return Profile(
        backend=backend,
        name=name,
        product=values.pop("product"),
        total_bytes=values.pop("total"),
        context_bytes=values.pop("context"),
        context_error_bytes=values.pop("context_error", 0),
        figures=values,
        sources=sources,
        estimates=estimates,
    )


def _bytes(value: int | str) -> int:
    return value if isinstance(value, int) else parse_bytes(value)


def choose(text: str) -> Profile:
    """Returns the device for ``text``: ``backend:name``, with changes after commas: ``capacity=60GiB``.

    Raises:
        MemdiagError: The device does not exist, or a value is invalid.
    """
    name, *options = [part.strip() for part in text.split(",")]
    profile = _named(name)
    for option in options:
        if option:
            profile = _changed(profile, option)
    if profile.capacity_bytes <= 0:
        raise MemdiagError(
            phrase("errors.phantom-empty", text=str(text)),
            phrase("errors.phantom-empty.hint"),
        )
    return profile


def _named(name: str) -> Profile:
    wanted = name.lower()
    found = [profile for profile in _own_profiles() if wanted in {profile.full_name, profile.name}]
    found = found or [profile for profile in profiles() if wanted in {profile.full_name, profile.name}]
    if len(found) == 1:
        return found[0]
    known = [profile.full_name for profile in profiles()]
    near = difflib.get_close_matches(wanted, known + [profile.name for profile in profiles()], n=1, cutoff=0.5)
    inside = [full for full in known if wanted and wanted.rpartition(":")[2] and wanted.rpartition(":")[2] in full]
    meant = inside[0] if len(inside) == 1 else near[0] if near else ""
    hint = phrase("errors.meant", name=meant) if meant else ""
    raise MemdiagError(
        phrase("errors.phantom", value=str(name or "(nothing)")), phrase("errors.phantom.hint", hint=hint)
    )


def _changed(profile: Profile, option: str) -> Profile:
    key, is_given, value = option.partition("=")
    key, value = key.strip().lower(), value.strip()
    options = _OPTIONS[profile.backend]
    if not is_given or key not in options or not value:
        near = difflib.get_close_matches(key, options, n=1)
        hint = f"did you mean {near[0]}=…? " if near else ""
        raise MemdiagError(
            phrase("errors.phantom-option", option=str(option)),
            hint + "; ".join(f"{name}= {meaning}" for name, meaning in options.items()),
        )
    changed = replace(profile, changed=(*profile.changed, f"{key}={value}"))
    if key in {"room", "capacity"}:
        return replace(changed, total_bytes=parse_bytes(value) + profile.context_bytes)
    if key == "total":
        return replace(changed, total_bytes=parse_bytes(value))
    if key == "context":
        return replace(changed, context_bytes=parse_bytes(value))
    if key == "devices":
        return replace(changed, num_devices=_count(option, value, 64))
    if key == "sms":
        return replace(changed, figures={**profile.figures, key: _count(option, value, 1024)})
    if key in {"capability", "cann", "driver"} and not _VERSION.fullmatch(value):
        raise MemdiagError(phrase("errors.phantom-version", option=str(option)), f"{key}= {options[key]}")
    return replace(changed, figures={**profile.figures, key: value})


def _count(option: str, value: str, most: int) -> int:
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= most:
        raise MemdiagError(
            phrase("errors.phantom-number", option=str(option), most=str(most)), phrase("errors.phantom-number.hint")
        )
    return int(value)
