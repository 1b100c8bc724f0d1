"""The environment in which a command runs on a device that is not there; only what it starts sees it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence

from memdiag.errors import MemdiagError

from . import ascend
from .installed import installed_for
from .profiles import BACKENDS, Profile

VARIABLE = "MEMDIAG_PHANTOM"  # what the device is, for the recorder to write into traces


def environment_for(profile: Profile, command: Sequence[str], base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment for ``command``; compiles the stand-in if need be.

    Raises:
        MemdiagError: It cannot be done: no such torch, no compiler, no stand-in for this system.
    """
    if not sys.platform.startswith("linux"):
        raise MemdiagError("phantom devices are for Linux", "use a container or a virtual machine")
    if base.get(VARIABLE):
        raise MemdiagError("this command runs on a phantom device already", "use --phantom once, in the outer memdiag record")
    if profile.backend != "npu":
        raise MemdiagError(f"phantom devices for {BACKENDS[profile.backend]} are not ready", "memdiag devices lists those for npu")
    folder = ascend.stand_in(installed_for(command, base))
    described = {"device": profile.full_name, "product": profile.product, "assumptions": assumptions(profile)}
    return {
        **ascend.environment(profile, folder, base),
        VARIABLE: json.dumps(described),
        "PYTHONHASHSEED": base.get("PYTHONHASHSEED") or "0",  # sets of names are walked in the same order in every run
    }


def assumptions(profile: Profile) -> list[str]:
    """Returns what a trace from this device takes for granted, as sentences."""
    return [*profile.assumptions, *(ascend.ASSUMPTIONS if profile.backend == "npu" else ())]
