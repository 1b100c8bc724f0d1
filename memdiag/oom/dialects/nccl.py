"""NCCL: device memory for its channels and buffers, outside the framework's pool, and shared memory of the host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase

FORMATS = ("nccl",)
NAMES = {"nccl": "NCCL"}
ANCHORS = (
    "cudafailure",
    "hipfailure",
    "failedtocuda",
    "failedtohip",
    "sharedmemorysegment",
    "calltoibv_",
    "ibv_reg_mr(",
)
_LINE = "node7:4711:4713 [3] include/alloc.h"
EXAMPLES = (
    (
        "nccl",
        (
            f"{_LINE}:178 NCCL WARN Cuda failure 2 'out of memory'\n"
            f"{_LINE}:185 NCCL WARN Failed to CUDA calloc 10485760 bytes"
        ),
    ),
    ("nccl", "misc/ibvwrap.cc:215 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory"),
    ("nccl", "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'out of memory'"),
)

# Process, thread and device before each line: "node7:4711:4713 [3] transport/net.cc:12 NCCL WARN".
_WHERE = r"(?: : {pid:int} : \d{1,12} \[ {device_index:int} \] (?:[\w./+-]{1,120}:\d{1,6})? )? (?:NCCL WARN)? "
_DEVICE = (
    pattern(_WHERE + r"(?:Cuda|HIP) failure \d{0,4} :? \\{0,2} ['\"]? out of memory"),
    pattern(_WHERE + r"Failed to (?:CUDA|HIP) (?:host)? (?:c|m)? alloc (?:async)? {requested:bytes} bytes"),
)
_SHARED = (
    pattern(_WHERE + r"Error : failed to extend /dev/shm/nccl-\w{1,20} to {requested:bytes} bytes"),
    pattern(_WHERE + r"Error while creating shared memory segment /dev/shm/nccl-\w{1,20} \( size {requested:bytes} \)"),
)
# InfiniBand and RoCE: buffers are registered with the network card, which locks their pages. Releases up to 2.8 print
# no error after the call.
_LOCKED = (
    pattern(
        _WHERE + r"Call to (?: ibv_\w{3,30}? failed with error Cannot allocate memory (?:errno \d{1,3})?"
        r" | ibv_(?:reg_mr|create_cq|create_qp) failed (?! with) )"
    ),
    pattern(
        r"ibv_reg_mr \( (?:address=)? [\w]{1,20} , length={requested:bytes} [^()]{0,60} \) failed : Cannot "
        r"allocate memory"
        r" (?: [:.]? Please set max locked memory [^.]{0,100} )?"
    ),
)
_REACH = 300
_HOST_CALLOC = re.compile(r"(?:CUDA|HIP)host", re.IGNORECASE)
_HIP = re.compile(r"HIP(?:failure|host|c?alloc|malloc)|RCCL", re.IGNORECASE)

_BUFFERS = LazyFix("oom_nccl.buffers", "env", "export NCCL_BUFFSIZE=1048576")
_CHANNELS = LazyFix("oom_nccl.channels", "env", "export NCCL_MAX_NCHANNELS=8")
_ROOM = LazyFix("oom_nccl.room", "code", "torch.cuda.set_per_process_memory_fraction(0.95)")
_SHM = LazyFix("oom_host.shm", "flag", "docker run --shm-size=16g")
_MEMLOCK = LazyFix(
    "oom_nccl.memlock",
    "flag",
    "ulimit -l unlimited  # containers: docker run --ulimit memlock=-1; Slurm: LimitMEMLOCK=infinity for slurmd",
)
_SOCKETS = LazyFix("oom_nccl.sockets", "env", "export NCCL_IB_DISABLE=1")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    yield from _locked(text)
    pieces = sorted(
        (
            (match.start(), match, host)
            for host, patterns in ((False, _DEVICE), (True, _SHARED))
            for one in patterns
            for match in one.finditer(text.text)
        ),
        key=lambda piece: piece[0],
    )
    found: tuple[int, int, Fields, bool] | None = None
    for start, match, host in pieces:
        taken = take(match)
        host = host or bool(_HOST_CALLOC.search(match[0]))
        if (
            found
            and start - found[1] <= _REACH
            and found[3] == host
            and all(found[2].get(name, value) == value for name, value in taken.items())
        ):
            found = (found[0], match.end(), found[2] | taken, host)
            continue
        if found:
            yield _message(*found, backend=_backend(text, *found[:2]))
        found = None if text.is_code(start) else (start, match.end(), taken, host)
    if found:
        yield _message(*found, backend=_backend(text, *found[:2]))


def _locked(text: Squeezed) -> Iterator[Found]:
    """Yields refusals to register memory with a network card; closely following lines belong to the same failure."""
    end = -_REACH - 1
    for match in sorted(
        (match for form in _LOCKED for match in form.finditer(text.text)), key=lambda match: match.start()
    ):
        if text.is_code(match.start()) or match.start() - end <= _REACH:
            end = max(end, match.end())
            continue
        end = match.end()
        reasons = (
            phrase("oom_nccl.why.locked"),
            phrase("oom_nccl.why.ulimit"),
        )
        judgement = Judgement("host", "medium", ("limit",), reasons)
        yield Found(match.start(), end, "nccl", "nccl", "cpu", take(match), judgement, (_MEMLOCK, _SOCKETS))


def _backend(text: Squeezed, start: int, end: int) -> str:
    return "hip" if _HIP.search(text.text, max(start - 100, 0), end) else "cuda"


def _message(start: int, end: int, fields: Fields, host: bool, backend: str) -> Found:
    requested = number(fields, "requested_bytes")
    if host:
        sized = requested is not None
        why = phrase("oom_nccl.why.host.size", size=shown(requested)) if sized else phrase("oom_nccl.why.host")
        judgement = Judgement("host", "medium", (), (why,))
        return Found(start, end, "nccl", "nccl", backend, fields, judgement, (_SHM,))
    reasons = (
        phrase("oom_nccl.why.device.size", size=shown(requested))
        if requested is not None
        else phrase("oom_nccl.why.device"),
        phrase("oom_nccl.why.driver"),
    )
    judgement = Judgement("workspace_or_comm", "high", ("capacity", "other_process"), reasons)
    return Found(start, end, "nccl", "nccl", backend, fields, judgement, (_ROOM, _BUFFERS, _CHANNELS))
