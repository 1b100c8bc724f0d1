"""Computes small tensors of a simulated device on the CPU (``--compute small``).

Values that a program reads are then correct.

The operator itself runs as ever, on the device that is not there: PyTorch's allocator sees the same calls in the same
order. Beside it, if all that it reads is small and known, the same operator computes copies on the CPU, and the bytes
of its results are put where the device's would be. Operators that PyTorch has for the device are wrapped one by one,
under the key of the device, below autograd: a mode of ``__torch_dispatch__`` would see them as well, but with one in
force the backward pass takes other ways, which need other memory.

Known is what the host wrote and what was computed here; the simulated runtime keeps account of it by bytes. All else
stays what ``--values`` says. Nothing that goes wrong here reaches the program: then a value is not known, and that is
counted.

Loaded by its place, in a Python that need not have memdiag: the standard library and torch only.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Optional

VARIABLE = "MEMDIAG_PHANTOM_COMPUTE"  # the largest tensor that is computed, in bytes

_machine: Any = None


def begin(torch: Any, key: str) -> None:
    """Wraps the operators of a device.

    Args:
        torch: The module.
        key: The device's dispatch key, "CUDA" or "PrivateUse1".
    """
    global _machine  # noqa: PLW0603 - one device per process
    from .machine import Machine

    try:
        _machine = Machine(torch, key, int(os.environ[VARIABLE]))
        _machine.begin()
    except Exception as error:  # noqa: BLE001 - the program continues, and nothing is computed
        sys.stderr.write(
            f"memdiag: nothing is computed for torch {torch.__version__}: {type(error).__name__}: {error}\n"
        )


def facts() -> Optional[dict[str, Any]]:
    """Returns the numbers of computed and other operators, or None if computing is disabled."""
    return None if _machine is None else _machine.tally.facts()
