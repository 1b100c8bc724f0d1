"""A process of the local engine: reads a task from each line of its input, and answers with a line.

It ends at the end of its input, so that no process remains when the command is killed. Output of libraries goes to
stderr; stdout has answers only.
"""

from __future__ import annotations

import json
import os
import sys

READY = "memdiag-fleet"


def main() -> None:
    """Works until the input ends."""
    with os.fdopen(os.dup(1), "w", encoding="ascii") as answers:
        os.dup2(2, 1)
        from memdiag.fleet.work import work

        answers.write(READY + "\n")
        answers.flush()
        for line in sys.stdin.buffer:
            answers.write(json.dumps(work(json.loads(line)), allow_nan=False) + "\n")
            answers.flush()
