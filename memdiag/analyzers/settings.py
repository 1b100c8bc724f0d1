"""Allocator settings: what is set, whether it is understood, and whether it had any effect on this trace.

An effect is looked for in the trace: an expandable segment, a block too large to be cut, a request rounded to a power of two.
"No effect" is said only where the trace would show one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

import numpy as np

from memdiag.analyzers.allocator_settings import NPU_EXCLUDED, VARIABLES, AllocatorSettings
from memdiag.analyzers.churn import find_bursts
from memdiag.analyzers.context import Context, DeviceView
from memdiag.findings import Evidence, Finding, Fix
from memdiag.settings.npu_keys import NEEDS_EXPANDABLE
from memdiag.settings.tables import every
from memdiag.trace import schema
from memdiag.trace.layout import Layout
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array
from memdiag.units import GIB, format_bytes

CODES: dict[str, str] = {
    "MD601": "an allocator setting had no effect",
    "MD602": "an allocator setting is not one that this backend knows",
    "MD603": "allocator settings exclude each other",
    "MD604": "another allocator was in use: cudaMallocAsync",
}

# Every key that any version reads.
KEYS: dict[str, tuple[str, ...]] = {backend: tuple(every(backend)) for backend in ("cuda", "npu")}
_FOREIGN_VARIABLES = {"cuda": ("PYTORCH_NPU_ALLOC_CONF",), "npu": ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")}


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields findings MD601 to MD604 of the whole trace."""
    settings = AllocatorSettings.of(trace)
    views = [view for view in context.views(trace) if view.device.has_addresses]
    if settings.keys.get("backend", "").lower() == "cudamallocasync":
        yield _async(settings)
        return
    yield from _unknown(trace, settings)
    yield from _conflicts(settings)
    yield from _without_effect(settings, views)


def _async(settings: AllocatorSettings) -> Finding:
    return Finding(
        "MD604",
        "CUDA's own pool allocator (cudaMallocAsync) was in use: what is said of segments and fragmentation does not apply",
        "info",
        None,
        (Evidence("setting", settings.text, "", settings.variable),),
        (Fix("To find out about fragmentation, record once with the native allocator", "record", settings.line({"backend": None})),),
    )


def _unknown(trace: Trace, settings: AllocatorSettings) -> Iterator[Finding]:
    """MD602."""
    known = KEYS.get(settings.backend or "")
    if known is None:
        return
    elsewhere = {key for keys in KEYS.values() for key in keys}
    evidence, good = [], dict(settings.keys)
    for key, value in settings.keys.items():
        if key in known:
            continue
        close = get_close_matches(key, known, 1, 0.8)
        of_other = key in elsewhere
        hint = "a key of another backend" if of_other else f"probably {close[0]}" if close else "no key of any version known here"
        evidence.append(Evidence(hint, f"{key}:{value}", "", settings.variable))
        del good[key]
        if close and not of_other:
            good.setdefault(close[0], value)
    changes: dict[str, str | None] = {**dict.fromkeys(settings.keys), **good}
    fixes = [Fix("Correct the line", "env", settings.line(changes))] if evidence else []
    evidence += [
        Evidence("a variable that this backend does not read", str(trace.settings[name]), "", name)
        for name in _FOREIGN_VARIABLES.get(settings.backend or "", ())
        if trace.settings.get(name)
    ]
    if evidence:
        title = f"{evidence[0].value if len(evidence) == 1 else 'Several settings'}: not read by the {settings.backend} allocator"
        yield Finding("MD602", title, "warning", None, tuple(evidence), tuple(fixes))


def _conflicts(settings: AllocatorSettings) -> Iterator[Finding]:
    """MD603."""
    if settings.keys.get("expandable_segments") != "True":
        return
    excluded = [key for key in (NPU_EXCLUDED if settings.backend == "npu" else ("max_split_size_mb",)) if key in settings.keys]
    if not excluded:
        return
    title = f"expandable_segments and {' and '.join(excluded)} exclude each other"
    if settings.backend != "npu":
        title = "max_split_size_mb does next to nothing beside expandable_segments"
    without: dict[str, str | None] = dict.fromkeys(excluded)
    yield Finding(
        "MD603",
        title,
        "warning" if settings.backend == "npu" else "info",
        None,
        (Evidence("setting", settings.text, "", settings.variable),),
        (Fix("Keep expandable_segments only", "env", settings.line(without)),),
    )


def _without_effect(settings: AllocatorSettings, views: list[DeviceView]) -> Iterator[Finding]:
    """MD601."""
    if not views:
        return
    devices = [view.device for view in views]
    checks = (
        _expandable(settings, devices),
        _max_split(settings, devices),
        _divisions(settings, devices),
        _collection(settings, views),
        _page_size(settings, devices),
        *(_only_expandable(settings, key) for key in NEEDS_EXPANDABLE),
    )
    evidence = tuple(check for check in checks if check is not None)
    if not evidence:
        return
    is_expandable = evidence[0] is checks[0]
    yield Finding(
        "MD601",
        "expandable_segments was set but never used" if is_expandable else f"{evidence[0].value} had no effect on this run",
        "warning" if is_expandable else "info",
        None,
        evidence,
        (
            Fix(
                "Set it before the first allocation, in the environment of the process itself",
                "env",
                settings.line({}),
                "",
                "some builds, platforms and drivers do not support it and say so once in the log",
            )
            if is_expandable
            else Fix("Leave it out: settings without effect hide those that have one", "env", _line_without(settings, evidence)),
        ),
    )


def _line_without(settings: AllocatorSettings, evidence: tuple[Evidence, ...]) -> str:
    return settings.line(dict.fromkeys(str(item.value).split(":", 1)[0] for item in evidence))


def _setting(settings: AllocatorSettings, key: str, what: str) -> Evidence:
    return Evidence(what, f"{key}:{settings.keys[key]}" if key in settings.keys else key, "", settings.variable)


def _segment_sizes(device: DeviceTrace, chosen: Array) -> Array:
    """Returns the bytes of each segment among the chosen pieces (a mask of Regions); every expandable piece counts by itself."""
    regions = device.regions
    alone = chosen & (regions.segment < 0)
    joined = np.flatnonzero(chosen & (regions.segment >= 0))
    sizes = np.zeros(int(regions.segment.max(initial=-1)) + 1, np.int64)
    np.add.at(sizes, regions.segment[joined], regions.size[joined])
    return np.concatenate((sizes[sizes > 0], regions.size[alone]))


def _is_default(device: DeviceTrace) -> Array:
    """Whether each piece is of the default pool: a MemPool may have an allocator of its own, which has no expandable segments."""
    groups, group = device.groups, device.regions.group
    if not len(groups):
        return np.ones(len(group), bool)
    default: Array = (group < 0) | ((groups.pool_major == 0) & (groups.pool_minor == 0))[np.maximum(group, 0)]
    return default


def _expandable(settings: AllocatorSettings, devices: list[DeviceTrace]) -> Evidence | None:
    if not settings.expandable_recorded or settings.expandable_seen:
        return None
    count = sum(len(_segment_sizes(device, _is_default(device))) for device in devices)
    return _setting(settings, "expandable_segments", f"none of {count:,} segments is expandable") if count else None


def _max_split(settings: AllocatorSettings, devices: list[DeviceTrace]) -> Evidence | None:
    limit = settings.layout.max_split
    if limit is None or settings.expandable:
        return None
    everything = [_segment_sizes(device, np.ones(len(device.regions), bool)) for device in devices]
    largest = max((int(sizes.max(initial=0)) for sizes in everything), default=0)
    if not largest or largest >= limit:
        return None
    return _setting(settings, "max_split_size_mb", f"no segment is as large as that: the largest has {format_bytes(largest)}")


def _divisions(settings: AllocatorSettings, devices: list[DeviceTrace]) -> Evidence | None:
    if not any(number > 1 for number in settings.layout.divisions):
        return None
    asked = [device.events.size[device.events.action == schema.ALLOC] for device in devices]
    sizes = np.unique(np.concatenate([np.unique(sizes) for sizes in asked]))
    divided, plain = Layout(divisions=settings.layout.divisions).round(sizes), Layout().round(sizes)
    if not len(sizes) or (divided != plain).any():
        return None
    return _setting(settings, "roundup_power2_divisions", f"it changes the size of none of {len(sizes):,} distinct requests")


def _collection(settings: AllocatorSettings, views: list[DeviceView]) -> Evidence | None:
    """Collection needs a limit; without a release inside any request there was none, or memory never came near it."""
    key = "garbage_collection_threshold"
    if key not in settings.keys or any((~find_bursts(view).is_call).any() for view in views if view.device.num_events):
        return None
    return _setting(settings, key, "no request released cached memory; it needs a memory limit (set_per_process_memory_fraction)")


def _page_size(settings: AllocatorSettings, devices: list[DeviceTrace]) -> Evidence | None:
    if settings.keys.get("page_size", "").lower() != "1g":
        return None
    large = [_segment_sizes(device, ~device.groups.small[device.regions.group]) for device in devices if len(device.groups)]
    sizes = np.concatenate(large) if large else np.empty(0, np.int64)
    if not len(sizes) or (sizes % GIB == 0).any():
        return None
    return _setting(settings, "page_size", "no segment is a multiple of 1 GiB: CANN or driver are too old, or the pages were refused")


def _only_expandable(settings: AllocatorSettings, key: str) -> Evidence | None:
    if key not in settings.keys or settings.expandable:
        return None
    return _setting(settings, key, "it is read only with expandable_segments:True")


def settings_in_effect(trace: Trace) -> dict[str, object]:
    """Returns what the report says of settings: those of the file, and beside them what the trace shows.

    Returns:
        The file's own settings (empty: it has none) and ``"seen"``: ``{"expandable_segments": True}`` or False; None where the
        trace has no addresses.
    """
    settings = AllocatorSettings.of(trace)
    seen = settings.expandable_seen if any(device.has_addresses and len(device.regions) for device in trace.devices) else None
    return {**trace.settings, "seen": {"expandable_segments": seen}}


__all__ = ["CODES", "KEYS", "VARIABLES", "analyze", "settings_in_effect"]
