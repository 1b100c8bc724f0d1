"""A process that was killed beside others that wrote a trace is named."""

from __future__ import annotations

import sys

KILLED = """
import subprocess, sys
child = "import torch, time; torch.empty(1000); print(flush=True); time.sleep(60)"
with subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE) as other:
    other.stdout.readline()
    import torch
    torch.empty(1000)
    other.kill()
"""


def test_a_process_that_was_killed_beside_others_is_named(record):
    done = record(sys.executable, "-c", KILLED)
    assert done.returncode == 0
    assert "recorded 1 process" in done.stderr
    assert "used torch and ended abnormally" in done.stderr
