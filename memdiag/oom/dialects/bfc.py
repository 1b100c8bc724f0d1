"""Lines of the best-fit allocator and the device layer that TensorFlow and JAX share, grouped by failure.

One failure is reported several times on its way up: by the driver ("failed to allocate 3.39G (3640655872 bytes) from
device"), the allocator ("Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.39GiB"), and the operator ("OOM
when allocating tensor with shape[…]", "Out of memory while trying to allocate 3640655872 bytes"). At process start, the
pool requests most of the device from the driver and, when refused, 10 % less, until it succeeds. All of these are one
failure as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from memdiag.oom.dialects.parts import product
from memdiag.oom.model import Fields
from memdiag.oom.squeezed import Squeezed, pattern, take

# Bytes of an element, longest names first: in squeezed text "float on" is "floaton".
DTYPES = {
    "complex128": 16,
    "complex64": 8,
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "double": 8,
    "float": 4,
    "half": 2,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "qint8": 1,
    "quint8": 1,
    "qint32": 4,
    "bool": 1,
    "string": 0,
    "resource": 0,
    "variant": 0,
}

ANCHORS = (
    "oomwhenallocating",
    "exhausted:outofmemoryallocating",
    "memorytryingtoallocate",
    "memorywhiletryingtoallocate",
    "bytes)fromdevice",
    "bytesonhost",
    "bytesfromdevice",
    "pinnedhostmemory",
    "ondeviceordinal",
    "triedtoallocate0bytes",
    "requesttoallocate0bytes",
    "eigenallocator",
    "freesystemmemory",
    "ofsystemmemory",
    "dsttensorisnotinitialized",
    "cuda_error_out_of_memory",
    "failedtoallocatememory[op",
    "bytesfornewconstant",
)

_EVENTS = {
    "driver": pattern(
        r"failed to alloc(?:ate)? (?:[\d.]{1,20}[KMGTP]?i?B?\()? {driver:int} bytes \)? (?:unified memory)?"
        r" (?P<place>from device|on host|from host)"
    ),
    "pinned": pattern(r"could not allocate pinned (?:host memory|memory on host) of size: {pinned:int}"),
    "request": pattern(
        r"Failed to allocate request for (?:{request_size:size}\()? {request:int}B(?:ytes)? \)? on device"
        r" ordinal {device_index:int}"
    ),
    "bfc": pattern(
        r"(?:Allocator \((?P<allocator>\w{1,60})\) )? ran out of memory trying to allocate {bfc:size}"
        r"(?: \(rounded to \d{1,18}\) )? (?: requested by op [\w/:.-]{0,200}? (?=with freed) )?"
        r" (?:with freed_by_count=\d+)?"
        r"\.? (?P<mild>(?:See logs)? The caller indicates that this is not a failure)?"
    ),
    "xla_cpu": pattern(r"exhausted: Out of memory allocating {on_cpu:int} bytes"),
    "xla": pattern(r"Out of (?:host)? memory (?:while)? trying to allocate {xla:size}"),
    "oom": pattern(
        r"OOM when allocating tensor"
        r" (?:(?:with|of) shape (?:{shape:shape} | (?P<dims>(?:dim\{size:\d{1,18}\}){0,12})))?"
        rf"(?: and type (?P<dtype>{'|'.join(DTYPES)}))? (?: on (?P<where>[\w/:@.-]{{1,120}}?) by allocator"
        rf" (?P<by>cpu|mklcpu|gpu_host_bfc|cuda_host_bfc|\w{{1,16}}_\d+_bfc|\w{{1,8}}Host_\d*_?bfc|\w{{1,12}}_bfc)?)?"
    ),
    "zero": pattern(
        r"(?:(?<!you)(?:tried|Request) to allocate {zero:int}(?<=allocate0) bytes | EigenAllocator for GPU ran out"
        r" of memory when allocating {eigen:int})"
    ),
    "share": pattern(r"Allocation of {share:int} exceeds (?P<percent>\d+)% of (?:free)? system memory"),
    "copy": pattern(r"Dst tensor is not initialized"),
    "context": pattern(
        r"(?:cuDevicePrimaryCtxRetain|retain (?:CUDA)? (?:primary)? context|cuCtxCreate|cuInit) :?"
        r" CUDA_ERROR_OUT_OF_MEMORY (?: : out of memory )? (?: ; total memory reported: {total:bytes} )?"
    ),
    "load": pattern(
        r"(?:Failed to load in-memory CUBIN | Failed to (?:capture|instantiate|launch|update)[^:]{0,60}graph |"
        r" Failed to load (?:PTX|HSACO)) [^:]{0,80} : (?:\w{1,40}:)? (?:CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory)"
    ),
    "operator": pattern(r"(?:device : GPU : {device_index:int} \}\} )? failed to allocate memory \[Op:"),
    "constant": pattern(r"Failed to allocate {constant:int} bytes for new constant"),
    "refused": pattern(
        r"(?<!from device:) RESOURCE_EXHAUSTED : (?:[\w ]{0,60} : )? (?:CUDA_ERROR_OUT_OF_MEMORY | hipErrorOutOfMemory)"
        r" (?: : out of memory )?"
    ),
}
_STATS = pattern(r"Limit: {limit:bytes} InUse: {allocated:bytes} MaxInUse")
_STATS_REACH = 700
_DEVICE = re.compile(r"(?:GPU|XPU|DML)[_:](\d{1,4})", re.IGNORECASE)
_PLUGGED = re.compile(r"device:(XPU|DML):", re.IGNORECASE)
_ORDINAL = re.compile(r"deviceordinal(\d{1,4})", re.IGNORECASE)
_DIMS = re.compile(r"size:(\d{1,18})")
_HIP = re.compile(r"hip_?error|rocm", re.IGNORECASE)
_JAX = re.compile(
    r"jax|xla_extension|xlaruntimeerror|external/xla/|external/org_tensorflow/|flax|pjrt_stream", re.IGNORECASE
)
_TENSORFLOW = re.compile(r"tensorflow|external/local_|resourceexhaustederror|keras|\[op:|internalerror", re.IGNORECASE)

_REACH = 20_000  # the allocator lists its chunks between two lines of one failure


@dataclass(slots=True)
class BfcFailure:
    """The printed facts about one failure.

    Attributes:
        start: Start in the squeezed text.
        end: End in the squeezed text.
        kinds: Kinds of its lines, in order.
        sizes: Bytes of each request, in order.
        fields: Printed values.
        on_host: Whether host memory was requested.
        mild: Whether the caller said that it is not a failure.
    """

    start: int
    end: int
    kinds: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    fields: Fields = field(default_factory=dict)
    on_host: bool = False
    mild: bool = False


def failures(text: Squeezed) -> Iterator[BfcFailure]:
    """Yields the failures in ``text``."""
    found = sorted(
        ((match, kind) for kind, head in _EVENTS.items() for match in head.finditer(text.text)),
        key=lambda pair: pair[0].start(),
    )
    current: BfcFailure | None = None
    for match, kind in found:
        failure = _read(match, kind)
        if current and match.start() < current.end:  # one line that two patterns match
            continue
        if current and match.start() - current.end < _REACH and _same(current, failure):
            _join(current, failure)
            continue
        if current:
            yield _with_stats(text, current, match.start())
        current = failure
    if current:
        yield _with_stats(text, current, len(text.text))


def speaker(text: Squeezed, failure: BfcFailure) -> str:
    """Returns "jax" or "tensorflow": by nearby words, else by the wording of these lines."""
    around = text.text[max(failure.start - 1500, 0) : failure.end + 1500]
    if _JAX.search(around):
        return "jax"
    if _TENSORFLOW.search(around):
        return "tensorflow"
    return "jax" if {"xla", "xla_cpu", "request", "load", "constant", "refused"} & set(failure.kinds) else "tensorflow"


def backend(text: Squeezed, failure: BfcFailure) -> str:
    """Returns "cuda", "hip", "xpu", "directml" or "cpu"."""
    if failure.on_host:
        return "cpu"
    plugged = _PLUGGED.search(text.text, failure.start, failure.end)
    if plugged:
        return "xpu" if plugged[1].lower() == "xpu" else "directml"
    return "hip" if _HIP.search(text.text, max(failure.start - 300, 0), failure.end + 200) else "cuda"


def _read(match: re.Match[str], kind: str) -> BfcFailure:
    given, fields = take(match), Fields()
    failure = BfcFailure(match.start(), match.end(), [kind], [], fields)
    for name in (
        "driver",
        "pinned",
        "request",
        "zero",
        "eigen",
        "share",
        "on_cpu",
        "constant",
        "bfc_bytes",
        "xla_bytes",
    ):
        value = given.get(name)
        if isinstance(value, int) and value < 1 << 60:
            fields["requested_bytes"] = value
            failure.sizes.append(value)
    for name in ("device_index", "total_bytes", "shape"):
        if name in given:
            fields[name] = given[name]
    names = match.groupdict()
    if kind == "oom":
        if names["dims"]:
            fields["shape"] = [int(size) for size in _DIMS.findall(names["dims"])]
        if names["dtype"]:
            fields["dtype"] = names["dtype"].lower()
            size = DTYPES[names["dtype"].lower()] * product(fields.get("shape"))
            if "shape" in fields and 0 < size < 1 << 60:
                fields["requested_bytes"] = size
                failure.sizes.append(size)
    where = f"{names.get('where') or ''} {names.get('by') or ''} {names.get('allocator') or ''}"
    device = _DEVICE.search(where)
    if device:
        fields["device_index"] = int(device[1])
    failure.on_host = (
        kind in {"pinned", "share", "xla_cpu"}
        or "host" in (names.get("place") or "").lower()
        or bool(re.search(r"cpu|host_", where, re.IGNORECASE))
    ) or "outofhostmemory" in match[0].lower()
    failure.mild = bool(names.get("mild")) or kind == "share"
    return failure


def _same(before: BfcFailure, now: BfcFailure) -> bool:
    """Returns whether a line is about the preceding failure."""
    last, kind = before.kinds[-1], now.kinds[0]
    if before.mild or now.mild or before.on_host != now.on_host:
        return False
    if last == kind == "zero" or (last in {"bfc", "oom"} and kind == "operator"):
        return True
    if not before.sizes or not now.sizes:
        return False
    if last == kind == "driver":
        return now.sizes[0] <= before.sizes[-1]
    close = abs(now.sizes[0] - before.sizes[0]) <= before.sizes[0] / 100
    return (
        close
        and (last, kind) not in {("xla", "xla"), ("oom", "oom"), ("request", "request"), ("bfc", "bfc")}
        and kind != "driver"
    )


def _join(before: BfcFailure, now: BfcFailure) -> None:
    exact = (
        {"requested_bytes": now.fields["requested_bytes"]}
        if before.kinds == ["bfc"] and "requested_bytes" in now.fields
        else {}
    )
    before.fields = {**now.fields, **before.fields, **exact}
    before.kinds += now.kinds
    before.sizes += now.sizes
    before.end = now.end


def _with_stats(text: Squeezed, failure: BfcFailure, stop: int) -> BfcFailure:
    """Adds facts from around a failure: the device before it, the state of the pool after it."""
    if "context" in failure.kinds:
        device = list(_ORDINAL.finditer(text.text, max(failure.start - 120, 0), failure.start))
        if device:
            failure.fields["device_index"] = int(device[-1][1])
    if "bfc" in failure.kinds and not failure.mild:
        match = _STATS.search(text.text, failure.start, min(stop, failure.end + _REACH))
        if match:
            failure.fields |= take(match)
            failure.end = max(failure.end, match.end())
    elif "oom" in failure.kinds and not failure.on_host:
        # the operator's line follows the pool's state, whose beginning is truncated
        before = list(_STATS.finditer(text.text, max(failure.start - _STATS_REACH, 0), failure.start))
        if before:
            failure.fields |= take(before[-1])
            failure.start = before[-1].start()
    return failure
