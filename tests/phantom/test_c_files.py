"""Among the C files of the simulated NPU, those that implement memory call each other in one direction only."""

from __future__ import annotations

import re
from pathlib import Path

NPU = Path(__file__).parents[2] / "memdiag" / "phantom" / "npu"
LAYERS = ("ranges", "known", "contents", "memory")  # each may call only those before it


def test_memory_files_call_down_only():
    text = {name: (NPU / f"{name}.c").read_text(encoding="utf-8") for name in LAYERS}
    defined = {
        name: set(re.findall(r"^(?!static)[a-z]\w*[ *]+(?:[a-z]\w*[ *]+)?(\w+)\([^;]*\) \{", text[name], re.MULTILINE))
        for name in LAYERS
    }
    assert {"find_range"} <= defined["ranges"]
    assert {"note_type", "type_at"} <= defined["known"]
    assert {"move_bytes", "end_contents"} <= defined["contents"]
    upwards = [
        (lower, function)
        for at, lower in enumerate(LAYERS)
        for higher in LAYERS[at + 1 :]
        for function in sorted(defined[higher])
        if re.search(rf"\b{function}\(", text[lower])
    ]
    assert upwards == []
