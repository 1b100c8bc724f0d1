"""Call stacks and steps of an Ascend profiler run, from the trace_view.json next to the tables, which have neither.

A row of operator_memory names the operator and the time, but not the thread. It is matched with the call of that
operator around that time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memdiag.sources.ascend_memory import AscendMemory
from memdiag.sources.chrome_trace import STEP, nanoseconds
from memdiag.sources.growing import ByteLimit, Columns, Names
from memdiag.sources.guard import guard
from memdiag.sources.json_stream import JsonStream
from memdiag.sources.partial import spans_table
from memdiag.sources.text_files import open_text
from memdiag.trace.table import Table
from memdiag.units import MIB

NAME = "trace_view.json"

_LARGEST = 512 * MIB  # reading larger files would take longer than the stacks are worth


def read_calls(path: Path, memory: AscendMemory, budget: ByteLimit) -> tuple[list[str], Table] | None:
    """Adds the calls in a trace_view.json to ``memory``; returns names and table of its steps.

    Args:
        path: The file; None is returned if it is too large or missing.
        memory: Already contains its operators.
        budget: Memory limit.

    Raises:
        RefusedFile: The file is damaged.
    """
    if not path.is_file() or path.stat().st_size > _LARGEST:
        return None
    names, marks = Names(budget), Columns(("name", "start", "end"), budget)
    with guard(path, "sources.ascend-calls", ""), open_text(path, errors="replace") as text:
        stream = JsonStream(text, budget)
        for _ in stream.items():
            event = stream.value()
            if isinstance(event, dict) and event.get("ph") == "X":
                _take(event, memory, names, marks)
    found = marks.arrays()
    return names.list(), spans_table(found["start"], found["end"], found["name"])


def _take(event: dict[str, Any], memory: AscendMemory, names: Names, marks: Columns) -> None:
    name, args = event.get("name"), event.get("args")
    stack = args.get("Call stack") if isinstance(args, dict) else None
    if not isinstance(name, str) or not (memory.knows(name) or name.startswith(STEP)):
        return
    try:
        start = nanoseconds(event["ts"])
        end = start + nanoseconds(event.get("dur", 0))
    except (KeyError, ValueError, OverflowError):
        return
    if name.startswith(STEP):
        marks.add(names.number(name), start // 1000, end // 1000)
    elif isinstance(stack, str):
        memory.add_call(name, start, end, stack.replace("\r\n", ""))
