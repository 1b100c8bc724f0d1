"""The environment in which a command runs on a simulated device; only the processes it starts see it."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.units import MIB, parse_bytes

from . import ascend, boot
from .cuda import standin
from .experts import assumed_load
from .installed import Installed, installed_for
from .profiles import Profile

VARIABLE = "MEMDIAG_PHANTOM"  # description of the device, which the recorder writes into traces
OPTION = "MEMDIAG_PHANTOM_OPTION"  # the device as --phantom takes it, for messages of the simulated runtime
VALUES = "MEMDIAG_PHANTOM_VALUES"  # values that kernel results read as
# Largest tensor in bytes that is computed on the CPU; 0: none; not set: indices, masks and counters up to SMALL_BYTES.
COMPUTE = "MEMDIAG_PHANTOM_COMPUTE"
INTEGERS = "MEMDIAG_PHANTOM_INTEGERS"  # the same for tensors of integers and masks, if larger
SELECTED = "MEMDIAG_PHANTOM_SELECTED"  # fraction of elements that masks of unknown values select
_STAND_INS = {"cuda": standin, "npu": ascend}
_KERNELS = b"_dispatch_get_computed_kernel_for_dispatch_key"  # PyTorch's function that computing needs
SMALL_BYTES = MIB  # bytes of the largest computed tensor, if no other limit is given
MASK_BYTES = 256 * MIB  # the same for tensors of integers and masks
_SAME_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE of personality(2)
_WHAT_IT_IS = 0xFFFFFFFF


def environment_for(
    profile: Profile,
    command: Sequence[str],
    base: Mapping[str, str] = os.environ,
    *,
    as_rank: int | None = None,
    world: int | None = None,
) -> dict[str, str]:
    """Returns the environment for ``command``; compiles the simulated runtime if necessary.

    Args:
        profile: The device.
        command: Command that will run.
        base: The environment so far.
        as_rank: Rank of the command's process in a simulated world without other ranks, or None if it runs alone.
        world: Number of ranks of that world.

    Raises:
        MemdiagError: Missing torch or compiler, no simulated runtime for this system, or an invalid rank.
    """
    if not sys.platform.startswith("linux"):
        raise MemdiagError(phrase("errors.phantom-linux"), phrase("errors.phantom-linux.hint"))
    if base.get(VARIABLE):
        raise MemdiagError(phrase("errors.phantom-nested"), phrase("errors.phantom-nested.hint"))
    values = _values(base, profile)
    around = boot.environment(base, as_rank, world)
    kind = _STAND_INS[profile.backend]
    installed = installed_for(command, base)
    compute = base.get(COMPUTE) or ("" if offers_kernels(installed) else "0")
    folder = kind.stand_in(installed)
    described = {
        "device": profile.full_name,
        "product": profile.product,
        "context_error_bytes": profile.context_error_bytes,
        "as_rank": as_rank,
        "world": world,
        "values": values,
        "assumptions": assumptions(profile, computes=compute != "0", load=assumed_load(base)),
    }
    return {
        **kind.environment(profile, folder, around),
        **(standin.planner(installed, base) if profile.backend == "cuda" else {}),
        VARIABLE: json.dumps(described),
        OPTION: profile.full_name,
        **({COMPUTE: compute} if compute else {}),
        # Kernels compiled and chosen for a simulated device must not be found by a program on a real one.
        "TORCHINDUCTOR_CACHE_DIR": base.get("TORCHINDUCTOR_CACHE_DIR") or str(folder.parent / "inductor"),
        # Sets of names are iterated in the same order in every run.
        "PYTHONHASHSEED": base.get("PYTHONHASHSEED") or "0",
        **_without_compiled_files(installed, base),
    }


def offers_kernels(installed: Installed) -> bool:
    """Returns whether torch has the function that computing needs, which its list of types names."""
    types = Path(installed.folder_of("torch"), "_C", "__init__.pyi") if installed.version_of("torch") else None
    return types is None or not types.is_file() or _KERNELS in types.read_bytes()


def _without_compiled_files(installed: Installed, base: Mapping[str, str]) -> dict[str, str]:
    """Prevents a run from writing compiled Python files, so that later runs have the same layout of host memory.

    If torch itself is not compiled yet, each run would take many seconds longer, so the first run may write files.
    """
    is_compiled = installed.version_of("torch") and (Path(installed.folder_of("torch")) / "__pycache__").is_dir()
    return {"PYTHONDONTWRITEBYTECODE": base.get("PYTHONDONTWRITEBYTECODE") or "1"} if is_compiled else {}


def _values(base: Mapping[str, str], profile: Profile) -> str:
    values = base.get(VALUES) or "zeros"
    known = _STAND_INS[profile.backend].VALUES
    if values not in known:
        device = "" if len(known) > 1 else phrase("phantom.values.device", device=profile.full_name)
        raise MemdiagError(
            phrase("phantom.values", values=values, device=device),
            phrase("phantom.values.hint", values=", ".join(known)),
        )
    return values


def same_addresses_from_now_on() -> bool:
    """Makes the programs that this process starts use the same host addresses in every run.

    Returns whether it succeeded. Python orders sets by the addresses of their elements, and autocast orders its frees
    by the addresses of weights (recordings do not: see recorder/backends/autocast_frees.py). Docker's default profile
    forbids it.
    """
    personality = getattr(ctypes.CDLL(None), "personality", None)
    if personality is None:
        return False
    now = int(personality(ctypes.c_ulong(_WHAT_IT_IS)))
    return now >= 0 and int(personality(ctypes.c_ulong(now | _SAME_ADDRESSES))) >= 0


def compute_limits(text: str) -> dict[str, str]:
    """Returns the variables with the size limits of computed tensors from ``--compute``.

    Args:
        text: "small" or "small=64KiB" (any tensors), "masks" or "masks=64MiB" (small ones, and larger integers), or
            "none".

    Raises:
        MemdiagError: It is none of these.
    """
    if text == "none":
        return {COMPUTE: "0"}
    word, is_given, size = text.partition("=")
    usual = {"small": SMALL_BYTES, "masks": MASK_BYTES}.get(word, 0)
    limit = parse_bytes(size) if usual and is_given else usual
    if limit <= 0:
        raise MemdiagError(phrase("errors.compute", text=str(text)), phrase("errors.compute.hint"))
    return {COMPUTE: str(limit)} if word == "small" else {COMPUTE: str(SMALL_BYTES), INTEGERS: str(limit)}


def assumptions(profile: Profile, *, computes: bool = False, load: str = "") -> list[str]:
    """Returns the assumptions of a trace from this device, as sentences.

    Args:
        profile: The device.
        computes: Whether anything is computed.
        load: The assumed load of experts, or "".
    """
    kind = _STAND_INS[profile.backend]
    said = [*profile.assumptions, *kind.ASSUMPTIONS]
    if load:
        said.append(f"the experts of a mixture of experts have the load {load} (--expert-load)")
    if not computes:
        return [*said, *kind.MADE_UP]
    made_up = [f"where the CPU did not compute it: {text}" for text in kind.MADE_UP]
    return [*said, *made_up, "random numbers on the CPU are not those that the device would draw"]
