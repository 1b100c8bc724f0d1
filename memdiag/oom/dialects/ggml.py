"""ggml, the base of llama.cpp, whisper.cpp, stable-diffusion.cpp and Ollama's runners, on every backend and the host.

A failed buffer is reported in up to three lines: by the backend in MiB, by the allocator in bytes ("failed to allocate
CUDA0 buffer of size 151851674624"), by the loader without a number. They are one message, and the number in bytes is
used. MiB may have the decimal comma of the user's locale. Refused pinned memory only makes copies slower: the program
continues with ordinary memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from memdiag.diagnosis import thresholds
from memdiag.oom.dialects.host_memory import WATCH
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Confidence, Judgement
from memdiag.text import phrase
from memdiag.units import MIB

FORMATS = ("ggml",)
NAMES = {
    "llama.cpp": "llama.cpp",
    "whisper.cpp": "whisper.cpp",
    "stable-diffusion.cpp": "stable-diffusion.cpp",
}
ANCHORS = (
    "ggml",
    "llamarunner",
    "bufferofsize",
    "cudamallocfailed",
    "hipmallocfailed",
    "pinnedmemory",
    "unabletoallocate",
    "currentdevice:",
    "erroroutofdevicememory",
    "erroroutofhostmemory",
    "failedtoallocatecompute",
    "bufferforkvcache",
)
EXAMPLES = (
    (
        "ggml",
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 12345.00 MiB on device 0: cudaMalloc failed: "
            "out of memory\n"
            "alloc_tensor_range: failed to allocate CUDA0 buffer of size 12944670720"
        ),
    ),
    (
        "ggml",
        (
            "ggml_vulkan: Device memory allocation of size 2147483648 failed.\n"
            "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory"
        ),
    ),
    ("ggml", "ggml_cuda_host_malloc: failed to allocate 1024.00 MiB of pinned memory: out of memory"),
)

_NUMBER = r"\d{1,9}(?:[.,]\d{1,3})?"
_PARTS = {
    "backend": pattern(
        r"(?:ggml_backend_\w{2,12}?_buffer_type_alloc_buffer:|ggml_\w{2,30}?:)? allocating {requested:size} on device"
        r" {device_index:int}:"
        r" (?P<call>cuda|hip|aclrt|musa)Malloc\w{0,12}? failed: out of memory"
    ),
    "call": pattern(r"(?P<call2>cuda|hip|musa)Malloc\w{0,12}? failed: out of memory"),
    "buffer": pattern(
        r"failed to allocate (?P<name>[A-Za-z]+\d*(?:_Host)?(?:_Mapped)?(?:_Split)?)? buffer (?:of size"
        r" {bytes:bytes} | ,? size=? {mib:size} | for kv cache)"
    ),
    "compute": pattern(r"failed to allocate compute (?:pp|tg)? buffers?"),
    "unable": pattern(r"unable to allocate (?P<unable>[A-Za-z]+\d*(?:_Host)?(?:_Mapped)?(?:_Split)?|backend) buffer"),
    "vulkan": pattern(r"ggml_vulkan: (?:Device|Host)? memory allocation of size {bytes:bytes} failed"),
    "vulkan_limit": pattern(
        r"Requested buffer size (?:\(?{bytes:bytes}\)?)? exceeds (?:device)? (?:memory allocation"
        r" limit|max buffer size|maxBufferSize) (?:\({limit:bytes}\))?"
    ),
    "vulkan_error": pattern(
        r"(?:vk::\w{1,20}::\w{1,30}: | ggml_vulkan:[^:]{0,40}:?)? ErrorOut ?Of (?P<vk>Device|Host) Memory"
    ),
    "sycl": pattern(
        r"(?:ggml_backend_sycl_buffer_type_alloc_buffer|ggml_sycl\w{0,30}): can'?t allocate {bytes:bytes}"
        r" (?:Bytes?)? of memory on device {device_index:int}?"
    ),
    "status": pattern(r"ggml_metal_\w{3,40}?: (?:error:)? command buffer \d{1,4} failed with status \d"),
    "metal": pattern(r"Insufficient Memory \(0{7}8:kIOGPUCommandBufferCallbackErrorOutOfMemory\)"),
    "metal_buffer": pattern(
        r"ggml_(?:backend_)?metal_\w{3,40}?: error: failed to allocate (?:'[\w. ]{1,20}')? buffer ,? size=? {mib:size}"
    ),
    "cuda": pattern(
        r"(?P<call4>CUDA|ROCm|MUSA) error(?: 2 at [\w./\\:-]{1,200}?)?: out of memory"
        r" (?: current device: {device_index:int} (?:, in function [\w<>:~, ]{1,60}? at)? )"
    ),
    "runner": pattern(
        r"llama runner process (?:has terminated|no longer running) : .{0,60}? (?P<call3>CUDA|HIP|ROCm) error : "
        r"out of memory"
    ),
    "cuda_at": pattern(r"CUDA error 2 at [\w./\\:-]{1,200}?ggml[\w./\\:-]{1,60}?: out of memory"),
    "cpu": pattern(r"ggml_aligned_malloc: insufficient memory \(attempted to allocate {mib:size}\)"),
}
_PINNED = pattern(
    r"ggml_vulkan: Failed to allocate pinned memory (?: \( [^()]{0,160} \) )?"
    r" | (?:ggml_\w{2,12}?_host_malloc: )? (?:warning:)? failed to allocate {requested:size} of pinned memory"
    r" (?:: (?:invalid"
    r" argument|out of memory|[a-z ]{3,40}))?"
)
_CONTEXT = pattern(
    r"not enough space in the (?:context's memory pool|scratch memory(?: pool)?|buffer) \(needed {requested:bytes} ,"
    r" (?:largest block)? available {free:bytes}\)"
)
_LOCK = pattern(r"failed to (?:mlock|VirtualLock) {requested:bytes}-byte buffer \(after previously locking \d+ bytes\)")
_REACH = 700
# Buffers for several batches in flight did not fit, but those of one batch may. A second refusal is a separate message.
_RETRIED = pattern(r"compute buffer allocation failed, retrying without pipeline parallelism")
_RETRIED_REACH = 250
_PIPELINED = pattern(r"pipeline parallelism enabled")
_PIPELINED_REACH = 1500
_GRAPH = "gallocr"  # ggml_gallocr_reserve_n allocates the buffers of a computation graph only
# Words around a message, and the program; the first match wins. Others have the options of llama.cpp.
_PROGRAMS = (
    (r"ollama|llamarunner", "ollama"),
    (r"ggml_extend|stable-diffusion\.cpp|sd-cli", "stable-diffusion.cpp"),
    (r"whisper", "whisper.cpp"),
)
_KV_CACHE = pattern(
    r"(?:buffer for kv cache | kv_cache_init\(?\)? failed | failed to (?:create|initialize) (?:the)?"
    r" (?:kv cache|memory module))"
)

_LAYERS = LazyFix("oom_ggml.layers", "flag", "-ngl %d")
_LENGTH = LazyFix(
    "oom_shared.context", "flag", "-c 4096", {"program": "llama.cpp (--ctx-size); Ollama: OLLAMA_CONTEXT_LENGTH"}
)
_CACHE = LazyFix("oom_shared.cache8", "flag", "-fa on -ctk q8_0 -ctv q8_0", when="oom_ggml.cache8.when")
_QUANTS = LazyFix("oom_ggml.quant", "flag", "-m model-Q4_K_M.gguf")
_SPLIT = LazyFix("oom_ggml.split", "flag", "--split-mode layer --tensor-split 1,1")
_BATCH = LazyFix("oom_ggml.batch", "flag", "-b 512 -ub 128")
_WHISPER_HOST = LazyFix("oom_ggml.whisper-host", "flag", "--no-gpu")
_OFFLOAD = LazyFix("oom_ggml.offload", "flag", "--offload-to-cpu --diffusion-fa")
_TO_HOST = (_WHISPER_HOST, _OFFLOAD)
# Remedies in programs whose options are not those of llama.cpp.
_OWN = {
    "whisper.cpp": (
        LazyFix("oom_ggml.whisper-model", "flag", "-m models/ggml-medium-q5_0.bin"),
        LazyFix("oom_ggml.whisper-beam", "flag", "--beam-size 1 --best-of 1"),
        _WHISPER_HOST,
    ),
    "stable-diffusion.cpp": (
        LazyFix("oom_ggml.tiles", "flag", "--vae-tiling"),
        _OFFLOAD,
        LazyFix("oom_ggml.picture", "flag", "-W 512 -H 512"),
    ),
}
_ONE_COPY = LazyFix("oom_ggml.one-copy", "flag", "cmake -B build -DGGML_SCHED_MAX_COPIES=1")
_SMALL_BUFFERS = LazyFix("oom_ggml.small-buffers", "env", "export GGML_VK_FORCE_MAX_ALLOCATION_SIZE=2147483648")
_PINNED_OFF = LazyFix("oom_ggml.unpinned", "env", "GGML_CUDA_NO_PINNED=1")
_WIRED = LazyFix("oom_shared.wired", "flag", "sudo sysctl iogpu.wired_limit_mb=24576")
_ULIMIT = LazyFix("oom_ggml.memlock", "flag", "ulimit -l unlimited")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    pieces = sorted(
        ((match, kind) for kind, part in _PARTS.items() for match in part.finditer(text.text)),
        key=lambda pair: (pair[0].start(), -pair[0].end()),
    )
    group: list[tuple[re.Match[str], str]] = []
    for match, kind in pieces:
        if group and match.start() < group[-1][0].end():
            continue
        if group and (match.start() - group[-1][0].end() > _REACH or not _continues(group, match, kind)):
            yield from _message(text, group)
            group = []
        group.append((match, kind))
    if group:
        yield from _message(text, group)
    yield from _others(text)


def _continues(group: list[tuple[re.Match[str], str]], match: re.Match[str], kind: str) -> bool:
    """Returns whether a line is about the preceding failure: the same size, but not the same words."""
    before, now = _fields(group), _fields([(match, kind)])
    one, other = number(before, "requested_bytes"), number(now, "requested_bytes")
    if one is not None and other is not None:
        return abs(one - other) <= MIB and kind not in {earlier for _match, earlier in group}
    return all(kind != earlier for _match, earlier in group) or kind in {"metal", "vulkan_error", "unable", "compute"}


def _fields(group: list[tuple[re.Match[str], str]]) -> Fields:
    fields: Fields = {}
    for match, _kind in group:
        given = take(match)
        for name, field in (
            ("requested_bytes", "requested_bytes"),
            ("mib_bytes", "requested_bytes"),
            ("device_index", "device_index"),
            ("limit_bytes", "limit_bytes"),
        ):
            if name in given:
                fields.setdefault(field, given[name])
    exact = next((take(match).get("bytes_bytes") for match, _kind in group if "bytes_bytes" in take(match)), None)
    if exact is not None:
        fields["requested_bytes"] = exact
    return fields


def _message(text: Squeezed, group: list[tuple[re.Match[str], str]]) -> Iterator[Found]:
    kinds = {kind for _match, kind in group}
    start, end = group[0][0].start(), group[-1][0].end()
    around = text.text[max(start - 1500, 0) : end + 500].lower()
    if kinds <= {"metal", "call", "unable", "compute", "vulkan_error"} and not re.search(
        r"ggml|llama|whisper|gguf", around
    ):
        return  # words of others: MLX and PyTorch print the same Metal error
    if kinds == {"cuda"} and "ggml" not in around and "llama" not in around:
        return
    names = {(match.groupdict().get("name") or match.groupdict().get("unable") or "").lower() for match, _kind in group}
    names.add(
        "cpu"
        if "buffer" in kinds and text.text[max(start - 50, 0) : start].lower().endswith("cpu_buffer_type_alloc_buffer:")
        else ""
    )
    backend = _backend(group, kinds, names)
    fields = _fields(group)
    device = next((name for name in names if re.fullmatch(r"(?:cuda|rocm|vulkan|sycl|cann|musa)\d+", name)), None)
    if device and "device_index" not in fields:
        fields["device_index"] = int(re.sub(r"\D", "", device))
    framework = next((name for words, name in _PROGRAMS if re.search(words, around)), "llama.cpp")
    kinds |= {"compute"} if _GRAPH in text.text[max(start - 50, 0) : end].lower() else set()
    names |= {"cache"} if _KV_CACHE.search(text.text, start, min(end + 200, len(text.text))) else set()
    judgement, fixes = _judge(fields, kinds, names, backend)
    if "compute" in kinds and _PIPELINED.search(text.text, max(start - _PIPELINED_REACH, 0), start):
        fixes = (_ONE_COPY, *fixes)
    retried = _RETRIED.search(text.text, end, end + _RETRIED_REACH)
    if retried:
        judgement = replace(judgement, reasons=(judgement.reasons[0], phrase("oom_ggml.why.retried")))
        fixes = (_ONE_COPY, _BATCH, _LENGTH)
    if framework in _OWN and judgement.verdict != "unknown":
        kept = tuple(fix for fix in fixes if fix in {_SMALL_BUFFERS, _WIRED, WATCH})
        own = tuple(fix for fix in _OWN[framework] if backend != "cpu" or fix not in _TO_HOST)
        fixes = (*kept, *own) if "vulkan_limit" in kinds else (*own, *kept)
    yield Found(start, end, "ggml", framework, backend, fields, judgement, fixes, is_warning=retried is not None)


def _backend(group: list[tuple[re.Match[str], str]], kinds: set[str], names: set[str]) -> str:
    joined = " ".join(names) + " " + " ".join(match[0].lower() for match, _kind in group)
    for words, backend in (
        ("metal|iogpu", "metal"),
        ("host|cpu|aligned_malloc", "cpu"),
        ("hip|rocm", "hip"),
        ("aclrt|cann", "npu"),
        ("sycl", "xpu"),
        ("vulkan|erroroutof|vk::", "vulkan"),
    ):
        if re.search(words, joined):
            return backend
    return "cpu" if "cpu" in kinds else "vulkan" if "vulkan_limit" in kinds else "cuda"


def _judge(fields: Fields, kinds: set[str], names: set[str], backend: str) -> tuple[Judgement, tuple[LazyFix, ...]]:
    requested = number(fields, "requested_bytes")
    size = shown(requested)
    if requested is not None and (requested == 0 or requested >= thresholds.GARBAGE):
        return Judgement("unknown", "high", (), (phrase("oom_shared.why.shape", size=size),)), (_QUANTS,)
    if backend == "cpu":
        why = phrase("oom_shared.why.host.size", size=size) if requested else phrase("oom_shared.why.host")
        return Judgement("host", "high", ("capacity",), (why,)), (_QUANTS, _LENGTH, WATCH)
    if "vulkan_limit" in kinds:
        limit = number(fields, "limit_bytes")
        why = phrase("oom_ggml.why.limit", size=size)
        if limit:
            why = phrase("oom_ggml.why.limit.size", size=size, limit=shown(limit))
        return Judgement("limit", "high", ("capacity",), (why,)), (_SMALL_BUFFERS, _BATCH, _LENGTH, _QUANTS)
    if backend == "metal":
        if requested is None:
            why = phrase("oom_ggml.why.metal.none")
            return Judgement("unknown", "medium", ("capacity", "limit"), (why,)), (_LENGTH, _QUANTS, _WIRED)
        return Judgement("capacity", "medium", ("limit", "unknown"), (phrase("oom_ggml.why.metal", size=size),)), (
            _QUANTS,
            _LENGTH,
            _WIRED,
        )
    order = _order(kinds, names)
    if requested is None:
        others: tuple[Cause, ...] = ("unknown", "other_process")
        why = phrase("oom_ggml.why.next")
        return Judgement("capacity", "low", others, (why,)), order
    level: Confidence = "medium"
    if requested < thresholds.SMALL_BUFFER:
        why = phrase("oom_ggml.why.full", size=size)
        return Judgement("capacity", "low", ("other_process", "unknown"), (why,)), order
    if requested >= thresholds.HUGE_BUFFER:
        level = "high"
    why = phrase("oom_ggml.why.buffer", size=size)
    return Judgement("capacity", level, ("other_process", "unknown"), (why,)), (*order, _SPLIT)


def _order(kinds: set[str], names: set[str]) -> tuple[LazyFix, ...]:
    """Returns remedies that shrink the failed buffer: the KV cache, the compute buffers, or the weights."""
    if "cache" in names:
        return _LENGTH, _CACHE, _layers(), _QUANTS
    if "compute" in kinds:
        return _BATCH, _LENGTH, _layers(), _QUANTS
    return _layers(), _QUANTS, _LENGTH, _CACHE


def _layers() -> LazyFix:
    return replace(_LAYERS, change=_LAYERS.change % 20)


def _others(text: Squeezed) -> Iterator[Found]:
    for match in _PINNED.finditer(text.text):
        fields = take(match)
        size = number(fields, "requested_bytes")
        why = phrase("oom_ggml.why.pinned", size=shown(size)) if size else phrase("oom_ggml.why.pinned.none")
        judgement = Judgement("host", "high", (), (why,))
        yield Found(
            match.start(),
            match.end(),
            "ggml",
            "llama.cpp",
            "vulkan" if "vulkan" in match[0].lower() else "cuda",
            fields,
            judgement,
            (_SMALL_BUFFERS if "vulkan" in match[0].lower() else _PINNED_OFF, WATCH),
            is_warning=True,
        )
    for match in _CONTEXT.finditer(text.text):
        fields = take(match)
        why = phrase(
            "oom_ggml.why.pool",
            free=shown(number(fields, "free_bytes")),
            needed=shown(number(fields, "requested_bytes")),
        )
        judgement = Judgement("limit", "medium", ("unknown", "capacity"), (why,))
        newer = LazyFix("oom_ggml.newer", "version")
        yield Found(match.start(), match.end(), "ggml", "llama.cpp", "cpu", fields, judgement, (newer, _LENGTH, _BATCH))
    for match in _LOCK.finditer(text.text):
        judgement = Judgement("limit", "high", ("host",), (phrase("oom_ggml.why.locked"),))
        yield Found(
            match.start(), match.end(), "ggml", "llama.cpp", "cpu", take(match), judgement, (_ULIMIT,), is_warning=True
        )
