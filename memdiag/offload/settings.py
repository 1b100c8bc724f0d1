"""Settings of offloading, under the names and units of MindSpore's memory offload, from JSON, a file or options."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.offload.links import DISKS, LINKS, Link, disk_named, link_named
from memdiag.text import phrase
from memdiag.units import GIB, parse_bytes

PLACES = ("", "cpu", "disk")
KINDS = ("activation", "parameter", "gradient", "optimizer_state")
# MindSpore's sizes are binary: its "30GB" is 30 x 1024^3 bytes.
_MINDSPORE_SIZES = (
    "max_device_memory",
    "offload_cpu_size",
    "offload_disk_size",
    "host_mem_block_size",
    "aio_block_size",
)
_SIZES = (*_MINDSPORE_SIZES, "min_bytes")
_CALLS = ("set_context", "set_offload_context")
_RATIOS = ("hbm_ratio", "cpu_ratio")
_FLAGS = ("auto_offload", "enable_pinned_mem", "enable_aio", "allow_exposed")
_DECIMAL = re.compile(r"([kmgt])b\s*$", re.IGNORECASE)
_READ_OF_CALLS = ("offload_config", "memory_offload", "max_device_memory")  # set_context has many other settings


@dataclass(frozen=True)
class OffloadSettings:
    """The requested settings.

    Attributes:
        max_device_memory: Bytes of the device, or None for its capacity.
        offload_param: Where parameters (weights and optimizer state) start (automatic) or live (forced): "", "cpu" or
            "disk".
        offload_checkpoint: Destination of inputs of recomputed parts: "", "cpu" or "disk".
        auto_offload: Whether to search a strategy; otherwise only ``offload_param`` and ``offload_checkpoint`` are
            applied.
        offload_cpu_size, offload_disk_size: Available bytes of host memory and disk.
        offload_path: Folder on the disk; only printed.
        hbm_ratio, cpu_ratio: Usable fraction of the device's and the host's bytes.
        host_mem_block_size: Bytes by which the pinned pool grows.
        enable_pinned_mem: Whether host memory is pinned, so that copies run concurrently with the program.
        enable_aio: Whether copies to disk run concurrently with those to the host.
        aio_block_size, aio_queue_depth: Settings of those copies, or None for those of the disk's full speed.
        link, disk: Copy speeds.
        step_seconds: Length of a step, if the trace's times are not those of the device; None for the trace's times.
        allow_exposed: Whether tensors that cannot be copied in time are also moved; the step waits for them.
        offload_kinds: Kinds that the strategy may move, from ``KINDS``.
        min_bytes: The strategy does not move smaller tensors.
    """

    max_device_memory: int | None = None
    offload_param: str = ""
    offload_checkpoint: str = ""
    auto_offload: bool = True
    offload_cpu_size: int = 512 * GIB
    offload_disk_size: int = 512 * GIB
    offload_path: str = "./offload"
    hbm_ratio: float = 1.0
    cpu_ratio: float = 1.0
    host_mem_block_size: int = GIB
    enable_pinned_mem: bool = True
    enable_aio: bool = True
    aio_block_size: int | None = None
    aio_queue_depth: int | None = None
    link: Link = LINKS["pcie4x16"]
    disk: Link = DISKS["nvme-gen4"]
    step_seconds: float | None = None
    allow_exposed: bool = False
    offload_kinds: tuple[str, ...] = KINDS
    min_bytes: int = 1 << 20

    @classmethod
    def read(cls, config: str | None, options: Mapping[str, Any]) -> OffloadSettings:
        """Returns the settings of a JSON text or file, and of single options, which take precedence.

        Args:
            config: A file, or the text of a JSON object, or None. Settings may be under "offload_config", as in
                set_context.
            options: Options by name; None if not given.

        Raises:
            MemdiagError: A setting is unknown or out of range.
        """
        given: dict[str, Any] = {}
        for name, value in _read_config(config).items():
            given |= value if name == "offload_config" and isinstance(value, dict) else {name: value}
        given |= {name: value for name, value in options.items() if value is not None}
        known = {each.name for each in fields(cls)} | {"memory_offload"}
        for name in given:
            if name not in known:
                close = get_close_matches(name, known, 1)
                raise MemdiagError(
                    phrase("errors.offload-unknown", name=str(name)),
                    phrase("offload.settings.hint", meant=phrase("errors.meant", name=close[0]) if close else ""),
                )
        if str(given.pop("memory_offload", "ON")).upper() == "OFF":
            raise MemdiagError(phrase("errors.offload-off"), phrase("errors.offload-off.hint"))
        settings = replace(cls(), **{name: _value(name, value) for name, value in given.items()})
        if not settings.auto_offload and not settings.offload_param and not settings.offload_checkpoint:
            raise MemdiagError(
                phrase("errors.offload-nothing"),
                phrase("errors.offload-nothing.hint"),
            )
        return settings

    @property
    def host_bytes(self) -> int:
        """Usable bytes of the host."""
        return int(self.offload_cpu_size * self.cpu_ratio)

    def device_bytes(self, card: int | None) -> int | None:
        """Returns the usable bytes of a device with the given capacity, or None without a known limit."""
        of = card if self.max_device_memory is None else min(self.max_device_memory, card or self.max_device_memory)
        return None if of is None else int(of * self.hbm_ratio)


def _read_config(config: str | None) -> dict[str, Any]:
    if config is None:
        return {}
    text, where = config, "--offload-config"
    if not config.lstrip().startswith("{") and not any(f"{call}(" in config for call in _CALLS):
        where = config
        try:
            text = Path(config).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise MemdiagError(
                phrase("errors.unreadable", path=str(config), value=str(error)),
                phrase("errors.offload-json.hint"),
            ) from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        found = _read_python(text)
        if found is None:
            raise MemdiagError(
                phrase("errors.not-json", where=str(where), error=str(error)),
                phrase("offload.example.script", example="""'{"offload_param": "cpu", "auto_offload": false}'"""),
            ) from None
    if not isinstance(found, dict):
        raise MemdiagError(
            phrase("errors.not-json-object", where=str(where)),
            phrase("offload.example", example="""'{"offload_param": "cpu"}'"""),
        )
    return found


def _read_python(text: str) -> dict[str, Any] | None:
    """Returns the settings in MindSpore's own syntax, or None.

    That is a Python dict, or calls of set_context and set_offload_context.

    Only literals are read; nothing is executed.
    """
    try:
        tree = ast.parse(text.strip())
        first = tree.body[0] if len(tree.body) == 1 else None
        if isinstance(first, ast.Expr | ast.Assign) and isinstance(first.value, ast.Dict):
            return dict(ast.literal_eval(first.value))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) in _CALLS]
        found: dict[str, Any] = {}
        for call in calls:
            of_call: dict[str, Any] = {
                word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg in _READ_OF_CALLS
            }
            if call.args and _name(call.func) == "set_offload_context":
                of_call["offload_config"] = ast.literal_eval(call.args[0])
            found |= of_call
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return found if calls else None


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _value(name: str, value: Any) -> Any:
    """Returns a setting in its type.

    Raises:
        MemdiagError: The value does not have that type, or is out of range.
    """
    if name in _SIZES:
        return _size(name, value)
    if name in _RATIOS or name == "step_seconds":
        return _number(name, value, 1.0 if name in _RATIOS else 1e6)
    if name in _FLAGS:
        return _flag(name, value)
    return _READ.get(name, str)(value)


def _size(name: str, value: Any) -> int:
    text = _DECIMAL.sub(r"\1iB", str(value)) if name in _MINDSPORE_SIZES else str(value)
    size = value if isinstance(value, int) and not isinstance(value, bool) else parse_bytes(text)
    if not 0 < size < 1 << 60:
        raise MemdiagError(
            phrase("errors.offload-size", name=str(name), value=str(value)), phrase("errors.offload-size.hint")
        )
    return size


def _flag(name: str, value: Any) -> bool:
    if str(value).lower() not in {"true", "false", "1", "0", "on", "off"}:
        raise MemdiagError(
            phrase("errors.not-bool", name=str(name), value=str(value)), phrase("offload.settings.hint", meant="")
        )
    return str(value).lower() in {"true", "1", "on"}


def _place(value: Any) -> str:
    if value not in PLACES:
        raise MemdiagError(
            phrase("errors.offload-place", value=str(value)), phrase("errors.choose", names='"", "cpu", "disk"')
        )
    return str(value)


def _kinds(value: Any) -> tuple[str, ...]:
    kinds = tuple(str(kind).strip() for kind in (value.split(",") if isinstance(value, str) else value))
    if not kinds or not set(kinds) <= set(KINDS):
        raise MemdiagError(
            phrase("errors.offload-kinds", value=str(value)),
            phrase("errors.offload-kinds.hint", value=", ".join(KINDS)),
        )
    return kinds


def _depth(value: Any) -> int:
    if not str(value).isdigit() or int(value) < 1:
        raise MemdiagError(phrase("errors.aio", value=str(value)), phrase("errors.aio.hint"))
    return int(value)


def _number(name: str, value: Any, most: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 < number <= most:
        raise MemdiagError(
            phrase("offload.number.share" if most == 1.0 else "offload.number", name=name, value=str(value)),
            phrase("offload.settings.hint", meant=""),
        )
    return number


_READ: dict[str, Callable[[Any], Any]] = {
    "offload_param": _place,
    "offload_checkpoint": _place,
    "offload_kinds": _kinds,
    "aio_queue_depth": _depth,
    "link": lambda value: link_named(str(value)),
    "disk": lambda value: disk_named(str(value)),
}
