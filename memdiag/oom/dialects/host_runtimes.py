"""Host memory that other languages' runtimes could not allocate.

They are Rust, Java, Go, JavaScript, R, Julia, Arrow, OpenCV and Spark's containers.

They run alongside training: tokenizers and Polars use Rust, data pipelines Java, notebooks and dashboards JavaScript.
Java and JavaScript have their own limits, far below the host's memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.diagnosis import thresholds
from memdiag.oom import frameworks
from memdiag.oom.dialects.host_memory import LARGEST, WATCH
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Judgement
from memdiag.text import phrase

FORMATS = ("host_runtime",)
NAMES = {
    "rust": "Rust",
    "java": "Java",
    "go": "Go",
    "node": "Node.js",
    "r": "R",
    "arrow": "Arrow",
    "yarn": "YARN",
    "dask": "Dask",
}
ANCHORS = (
    "memoryallocationof",
    "java.lang.outofmemoryerror",
    "insufficientmemoryforthejavaruntime",
    "runtime:outofmemory",
    "heapoutofmemory",
    "cannotallocatevectorofsize",
    "cannotallocatememoryblock",
    "arrowmemoryerror",
    "outofmemoryerror()",
    "beyondphysicalmemorylimits",
    "forexceedingmemorylimits",
    "memorybudget",
    "memory)failedtoallocate",
)
WORDS = ("heap limit",)
EXAMPLES = (
    ("host_runtime", "memory allocation of 6442450944 bytes failed\nAborted (core dumped)"),
    ("host_runtime", "java.lang.OutOfMemoryError: GC overhead limit exceeded"),
    ("host_runtime", "fatal error: runtime: out of memory"),
    ("host_runtime", "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory"),
    ("host_runtime", "Error: cannot allocate vector of size 12.5 Gb"),
    ("host_runtime", "pyarrow.lib.ArrowMemoryError: malloc of size 8589934592 failed"),
    (
        "host_runtime",
        (
            "is running beyond physical memory limits. Current usage: 4.2 GB of 4 GB physical memory used; "
            "6 GB of 8 GB virtual memory used."
        ),
    ),
)

_JAVA = LazyFix("oom_runtimes.java", "env", 'export JAVA_TOOL_OPTIONS="-Xmx16g"')
_NODE = LazyFix("oom_runtimes.node", "env", 'export NODE_OPTIONS="--max-old-space-size=8192"')
_OVERHEAD = LazyFix("oom_runtimes.overhead", "flag", "spark-submit --conf spark.executor.memoryOverhead=4g ...")
_DASK = LazyFix("oom_runtimes.dask", "flag", "dask worker --nworkers 2 --memory-limit 32GiB ...")
_PIECES = LazyFix("oom_runtimes.chunks", "code", "for batch in dataset.to_batches(batch_size=65536): ...")
_PARTS = LazyFix("oom_runtimes.image", "code", "image = cv2.imread(path, cv2.IMREAD_REDUCED_COLOR_2)")
_RESERVE = "limit"

# Runtime, wording, limit and remedies.
_HEADS = (
    ("rust", pattern(r"memory allocation of {requested:bytes} bytes failed"), "", (_PIECES, WATCH)),
    (
        "java",
        pattern(
            r"java\.lang\.OutOfMemoryError"
            r" (?: : (?:Java heap space | GC overhead limit exceeded | Metaspace | PermGen space"
            r" | Direct buffer memory | Cannot reserve {requested:bytes} bytes of direct buffer memory"
            r" | unable to create (?:new)? native thread | Requested array size exceeds VM limit "
            r"| Compressed class space"
            r" | Unable to acquire {wanted:bytes} bytes of memory (?:,got \d{1,20})? ) )?"
        ),
        _RESERVE,
        (_JAVA, WATCH),
    ),
    (
        "java",
        pattern(
            r"There is insufficient memory for the Java Runtime Environment to continue"
            r" (?: .{0,40}? failed to (?:allocate|map|commit) (?:\(mmap\) | \(malloc\))? {requested:bytes} bytes)?"
        ),
        "",
        (LARGEST, WATCH),
    ),
    ("go", pattern(r"fatal error: runtime: (?:out of memory | cannot allocate memory)"), "", (LARGEST, WATCH)),
    (
        "node",
        pattern(
            r"(?:Reached heap limit | CALL_AND_RETRY_LAST | Ineffective mark-compacts near heap limit "
            r"| invalid table size)"
            r" Allocation failed -? (?:JavaScript heap | process) out of memory"
        ),
        _RESERVE,
        (_NODE, WATCH),
    ),
    ("r", pattern(r"cannot allocate vector of size {requested:size}"), "", (LARGEST, WATCH)),
    ("r", pattern(r"cannot allocate memory block of size {requested:size}"), "", (LARGEST, WATCH)),
    ("julia", pattern(r"ERROR: (?:LoadError:)? OutOfMemoryError\(\)"), "", (LARGEST, WATCH)),
    (
        "arrow",
        pattern(r"ArrowMemoryError: (?:malloc | realloc) of size {requested:bytes} failed"),
        "",
        (_PIECES, WATCH),
    ),
    (
        "opencv",
        pattern(r"\( -4 : Insufficient memory \) Failed to allocate {requested:bytes} bytes"),
        "",
        (_PARTS, WATCH),
    ),
    (
        "yarn",
        pattern(
            r"is running (?:{excess:bytes}B)? beyond (?:the)? '?(?:physical|virtual)'? memory limits? \."
            r" Current usage: {allocated:size} of {limit:size} physical memory used"
        ),
        "container",
        (_OVERHEAD, WATCH),
    ),
    (
        "yarn",
        pattern(
            r"Container killed by YARN for exceeding (?:physical)? memory limits \."
            r" (?:{allocated:size} of {limit:size} physical memory used)?"
        ),
        "container",
        (_OVERHEAD, WATCH),
    ),
    (
        "dask",
        pattern(r"(?:Worker .{0,80}? exceeded \d{1,3} % memory budget)"),
        "worker",
        (_DASK, WATCH),
    ),
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for framework, head, limit, fixes in _HEADS:
        for match in head.finditer(text.text):
            given = take(match)
            fields: Fields = {
                name: value for name, value in given.items() if name not in {"wanted_bytes", "excess_bytes"}
            }
            if "wanted_bytes" in given:
                fields["requested_bytes"] = given["wanted_bytes"]
            judgement = _judge(fields, framework, limit)
            yield Found(match.start(), match.end(), "host_runtime", framework, "cpu", fields, judgement, fixes)


def _judge(fields: Fields, framework: str, limit: str) -> Judgement:
    requested, used, most = (number(fields, f"{name}_bytes") for name in ("requested", "allocated", "limit"))
    if requested is not None and requested >= thresholds.ABSURD:
        why = phrase("oom_shared.why.shape", size=shown(requested))
        return Judgement("unknown", "high", ("host",), (why,))
    others: tuple[Cause, ...] = ("limit",) if limit else ()
    program = {**frameworks.NAMES, **NAMES}[framework]
    why = phrase("oom_runtimes.why.ran-out", program=program)
    if requested:
        why = phrase("oom_runtimes.why.ran-out.size", program=program, size=shown(requested))
    elif used and most:
        why = phrase("oom_runtimes.why.ran-out.used", program=program, used=shown(used), limit=shown(most))
    return Judgement("host", "high", others, (why, phrase(f"oom_runtimes.why.{limit}")) if limit else (why,))
