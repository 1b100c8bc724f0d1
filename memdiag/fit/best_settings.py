"""Finds allocator settings for a configuration that runs out of memory or has little headroom.

``memdiag tune`` searches on the recording with the least headroom. Its best settings are then replayed for all recorded
processes of the configuration: the answer is the setting that leaves most memory on the device in all of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from memdiag.allocator.subject import Subject
from memdiag.errors import MemdiagError
from memdiag.fit.measure import Need, subjects_of
from memdiag.output_file import write_whole
from memdiag.results.fit import FitDevice
from memdiag.runs.listener import Listener
from memdiag.runs.outlook import is_failing
from memdiag.runs.scenarios import SimulationRequest
from memdiag.runs.tuning import tune

_EXPANDABLE = {"cuda": "expandable", "npu": "npu-expandable"}
_NUM_CHECKED = 4  # of the settings that the search found, with the lowest peaks first
_MOST_TRIED = 120  # settings for one configuration
_LEAST_GAIN = 0.01  # of the reserved peak: less is not worth a setting


@dataclass(frozen=True)
class BestSetting:
    """Allocator settings with which all recorded processes fit.

    Attributes:
        conf: The settings; "" if none helps.
        headroom_bytes: Usable memory minus the reserved peak, with them.
    """

    conf: str = ""
    headroom_bytes: int = 0


def best_setting(needs: Sequence[Need], at: int, device: FitDevice, listener: Listener, seconds: float) -> BestSetting:
    """Returns the settings that leave most memory on a device. They are kept next to the runs, and found once.

    Args:
        needs: The recorded processes of a configuration.
        at: Index of the device among those of the needs.
        device: The device.
        listener: Receives progress of reading traces.
        seconds: Time limit for the search.
    """
    heaviest = min(needs, key=lambda need: need.on[at].headroom_bytes)
    paths = sorted({need.trace for need in needs})
    key = json.dumps([device.name, device.total_bytes, device.usable_bytes, [str(path) for path in paths]])
    file = heaviest.trace.parent.parent / f"settings-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"
    if (kept := _kept(file)) is not None:
        return kept
    subjects = {path: list(subjects_of(path, device, listener)) for path in paths}
    every = [subject for path in paths for subject in subjects[path]]
    worst = max(subjects[heaviest.trace], key=lambda subject: subject.device.most_held_bytes)
    rooms = [(conf, _headroom(every, conf, device)) for conf in dict.fromkeys(_candidates(worst, device, seconds))]
    found = [BestSetting(conf, room) for conf, room in rooms if room is not None]
    best = max(found, key=lambda setting: setting.headroom_bytes, default=BestSetting())
    before = heaviest.on[at]
    if before.fits and best.headroom_bytes - before.headroom_bytes < _LEAST_GAIN * before.peak_reserved_bytes:
        best = BestSetting()
    write_whole(file, json.dumps(asdict(best)))
    return best


def _kept(file: Path) -> BestSetting | None:
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        return BestSetting(str(stored["conf"]), int(stored["headroom_bytes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _candidates(subject: Subject, device: FitDevice, seconds: float) -> Iterator[str]:
    """Yields settings to check: expandable segments, then the best of a search."""
    try:
        if policy := _EXPANDABLE.get(subject.trace.backend or ""):
            request = SimulationRequest((policy,), None, None, device.total_bytes, None)
            yield request.scenarios(subject)[0].conf
        report = tune([subject], capacity=device.total_bytes, seconds=seconds, most=_MOST_TRIED)
    except MemdiagError:
        return
    fitting = [tried for tried in report.front if not tried.score.num_failing and tried.conf]
    yield from (tried.conf for tried in sorted(fitting, key=lambda tried: tried.score.peak)[:_NUM_CHECKED])


def _headroom(subjects: Sequence[Subject], conf: str, device: FitDevice) -> int | None:
    """Returns the least memory that settings leave in all processes; None: a process fails with them."""
    least = device.usable_bytes
    for subject in subjects:
        try:
            replayed = subject.replay(replace(subject.on_card(device.total_bytes), conf=conf), log=False)
        except MemdiagError:
            return None
        if is_failing(replayed):
            return None
        room = device.total_bytes - subject.most_outside
        least = min(least, room - int(replayed.reserved.max(initial=0)))
    return least
