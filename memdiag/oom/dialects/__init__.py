"""Dialects: the out-of-memory messages of one system each.

A dialect is a module with

* ``FORMATS``: names of the forms it finds (``dialect`` in the JSON);
* ``ANCHORS``: short texts, lower case and without blanks, of which each of its messages has at least one: nothing else is looked at;
* ``EXAMPLES``: pairs of a form and a message of it, for the tests and the documentation;
* ``find(text)``: yields what it finds in a squeezed text, as ``memdiag.oom.model.Found``.

Order matters where two claim the same place: the longer one wins, then the first one here.
"""

from __future__ import annotations

from types import ModuleType

from memdiag.registry import resolve

DIALECTS: dict[str, str] = {
    "pytorch-cuda": "memdiag.oom.dialects.pytorch_cuda",
    "pytorch-xpu": "memdiag.oom.dialects.pytorch_xpu",
    "torch-npu": "memdiag.oom.dialects.torch_npu",
    "hccl": "memdiag.oom.dialects.hccl",
    "cann": "memdiag.oom.dialects.cann",
}


def dialects() -> list[ModuleType]:
    """Returns the modules of all dialects."""
    return [resolve(target) for target in DIALECTS.values()]
