"""Torch 7 and PyTorch until 0.4: the THC library reports CUDA's error 2, as a failed check and as an exception."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern
from memdiag.results.oom import Judgement
from memdiag.text import phrase

FORMATS = ("torch_thc_old",)
ANCHORS = ("thcudacheckfail", "cudaruntimeerr")
_FILE = "/pytorch/THC/THCGeneral.cpp"
EXAMPLES = (
    (
        "torch_thc_old",
        (
            f"THCudaCheck FAIL file={_FILE} line=70 error=2 : out of memory\n"
            f"cuda runtime error (2) : out of memory at {_FILE}:70"
        ),
    ),
)

_CHECK = pattern(r"THCudaCheck FAIL file= [^=\s]{1,300} line=\d{1,7} error=2 : (?:CUDA)? out of memory")
_RAISED = pattern(
    r"cuda runtime err(?:or)? \( 2 \) : out of memory (?: at (?=.{0,200}THC) [\w./\\:+-]{1,300} : \d{1,7} )"
)
_REACH = 4000  # a traceback is between the check and the exception


def _judgement() -> Judgement:
    return Judgement(
        "unknown",
        "low",
        ("capacity", "other_process"),
        (phrase("oom_cuda.why.thc"),),
    )


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``: a check and the following exception are one."""
    raised = [match for match in _RAISED.finditer(text.text) if not text.is_code(match.start())]
    used = set()
    for check in _CHECK.finditer(text.text):
        end = check.end()
        for match in raised:
            if match.start() not in used and end <= match.start() <= end + _REACH:
                used.add(match.start())
                end = match.end()
                break
        yield _found(check.start(), end)
    for match in raised:
        if match.start() not in used:
            yield _found(match.start(), match.end())


def _found(start: int, end: int) -> Found:
    return Found(start, end, "torch_thc_old", "pytorch", "cuda", {}, _judgement(), marks=frozenset({"generation:0.1"}))
