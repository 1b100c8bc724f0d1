"""Recording settings: chosen on the command line, passed to every process in one environment variable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Optional

VARIABLE = "MEMDIAG_RECORD"
FIX_VARIABLE = "MEMDIAG_FIX"  # the remedies that a run applies, see fixing
AUTOCAST_ENDED = "autocast ended"  # name of the marks at which autocast frees its copies of weights, see training
BACKENDS = ("cuda", "npu", "xpu", "mps", "accelerator", "cpu")


@dataclass(frozen=True)
class Config:
    """Settings of a recording.

    Attributes:
        folder: Folder for the files of the run.
        file: File to write instead, for a recording of one process ("" for rank<k>.pkl in the folder).
        backends: Allocators to record; empty for the accelerators that the process uses, else the CPU.
        max_events: Number of most recent entries to retain per device.
        every: Interval in steps at which a file is written; 0 for only at the end.
        first_step: First recorded step.
        last_step: End of the recorded steps (exclusive), or None for all.
        names: Whether parameters, gradients, states and activations are named.
        sample_interval: Seconds between samples of device memory; 0 for samples at marks only, None for no samples.
        holders: Whether to search for who holds the tensors that accumulate.
    """

    folder: str
    file: str = ""
    backends: tuple[str, ...] = ()
    max_events: int = 2_000_000
    every: int = 0
    first_step: int = 0
    last_step: Optional[int] = None  # noqa: UP045 - Python 3.9 runs this too
    names: bool = True
    sample_interval: Optional[float] = 1.0  # noqa: UP045
    holders: bool = False

    def as_text(self) -> str:
        """Returns the value of the environment variable."""
        # sitecustomize searches for the folder in this exact form
        return json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False)


def from_environment(environment: Mapping[str, str] = os.environ) -> Config | None:
    """Returns the recording settings of this process, or None if it is not recorded."""
    text = environment.get(VARIABLE, "")
    if not text:
        return None
    given = {name: value for name, value in json.loads(text).items() if name in Config.__dataclass_fields__}
    given["backends"] = tuple(given.get("backends", ()))
    return Config(**given)
