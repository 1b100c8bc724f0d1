"""PyTorch on Intel Gaudi (HPU): the bridge prints the failed size, but no other numbers."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase

FORMATS = ("hpu",)
ANCHORS = ("pt_devmem", "allocationfailedforsize::", "workspaceallocationofsize")
EXAMPLES = (
    ("hpu", "RuntimeError: [Rank:3] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::536870912 (512)MB"),
    ("hpu", "RuntimeError: FATAL ERROR :: MODULE:SYNHELPER workspace Allocation of size ::4294967296 failed!"),
)

_HEAD = pattern(
    r"(?: \[ Rank : {rank:int} \] )? (?: FATAL ERROR :{1,2} )? (?: MODULE : PT_DEVMEM )? :{0,2}"
    r" Allocation failed for size :{1,2} {requested:bytes} (?: \( [\d.]{1,20} \) MB )?"
)
# Memory for one compiled graph, whose size grows with the batch.
_WORKSPACE = pattern(
    r"(?: FATAL ERROR :{1,2} )? (?: MODULE : \w{2,20} )? workspace Allocation of size :{0,2} {requested:bytes}"
    r" failed !?"
)
_LESS = LazyFix(
    "remedies.recompute",
    "flag",
    "--gradient_checkpointing",
    when="oom_torch.gaudi.when",
    caveat="oom_torch.gaudi.caveat",
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _HEAD.finditer(text.text):
        if text.is_code(match.start()):
            continue
        fields = take(match)
        asked = shown(number(fields, "requested_bytes"))
        reasons = (phrase("oom_torch.why.gaudi", size=asked),)
        judgement = Judgement("capacity", "low", ("unknown", "fragmentation"), reasons)
        yield Found(match.start(), match.end(), "hpu", "pytorch", "hpu", fields, judgement, (_LESS,))
    for match in _WORKSPACE.finditer(text.text):
        fields = take(match)
        why = phrase("oom_torch.why.gaudi.workspace", size=shown(number(fields, "requested_bytes")))
        judgement = Judgement("capacity", "low", ("unknown", "workspace_or_comm"), (why,))
        yield Found(match.start(), match.end(), "hpu", "pytorch", "hpu", fields, judgement, (_LESS,))
