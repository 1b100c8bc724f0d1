"""Runs programs one after the other, each in a process of its own, forked after the slow import of torch: several_cuda.py "FILE WORDS"…

Prints one JSON line for each: its words, how it ended (0; the exit status; minus a signal) and the lines that it said
on stderr.
"""

import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path

import torch  # noqa: F401 - once for all of them


def run(words):
    """In the child: the program as if it had been started."""
    sys.argv = words
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the parent goes on with the next
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
