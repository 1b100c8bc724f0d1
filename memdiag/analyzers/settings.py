"""Allocator settings: unknown and conflicting ones, and those without an effect on this trace.

memdiag looks for the effect in the trace: an expandable segment, a block too large to be split, a request rounded to a
power of two. It reports "no effect" only if the trace would show one. The texts are in ``messages/settings.json``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

import numpy as np

from memdiag.analyzers.churn import find_bursts
from memdiag.analyzers.support.allocator_settings import NPU_EXCLUDED, VARIABLES, AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.settings.npu_keys import NEEDS_EXPANDABLE
from memdiag.settings.tables import every
from memdiag.text import Phrase, joined, phrase
from memdiag.trace import schema
from memdiag.trace.layout import Layout
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array
from memdiag.units import GIB, format_bytes

CODES: dict[str, str] = {
    "MD601": "an allocator setting had no effect",
    "MD602": "the allocator of this backend does not read a setting",
    "MD603": "allocator settings conflict with each other",
    "MD604": "cudaMallocAsync was used instead of PyTorch's own allocator",
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
        phrase("settings.async.title"),
        "info",
        None,
        (Evidence(phrase("settings.setting"), settings.text, "", settings.variable),),
        (Fix(phrase("settings.async.fix"), "record", settings.line({"backend": None})),),
    )


def _unknown(trace: Trace, settings: AllocatorSettings) -> Iterator[Finding]:
    """Yields MD602."""
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
        hint = (
            phrase("settings.unknown.elsewhere")
            if of_other
            else phrase("settings.unknown.close", key=close[0])
            if close
            else phrase("settings.unknown.key")
        )
        evidence.append(Evidence(hint, f"{key}:{value}", "", settings.variable))
        del good[key]
        if close and not of_other:
            good.setdefault(close[0], value)
    changes: dict[str, str | None] = {**dict.fromkeys(settings.keys), **good}
    fixes = [Fix(phrase("settings.unknown.fix"), "env", settings.line(changes))] if evidence else []
    evidence += [
        Evidence(phrase("settings.unknown.variable"), str(trace.settings[name]), "", name)
        for name in _FOREIGN_VARIABLES.get(settings.backend or "", ())
        if trace.settings.get(name)
    ]
    if evidence:
        title = phrase("settings.unknown.title.several", backend=settings.backend)
        if len(evidence) == 1:
            title = phrase("settings.unknown.title", setting=evidence[0].value, backend=settings.backend)
        yield Finding("MD602", title, "warning", None, tuple(evidence), tuple(fixes))


def _conflicts(settings: AllocatorSettings) -> Iterator[Finding]:
    """Yields MD603."""
    if settings.keys.get("expandable_segments") != "True":
        return
    excluded = [
        key for key in (NPU_EXCLUDED if settings.backend == "npu" else ("max_split_size_mb",)) if key in settings.keys
    ]
    if not excluded:
        return
    title = phrase("settings.conflict.cuda.title")
    if settings.backend == "npu":
        title = phrase("settings.conflict.npu.title", keys=joined(excluded, phrase("remedies.and")))
    without: dict[str, str | None] = dict.fromkeys(excluded)
    yield Finding(
        "MD603",
        title,
        "warning" if settings.backend == "npu" else "info",
        None,
        (Evidence(phrase("settings.setting"), settings.text, "", settings.variable),),
        (Fix(phrase("settings.conflict.fix"), "env", settings.line(without)),),
    )


def _without_effect(settings: AllocatorSettings, views: list[DeviceView]) -> Iterator[Finding]:
    """Yields MD601."""
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
        phrase("settings.unused.title") if is_expandable else phrase("settings.none.title", setting=evidence[0].value),
        "warning" if is_expandable else "info",
        None,
        evidence,
        (
            Fix(
                phrase("settings.unused.fix"),
                "env",
                settings.line({}),
                "",
                phrase("settings.unused.fix.caveat"),
            )
            if is_expandable
            else Fix(phrase("settings.none.fix"), "env", _line_without(settings, evidence)),
        ),
    )


def _line_without(settings: AllocatorSettings, evidence: tuple[Evidence, ...]) -> str:
    return settings.line(dict.fromkeys(str(item.value).split(":", 1)[0] for item in evidence))


def _setting(settings: AllocatorSettings, key: str, what: Phrase) -> Evidence:
    return Evidence(what, f"{key}:{settings.keys[key]}" if key in settings.keys else key, "", settings.variable)


def _segment_sizes(device: DeviceTrace, chosen: Array) -> Array:
    """Returns the bytes of each segment among the chosen regions (a mask); every expandable region counts by itself."""
    regions = device.regions
    alone = chosen & (regions.segment < 0)
    part = np.flatnonzero(chosen & (regions.segment >= 0))
    sizes = np.zeros(int(regions.segment.max(initial=-1)) + 1, np.int64)
    np.add.at(sizes, regions.segment[part], regions.size[part])
    return np.concatenate((sizes[sizes > 0], regions.size[alone]))


def _is_default(device: DeviceTrace) -> Array:
    """Returns a mask of the regions in the default pool.

    A MemPool may use another allocator, without expandable segments.
    """
    groups, group = device.groups, device.regions.group
    if not len(groups):
        return np.ones(len(group), bool)
    default: Array = (group < 0) | ((groups.pool_major == 0) & (groups.pool_minor == 0))[np.maximum(group, 0)]
    return default


def _expandable(settings: AllocatorSettings, devices: list[DeviceTrace]) -> Evidence | None:
    if not settings.expandable_recorded or settings.expandable_seen:
        return None
    count = sum(len(_segment_sizes(device, _is_default(device))) for device in devices)
    return _setting(settings, "expandable_segments", phrase("settings.why.expandable", count=count)) if count else None


def _max_split(settings: AllocatorSettings, devices: list[DeviceTrace]) -> Evidence | None:
    limit = settings.layout.max_split
    if limit is None or settings.expandable:
        return None
    everything = [_segment_sizes(device, np.ones(len(device.regions), bool)) for device in devices]
    largest = max((int(sizes.max(initial=0)) for sizes in everything), default=0)
    if not largest or largest >= limit:
        return None
    return _setting(settings, "max_split_size_mb", phrase("settings.why.split", bytes=format_bytes(largest)))


def _divisions(settings: AllocatorSettings, devices: list[DeviceTrace]) -> Evidence | None:
    if not any(number > 1 for number in settings.layout.divisions):
        return None
    asked = [device.events.size[device.events.action == schema.ALLOC] for device in devices]
    sizes = np.unique(np.concatenate([np.unique(sizes) for sizes in asked]))
    divided, plain = Layout(divisions=settings.layout.divisions).round_size(sizes), Layout().round_size(sizes)
    if not len(sizes) or (divided != plain).any():
        return None
    return _setting(settings, "roundup_power2_divisions", phrase("settings.why.divisions", count=len(sizes)))


def _collection(settings: AllocatorSettings, views: list[DeviceView]) -> Evidence | None:
    """Returns the evidence that garbage collection has no effect, or None.

    It has none without a limit, and if the trace has no such release within a request.
    """
    key = "garbage_collection_threshold"
    if key not in settings.keys or any((~find_bursts(view).is_call).any() for view in views if view.device.num_events):
        return None
    return _setting(settings, key, phrase("settings.why.collection"))


def _page_size(settings: AllocatorSettings, devices: list[DeviceTrace]) -> Evidence | None:
    if settings.keys.get("page_size", "").lower() != "1g":
        return None
    large = [
        _segment_sizes(device, ~device.groups.small[device.regions.group]) for device in devices if len(device.groups)
    ]
    sizes = np.concatenate(large) if large else np.empty(0, np.int64)
    if not len(sizes) or (sizes % GIB == 0).any():
        return None
    return _setting(settings, "page_size", phrase("settings.why.pages"))


def _only_expandable(settings: AllocatorSettings, key: str) -> Evidence | None:
    if key not in settings.keys or settings.expandable:
        return None
    return _setting(settings, key, phrase("settings.why.expandable_only"))


def settings_in_effect(trace: Trace) -> dict[str, object]:
    """Returns the settings of the file and those that the trace shows.

    Returns:
        The settings of the file (empty: it has none) and ``"seen"``: ``{"expandable_segments": True}`` or False; None
        if the trace has no addresses.
    """
    settings = AllocatorSettings.of(trace)
    seen = (
        settings.expandable_seen
        if any(device.has_addresses and len(device.regions) for device in trace.devices)
        else None
    )
    return {**trace.settings, "seen": {"expandable_segments": seen}}


__all__ = ["CODES", "KEYS", "VARIABLES", "analyze", "settings_in_effect"]
