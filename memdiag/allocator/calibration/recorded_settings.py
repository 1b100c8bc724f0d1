"""The settings of a recording: policy, settings text and version, in the form that a replay takes.

The text is rebuilt from the settings that the file reports as effective. Settings can change at run time, and only
those that affect block placement matter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memdiag.settings.conf import leading_number, parse_conf
from memdiag.settings.divisions import as_recorded
from memdiag.settings.tables import newest
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.units import MIB

DEFAULT_VERSION = "2.13"
_NPU = "npu"
_PLACING = (
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "large_segment_size_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
    "expandable_segments",
    "per_process_memory_fraction",
    "throw_on_cudamalloc_oom",
    "throw_on_npumalloc_oom",
    "base_addr_aligned_kb",
    "page_size",
    "segment_size_mb",
    "multi_stream_lazy_reclaim",
    "expandable_segments_reserve",
)
_EXCLUDED = (
    "max_split_size_mb",
    "garbage_collection_threshold",
)  # torch_npu: not with expandable segments
_OLDEST = {"cuda": (2, 0), "npu": (2, 1)}  # oldest versions that write a snapshot with a history


@dataclass(frozen=True)
class RecordedSettings:
    """The settings with which a replay reproduces the recording.

    Attributes:
        policy: Name of the policy of the backend.
        backend: "cuda" or "npu": the backend whose rules apply.
        conf: Settings in effect that affect block placement; "": all defaults.
        versions: Possible versions of torch, the most likely first.
        is_version_known: Whether the file has the version.
        is_conf_known: Whether the file has the settings.
    """

    policy: str
    backend: str
    conf: str
    versions: tuple[str, ...]
    is_version_known: bool
    is_conf_known: bool


def recorded_settings(trace: Trace, device: DeviceTrace) -> RecordedSettings:
    """Returns the settings with which ``device``'s part of ``trace`` was recorded, if the file has them."""
    backend = _NPU if trace.backend == _NPU else "cuda"
    said = trace.settings
    text = next(
        (value for key, value in said.items() if key.endswith("ALLOC_CONF") and isinstance(value, str) and value), ""
    )
    keys = {key: value for key, value in parse_conf(text).items() if key in _PLACING}
    if trace.layout.max_split is not None:
        keys["max_split_size_mb"] = str(trace.layout.max_split // MIB)
    threshold = said.get("garbage_collection_threshold")
    if isinstance(threshold, float) and 0 < threshold < 1:
        keys["garbage_collection_threshold"] = repr(threshold)
    listed = trace.layout.divisions
    if any(listed) and as_recorded(keys.get("roundup_power2_divisions", "0")) != listed:
        same = len(set(listed)) == 1
        keys["roundup_power2_divisions"] = (
            str(listed[0]) if same else f"[{','.join(f'{1 << k}:{d}' for k, d in enumerate(listed))}]"
        )
    is_expandable = _is_expandable(device)
    if said.get("expandable_segments") is True and not is_expandable:
        # a file that was merged from several processes has the settings of one of them
        is_expandable = not len(device.regions) or not any(map(_is_expandable, trace.devices))
    if is_expandable:
        keys["expandable_segments"] = "True"
        if backend == _NPU:
            keys = {key: value for key, value in keys.items() if key not in _EXCLUDED}
    else:
        keys.pop("expandable_segments", None)
    versions, known = _versions(trace.torch_version, backend)
    policy = _NPU if backend == _NPU else "caching"
    conf = ",".join(f"{key}:{value}" for key, value in keys.items())
    return RecordedSettings(policy, backend, conf, versions, known, bool(text) or bool(said))


def _is_expandable(device: DeviceTrace) -> bool:
    return bool(device.regions.expandable.any() or device.segments.expandable.any())


def possible_versions(trace: Trace, device: DeviceTrace) -> tuple[str, ...]:
    """Returns every version that may have written the file; all with snapshots if the file does not name one."""
    settings = recorded_settings(trace, device)
    if settings.is_version_known or trace.torch_version:
        return settings.versions
    oldest, last = _OLDEST[settings.backend], newest(settings.backend)
    return tuple(f"{oldest[0]}.{minor}" for minor in range(last[1], oldest[1] - 1, -1))


@dataclass(frozen=True)
class Shares:
    """Settings that are fractions of the device memory.

    Attributes:
        threshold: garbage_collection_threshold; 0: off, or without effect because segments are expandable.
        fraction: per_process_memory_fraction; None: not set.
    """

    threshold: float
    fraction: float | None

    @classmethod
    def of(cls, trace: Trace, device: DeviceTrace) -> Shares:
        """Returns these settings of a recording."""
        keys = parse_conf(recorded_settings(trace, device).conf)
        threshold = leading_number(keys.get("garbage_collection_threshold", "")) or 0.0
        fraction = leading_number(keys.get("per_process_memory_fraction", ""))
        is_expandable = keys.get("expandable_segments") == "True"
        return cls(0.0 if is_expandable else threshold, fraction if fraction is not None and fraction < 1 else None)


def _versions(said: str | None, backend: str) -> tuple[tuple[str, ...], bool]:
    """Returns the versions that a file's text ("2.13.0+cu130", "2.5 to 2.9?", "2.10 or later?") may mean."""
    found = [(int(a), int(b)) for a, b in re.findall(r"(\d+)\.(\d+)", said or "")]
    if not found:
        return (DEFAULT_VERSION,), False
    if not (said or "").endswith("?"):
        return (f"{found[0][0]}.{found[0][1]}",), True
    last = max(newest(backend), found[0]) if "later" in (said or "") else found[-1]
    first = max(found[0], _OLDEST["cuda"])
    if first[0] != last[0]:
        return (f"{first[0]}.{first[1]}",), False
    # the newest, because most people use the last of several versions that write the same file
    return tuple(f"{first[0]}.{minor}" for minor in range(last[1], first[1] - 1, -1)), False
