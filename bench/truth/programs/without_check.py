"""Runs a program with one of its checks off: of a value that the device would have computed.

    python without_check.py "CONDITION" PROGRAM [its arguments]

``if CONDITION:`` occurs once in the program and never holds here.
"""

import sys
from pathlib import Path

condition, program, *arguments = sys.argv[1:]
source = Path(program).read_text(encoding="utf-8")
if source.count(f"if {condition}:") != 1:
    sys.exit(f"error: 'if {condition}:' does not occur once in {program}")
sys.argv = [program, *arguments]
sys.path[0] = str(Path(program).parent)
code = compile(source.replace(f"if {condition}:", "if False:"), program, "exec")
exec(code, {"__name__": "__main__", "__file__": program})  # noqa: S102 - the program itself
