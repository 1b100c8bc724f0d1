"""Flame graphs for speedscope (https://www.speedscope.app).

They show bytes by call stack at the peak, bytes x time, and all bytes ever requested.

The file has speedscope's JSON format (``file-format-schema.json``): frames once, then "sampled" profiles, which are
lists of stacks, outermost frame first, with a weight each. Weights are whole bytes; bytes x time is in
byte-milliseconds, or byte-events if times are unknown.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.places import moment_name, when
from memdiag.errors import MemdiagError
from memdiag.exports.model import Wanted, whole_file
from memdiag.text import phrase, plain
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.stacks import Stacks
from memdiag.version import __version__
from memdiag.views.flame import by_stack

SUFFIXES = (".speedscope.json",)
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_LONGEST = 500
_US = 1000  # in a millisecond


def write(trace: Trace, path: Path, wanted: Wanted) -> list[Path]:
    """Writes the profiles; returns the file."""
    frames = _SpeedscopeFrames(trace.stacks)
    profiles = [profile for device in wanted.devices(trace) for profile in _profiles(trace, device, frames, wanted.at)]
    if not profiles:
        raise MemdiagError(phrase("errors.no-flames", path=str(trace.path)), phrase("errors.no-flames.hint"))
    content = {
        "$schema": _SCHEMA,
        "shared": {"frames": frames.shared},
        "profiles": profiles,
        "name": plain(trace.path, _LONGEST),
        "activeProfileIndex": 0,
        "exporter": f"memdiag {__version__}",
    }
    with whole_file(path) as file:
        file.write(json.dumps(content, ensure_ascii=True, separators=(",", ":")).encode())
    return [path]


class _SpeedscopeFrames:
    """Frames in speedscope's format, only used ones."""

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self._number: dict[int, int] = {}
        self.shared: list[dict[str, Any]] = []

    def of(self, stack: int) -> list[int]:
        """Returns the frames of a stack, outermost first."""
        if stack < 0:
            return [self._of(-1)]
        ids = self._stacks.frame_ids[self._stacks.offsets[stack] : self._stacks.offsets[stack + 1]].tolist()
        return [self._of(frame) for frame in reversed(ids)] or [self._of(-1)]

    def _of(self, frame: int) -> int:
        if frame not in self._number:
            self._number[frame] = len(self.shared)
            if frame < 0:
                self.shared.append({"name": "(no call stack)"})
            else:
                source_frame = self._stacks.frames[frame]
                entry: dict[str, Any] = {"name": plain(source_frame.name, _LONGEST) or "(no name)"}
                entry |= {"file": plain(source_frame.filename, _LONGEST)} if source_frame.filename else {}
                entry |= {"line": source_frame.line} if source_frame.line > 0 else {}
                self.shared.append(entry)
        return self._number[frame]


def _profiles(trace: Trace, device: DeviceTrace, frames: _SpeedscopeFrames, at: str | int) -> list[dict[str, Any]]:
    if not len(device.tensors):
        return []
    (view,) = Context(at, device=device.device).views(trace)
    rows = by_stack(device, view.at)
    known = bool((rows["byte_us"] >= 0).all())
    time = rows["byte_us"] / _US if known else rows["byte_events"]
    where = f"device {device.device}: " if len(trace.devices) > 1 else ""
    columns = (
        (
            f"{where}bytes {when(view)}" + (f", {moment_name(device, view.at)}" if view.kind != "event" else ""),
            "bytes",
            rows["bytes_at"],
        ),
        (f"{where}bytes x time (byte-{'milliseconds' if known else 'events'})", "none", time.round()),
        (f"{where}bytes requested, including freed ones", "bytes", rows["total_bytes"]),
    )
    found = []
    for name, unit, weights in columns:
        pairs = [
            (stack, int(weight))
            for stack, weight in zip(rows["stack"].tolist(), weights.tolist(), strict=True)
            if weight >= 1
        ]
        if pairs:
            found.append(
                {
                    "type": "sampled",
                    "name": name,
                    "unit": unit,
                    "startValue": 0,
                    "endValue": sum(weight for _, weight in pairs),
                    "samples": [frames.of(stack) for stack, _ in pairs],
                    "weights": [weight for _, weight in pairs],
                }
            )
    return found
