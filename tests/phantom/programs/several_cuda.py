"""Runs programs in turn, each in a child forked after the slow import of torch: several_cuda.py "FILE ARGS"…

Prints one JSON line per program: its command line, its exit status (or minus the signal that ended it), and the lines
that it wrote to stderr.
"""

import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path

import torch  # noqa: F401 - imported once, before the forks


def run(words):
    """Runs a program in the child as if it had been started from the command line; returns its exit status."""
    sys.argv = words
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the parent continues with the next program
        traceback.print_exc()
        return 1
    return 0


for line in sys.argv[1:]:
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            status = run([str(Path(__file__).with_name(line.split()[0])), *line.split()[1:]])
            sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        lines = [text.strip() for text in said.read().splitlines() if text.strip()]
    print(json.dumps({"program": line, "status": status, "said": lines}), flush=True)
