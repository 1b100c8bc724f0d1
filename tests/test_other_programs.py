"""bench/programs_of_others.py ends a program together with the processes that it leaves behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
# This runs in a separate process, since it waits for all children of its process.
RUN = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import programs_of_others
programs_of_others.GRACE_SECONDS = 0
status, _, _, said = programs_of_others.run([sys.executable, "-c", sys.argv[2]], Path(), os.environ, 2)
print(json.dumps([status, said]))
"""
# The orphan keeps stderr open.
PROGRAM = """
import subprocess, sys, time
print("failed", file=sys.stderr, flush=True)
subprocess.Popen(["sh", "-c", "sleep 60 & exec sleep 60"])
"""


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("sys.exit(3)", [3, "failed\n"]),
        ("time.sleep(60)", [124, "failed\n\nnot done after 2 s"]),
    ],
)
def test_orphans_do_not_outlast_a_program(ending, expected):
    done = subprocess.run(
        [sys.executable, "-c", RUN, BENCH, PROGRAM + ending], capture_output=True, text=True, timeout=30, check=True
    )
    assert json.loads(done.stdout) == expected
