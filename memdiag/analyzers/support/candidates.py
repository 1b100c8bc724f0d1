"""Allocator settings that are worth a replay on any trace, whatever the findings suggest.

Settings that a possible version of the recording does not support are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.allocator.calibration.recorded_settings import possible_versions
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.diagnosis.remedies import ALLOCATOR_SETTINGS
from memdiag.results.finding import Fix
from memdiag.settings.conf import parse_conf
from memdiag.settings.model import parse_version
from memdiag.settings.tables import known, newest
from memdiag.trace.model import DeviceTrace, Trace

MANY_EVENTS = 300_000  # larger replays take a noticeable part of a second: only the most likely candidates are tried


def candidates(trace: Trace, device: DeviceTrace, settings: AllocatorSettings) -> Iterator[Fix]:
    """Yields the settings to replay on a device, the most likely to help first."""
    versions, situation = possible_versions(trace, device), settings.situation()
    for remedy in ALLOCATOR_SETTINGS.values():
        if not remedy.is_likely and device.num_events > MANY_EVENTS:
            continue
        for fix in remedy.variants(situation):
            if all(_is_known(settings, fix, version) for version in versions):
                yield fix


def _is_known(settings: AllocatorSettings, fix: Fix, version: str) -> bool:
    """Returns True if a version knows every setting that a remedy adds."""
    backend = settings.backend or "cuda"
    added = set(parse_conf(fix.change.partition("=")[2])) - set(settings.keys)
    return added <= set(known(backend, parse_version(version) or newest(backend)))
