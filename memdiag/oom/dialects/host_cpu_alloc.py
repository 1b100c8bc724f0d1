"""Host memory requests that were refused at once: PyTorch's CPU allocator, Torch's before it, NumPy, C++ and Python.

Windows prints sizes oddly. Until 2020 the text was never formatted ("you tried to allocate %dGB. Buy new RAM!27": the
number comes last), and GB are whole GiB rounded down, so "0GB" is any size below 1 GiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.diagnosis import thresholds
from memdiag.oom.dialects.host_memory import FEWER_WORKERS, LOAD_MAPPED, ONE_TENSOR, PAGE_FILE, SHM, WATCH
from memdiag.oom.dialects.parts import gather, number, shown, whole_lines
from memdiag.oom.mentions import is_talk
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Confidence, Judgement
from memdiag.text import phrase
from memdiag.units import GIB

FORMATS = ("host_cpu_alloc",)
NAMES = {"numpy": "NumPy", "python": "Python", "cpp": "C++"}
ANCHORS = (
    "cpuallocator",
    "torch:notenoughmemory",
    "torch:invalidmemorysize",
    "torch:unabletommap",
    "unabletoallocate",
    "bad_alloc",
    "badallocation",
    "memoryerror",
    "cannotallocatememory",
    "unabletommap",
    "unabletowritetofile",
    "unabletoopensharedmemory",
    "totherightsize",
    "pagingfileistoosmall",
    "页面文件太小",
    "winerror1455",
    "oserror1455",
    "error=1455",
    "errorcode1455",
    "openblaserror:memory",
)
EXAMPLES = (
    (
        "host_cpu_alloc",
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: "
            "you tried to allocate 40000000000 bytes. Error code 12 (Cannot allocate memory)"
        ),
    ),
    (
        "host_cpu_alloc",
        (
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (1000, "
            "1000, 1000) "
            "and data type float64"
        ),
    ),
    ("host_cpu_alloc", "MemoryError"),
)

_TORCH = pattern(
    r"(?:DefaultCPUAllocator | CPUAllocator | Torch) : (?:can'?t allocate memory | not enough memory)"
    r"(?: : you tried to allocate (?: {requested:bytes} bytes (?:\.Error code \d+ \([^)]{0,60}\))? (?:\.?Buy new RAM!)?"
    r" | %dGB\.?Buy new RAM! (?:(?P<last>\d{1,9})(?!\d))? | (?P<gigabytes>\d{1,9})GB (?:\.?Buy new RAM!)? ) )?"
)
_TORCH_OLD = pattern(
    r"Torch: (?:invalid memory size | unable to mmap memory: you tried to mmap (?P<gigabytes>\d{1,9})GB)"
    # 1.0; 12 is ENOMEM
    r" | enforce fail at CPUAllocator\.cpp : \d{1,5} \] posix_memalign \( .{1,60}? \) == 0 \.? 12 vs 0"
)
_KINDS = (
    r"(?:u?int(?:8|16|32|64|p|c)? | float(?:16|32|64|80|96|128)? | complex(?:64|128|192|256)? | bool | object "
    r"| string | str"
    r" | (?:datetime64|timedelta64)(?:\[\w{1,4}\])? | void\d* | [<>|=]?[USVOfiub]\d+ | category)"
)
_NUMPY = pattern(
    r"Unable to allocate (?:{requested:size} for (?:an )?)? array with (?:shape|form) {shape:shape}"
    rf" (?:and data type (?P<dtype>{_KINDS}))?"
)
_MMAP = pattern(
    r"unable to mmap {requested:bytes} bytes (?: from file (?P<file>.{1,120}?) : Cannot allocate memory (?:\(12\))? )?"
)
_WEIGHTS = re.compile(r"\.(?:bin|pt|pth|ckpt|safetensors|model|npy|distcp)>?$", re.IGNORECASE)
_SHM = pattern(
    r"unable to (?:write to file | resize file | open shared memory object) .{1,120}?"
    r" (?:No space left on device | Cannot allocate memory) (?:\(\d+\))?"
)
_BAD_ALLOC = pattern(
    r"(?:terminate called after throwing an instance of)? '?(?:std::bad_(?:array_new_)?(?:alloc|length)|std::bad_alloc"
    r"|(?<=Error:)bad_alloc"
    r" | (?<=[:'\"])bad allocation)"
)
_ERRNO = pattern(
    r"(?:\[Errno 12\] Cannot allocate memory | (?:fork|vfork)[^:]{0,30}:"
    r" (?:retry: )?(?:Resource[^:]{0,40}:)? Cannot allocate memory"
    r" | Cannot allocate memory \( os error 12 \) )"  # Rust: safetensors, tokenizers
)
# By number or in the system's language: "(os error 1455)" of Rust, "error=1455" of Java, "0x5AF".
_WINDOWS = pattern(
    r"(?: \[? WinError 1455 \]? [^.]{0,80} | (?:[^.:(]{0,90} \.? )? \( os error 1455 \)"
    r" | The paging file is too small for this operation to complete | 页面文件太小 | CreateProcess error = 1455 "
    r"| error code 1455 )"
)
_OPENBLAS = pattern(r"OpenBLAS error: Memory allocation still failed after \d+ retries")
_PYTHON = re.compile(r"(?:[A-Za-z_]\w*\.){0,6}_?(?:Array)?MemoryError(?::.{0,200})?")
_PYTORCH = re.compile(r"torch|c10::|lightning|transformers|\"extraInfo\"", re.IGNORECASE)
_TRACEBACK = re.compile(r"Traceback\(|MemoryError|\.py\"")
# A device allocator that throws the same exception type (RMM, PyCUDA, PyOpenCL, Theano, tinygrad): not host memory.
_DEVICE = re.compile(
    r"cuda|hip|opencl|metal|gpu|npu|vram|out_of_memory|rmm|\bcu(?:Mem|Ctx|Module|Device|Array)"
    r"|Error allocating \d{1,24}(?!\d)|bytes: ?no ?memory ?is ?available",
    re.IGNORECASE,
)

_SIZED = frozenset({"torch", "map", "array", "mapping", "file"})  # reasons that also have a text with the size

_STREAM = LazyFix(
    "oom_host_alloc.stream",
    "code",
    'array = numpy.lib.format.open_memmap("data.npy", mode="w+", dtype=dtype, shape=shape)',
)
_ADDRESSES = LazyFix(
    "oom_host_alloc.addresses", "flag", "ulimit -v unlimited  # see: cat /proc/sys/vm/overcommit_memory"
)
_SMALLER_TYPE = LazyFix("oom_host_alloc.narrow", "code", "array = numpy.zeros(shape, dtype=numpy.float32)")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _TORCH.finditer(text.text):
        yield _torch(text, match)
    for match in _TORCH_OLD.finditer(text.text):
        gigabytes = match["gigabytes"]
        fields: Fields = {"requested_bytes": int(gigabytes) * GIB} if gigabytes else {}
        yield _found(match.start(), match.end(), "pytorch", fields, "map")
    for match in _NUMPY.finditer(text.text):
        fields = take(match)
        if match["dtype"]:
            fields["dtype"] = match["dtype"]
        yield _found(_word_start(text, match.start()), match.end(), "numpy", fields, "array")
    yield from _plain(text)
    yield from _shared(text)


def _torch(text: Squeezed, match: re.Match[str]) -> Found:
    fields, end = take(match), match.end()
    whole = match["gigabytes"] or match["last"]
    if whole is None and "%dgb" in match[0].lower():  # the number may follow other text, or be truncated
        later, end = gather(text, match.end(), match.end() + 6, (pattern(r"\.?{size:int}"),))
        whole = str(later["size"]) if "size" in later else None
    if whole is not None:
        fields["requested_bytes"] = int(whole) * GIB
    reason = "torch"
    if whole == "0":
        reason = "rounded"
    if "requested_bytes" not in fields and re.search(r"\d{19}", match[0]):  # slightly below 2^64: a negative size
        judgement = Judgement("unknown", "high", ("host",), (phrase("oom_host_alloc.why.negative"),))
        return Found(match.start(), end, "host_cpu_alloc", "pytorch", "cpu", fields, judgement, (WATCH,))
    return _found(match.start(), end, "pytorch", fields, reason)


def _plain(text: Squeezed) -> Iterator[Found]:
    """Yields messages without a number: exceptions of C++ and Python, errno 12, the paging file."""
    taken = -1
    for match in _BAD_ALLOC.finditer(text.text):
        if (
            match.start() < taken
            or _DEVICE.search(text.text, match.end(), match.end() + 60)
            or is_talk(text, *match.span())
        ):
            continue
        end = match.end()
        # "terminate called …" and "what():" are about one failure
        for again in _BAD_ALLOC.finditer(text.text, end, end + 200):
            end = again.end()
        taken = end
        around = text.text[max(match.start() - 1500, 0) : end + 500]
        framework = "pytorch" if _PYTORCH.search(around) else "python" if _TRACEBACK.search(around) else "cpp"
        yield _found(_word_start(text, match.start()), end, framework, {}, "cpp", "medium")
    for start, end, line in whole_lines(text, _PYTHON):
        if _NUMPY.search(text.text, start, end) or _BAD_ALLOC.search(text.text, start, end) or _DEVICE.search(line[0]):
            continue
        framework = "numpy" if "numpy" in line[0] or "ArrayMemoryError" in line[0] else "python"
        yield _found(start, end, framework, {}, "python", "medium")
    for head, why in (
        (_ERRNO, "enomem"),
        (_WINDOWS, "windows"),
        (_OPENBLAS, "openblas"),
    ):
        for match in head.finditer(text.text):
            fixes = (PAGE_FILE, FEWER_WORKERS) if head is _WINDOWS else None
            yield _found(match.start(), match.end(), "python", {}, why, "medium", fixes)


def _shared(text: Squeezed) -> Iterator[Found]:
    for match in _MMAP.finditer(text.text):
        is_file = _WEIGHTS.search(match["file"] or "") is not None
        why, fixes = ("file", (_ADDRESSES, WATCH)) if is_file else ("mapping", (SHM, FEWER_WORKERS))
        yield _found(match.start(), match.end(), "pytorch", take(match), why, "medium", fixes)
    for match in _SHM.finditer(text.text):
        if "torch" in match[0].lower() or "shm" in match[0].lower() or "filenamenotspecified" in match[0].lower():
            why = "shm"
            yield _found(match.start(), match.end(), "pytorch", {}, why, "high", (SHM, FEWER_WORKERS))


def _word_start(text: Squeezed, position: int) -> int:
    """Extends a message to the exception name before it, so that the line is claimed once."""
    name = re.compile(r"(?:[A-Za-z_]\w{0,40}\.){0,6}_?(?:ArrayMemoryError|MemoryError|RuntimeError):$")
    found = name.search(text.text, max(position - 120, 0), position)
    return found.start() if found else position


def _found(
    start: int,
    end: int,
    framework: str,
    fields: Fields,
    reason: str,
    confidence: Confidence = "high",
    fixes: tuple[LazyFix, ...] | None = None,
) -> Found:
    requested = number(fields, "requested_bytes")
    verdict: Cause = "host"
    sized = requested is not None and requested > 0 and reason in _SIZED
    reasons = [
        phrase(f"oom_host_alloc.why.{reason}.size", size=shown(requested))
        if sized
        else phrase(f"oom_host_alloc.why.{reason}")
    ]
    alternatives: tuple[Cause, ...] = ()
    if requested is not None and requested >= thresholds.ABSURD:
        verdict, alternatives = "unknown", ("host",)
        reasons = [phrase("oom_shared.why.shape", size=shown(requested))]
    if fixes is None:
        large = (ONE_TENSOR, LOAD_MAPPED) if requested is not None and requested >= GIB else ()
        fixes = (_STREAM, _SMALLER_TYPE, WATCH) if framework == "numpy" else (*large, FEWER_WORKERS, WATCH)
    return Found(
        start,
        end,
        "host_cpu_alloc",
        framework,
        "cpu",
        fields,
        Judgement(verdict, confidence, alternatives, tuple(reasons)),
        fixes,
    )
