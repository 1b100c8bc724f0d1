"""The command that makes a recorded run fit: ``memdiag fix``, offered where a run that ran out of memory is known."""

from __future__ import annotations

from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.quoting import file_argument
from memdiag.recorder.run_folder import shown
from memdiag.runs.rerun import find_run


def fix_command(trace: Path) -> str:
    """Returns the ``memdiag fix`` command for a trace that ran out of memory; "" if its run cannot be repeated.

    A real card shows only the part before the failure, so that the plan is made on a simulated device.

    Args:
        trace: The trace, or the folder of its run.
    """
    try:
        run = find_run(trace)
    except (MemdiagError, OSError):
        return ""
    if run.manifest.get("phantom"):
        return f"memdiag fix {file_argument(shown(str(run.folder)))}"
    return f"memdiag fix --phantom DEVICE -- {run.shown}"
