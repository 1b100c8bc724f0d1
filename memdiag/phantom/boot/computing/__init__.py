"""Computes small tensors of a simulated device on the CPU.

Values that a program reads are then correct. By default, these are indices, masks and counters (``by_default``); with
``--compute small``, the results of all operators.

The operator itself still runs on the simulated device, so PyTorch's allocator sees the same calls in the same order. If
all its inputs are small and known, the same operator also runs on copies on the CPU, and the bytes of its results are
written to the addresses of the device results. PyTorch's operators for the device are wrapped one by one under the
dispatch key of the device, below autograd. A ``__torch_dispatch__`` mode would see them too, but it makes the backward
pass choose other paths, which need other memory.

Known values are those that the host wrote and those computed here; the simulated runtime tracks them by bytes. All
other values are those of ``--values``. An error here never reaches the program: the value counts as unknown, and the
error is counted.

The file is loaded by its path, in a Python that may not have memdiag, so it imports only the standard library and
torch.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Optional

# The largest tensor that is computed, in bytes; 0: none. Not set: only operators of by_default.py.
VARIABLE = "MEMDIAG_PHANTOM_COMPUTE"

_machine: Any = None


def begin(torch: Any, key: str) -> None:
    """Wraps the operators of a device.

    Args:
        torch: The module.
        key: The device's dispatch key, "CUDA" or "PrivateUse1".
    """
    global _machine  # noqa: PLW0603 - one device per process
    from .by_default import LIMIT_BYTES
    from .machine import Machine
    from .original import keep

    try:
        limit = int(os.environ.get(VARIABLE) or 0)
        _machine = Machine(keep(torch), key, limit or LIMIT_BYTES, is_default=not limit)
        _machine.begin()
    except Exception as error:  # noqa: BLE001 - the program continues without computed values
        sys.stderr.write(
            f"memdiag: nothing is computed for torch {torch.__version__}: {type(error).__name__}: {error}\n"
        )


def facts() -> Optional[dict[str, Any]]:
    """Returns the numbers of computed and other operators, or None without ``--compute``."""
    return None if _machine is None or _machine.is_default else _machine.tally.facts()


def expert_facts() -> Optional[dict[str, Any]]:
    """Returns the assumed load of experts and where it was used, or None without such an assumption."""
    return None if _machine is None or _machine.experts is None else _machine.experts.facts()
