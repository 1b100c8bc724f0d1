"""What is to be recorded: chosen on the command line, handed to every process in one environment variable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Optional

VARIABLE = "MEMDIAG_RECORD"
BACKENDS = ("cuda", "npu", "cpu")


@dataclass(frozen=True)
class Config:
    """Settings of a recording.

    Attributes:
        folder: Where the files of the run go.
        file: Where to write instead, for a recording of one process ("" for rank<k>.pkl in the folder).
        backends: Which allocators to record; empty: accelerators that the process uses, else the CPU.
        max_events: Entries kept per device: the last ones.
        every: Write a file every so many steps; 0: only at the end.
        first_step: Record from this step on.
        last_step: Record up to this step, not included; None: to the end.
        names: Whether parameters, gradients, states and activations are named.
    """

    folder: str
    file: str = ""
    backends: tuple[str, ...] = ()
    max_events: int = 2_000_000
    every: int = 0
    first_step: int = 0
    last_step: Optional[int] = None  # noqa: UP045 - Python 3.9 runs this too
    names: bool = True

    def as_text(self) -> str:
        """Returns the value of the environment variable."""
        return json.dumps(
            asdict(self), separators=(",", ":"), ensure_ascii=False
        )  # sitecustomize looks for the folder as it is


def from_environment(environment: Mapping[str, str] = os.environ) -> Config | None:
    """Returns what this process is to record; None: nothing."""
    text = environment.get(VARIABLE, "")
    if not text:
        return None
    given = {name: value for name, value in json.loads(text).items() if name in Config.__dataclass_fields__}
    given["backends"] = tuple(given.get("backends", ()))
    return Config(**given)
