"""The process that records one run of a search: ``python -m memdiag.fit.child ORDER.json``.

Each run has a separate process: a simulated device fixes the addresses of the programs that it starts, and several runs
go on at the same time, each with a separate output.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(order_file: str) -> int:
    """Records the run that a file describes, and returns the exit status of its command."""
    from memdiag.errors import MemdiagError
    from memdiag.runs.recording import Order, perform

    order_fields = json.loads(Path(order_file).read_text(encoding="utf-8"))
    order = Order(
        tuple(order_fields["command"]),
        {},
        order_fields["folder"],
        order_fields["device"],
        order_fields["rank"],
        order_fields["world"],
        order_fields["variables"],
        has_short_name=False,
    )
    try:
        return perform(order).ended.exit_code
    except MemdiagError as error:
        sys.stderr.write(f"error: {error.message}\nhint: {error.hint}\n")
        return error.exit_code


def end_with_parent() -> None:
    """Asks Linux to end this process when its parent ends, such as a worker of a cluster that is shut down."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    end_with_parent()
    sys.exit(main(sys.argv[1]))
