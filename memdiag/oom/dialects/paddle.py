"""PaddlePaddle, 1.0 to 3.x: its pools on CUDA, ROCm, XPU and NPU, and its CPU allocator.

Up to 1.6 Paddle asked at once for a fraction of the card (FLAGS_fraction_of_gpu_memory_to_use, 92 %), and failed where less was free.
The message's own advice depends on which it is: a higher fraction cannot help where the card itself is full.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.findings import Fix
from memdiag.oom.dialects.host_memory import FEWER_WORKERS, WATCH
from memdiag.oom.dialects.parts import ABSURD, gather, number, shown, stretches
from memdiag.oom.model import Cause, Confidence, Fields, Found, Judgement
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.units import GIB

FORMATS = ("paddle",)
ANCHORS = (
    "outofmemoryerroron",
    "allocating<=available",
    "pleaseshrinkflags",
    "memorypleaseshrink",
    "cannotmalloc",
    "failtoallocmemory",
    "cudaerror(2)",
    "cannotallocate",
    "posix_memalign(&",
)
EXAMPLES = (
    (
        "paddle",
        (
            "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 2.000000GB memory on GPU 0, 14.000000GB memory has been "
            "allocated and available memory is only 1.500000GB."
        ),
    ),
    ("paddle", "EnforceNotMet: enforce allocating <= available failed, 2048 > 1024"),
)

_PLACE = r"(?P<place>GPU|DCU|XPU|NPU|MLU|IPU|GCU|HPU|CPU|CUDAPinned|\w{2,12}?)"
_HEAD = pattern(
    rf"(?:ResourceExhaustedError: (?:\w{{1,20}} )?)? (?:Out of memory error on {_PLACE} (?:place)? [:(]? {{device_index:int}}"
    rf" \)? (?:\.? Cannot allocate)?"
    r" | (?<!size:)(?<!GB)(?<!MB) Cannot allocate (?={requested:size} (?:GPU memory|memory on) ))"
)
_CLAUSES = (
    pattern(r"Cannot allocate {requested:size}"),
    pattern(r"{allocated:size} memory has been allocated"),
    pattern(r"available memory is (?:only)? {free:size}"),
)
_ENFORCE = pattern(
    r"allocating <= available (?: failed ,? |, but received) (?:allocating:)? {requested:bytes} (?:> (?:available:)? |"
    r" available:) {free:bytes}"
)
_MALLOC = pattern(r"Cannot malloc {requested:size} (?:GPU)? memory\. (?:Please shrink FLAGS)?")
_HOST = (
    pattern(r"Fail to alloc memory of {requested:bytes} size (?: , error code is \d+ )?"),
    # Up to 1.8: the check failed with errno 12; the size stands before or behind it.
    pattern(
        r"(?: Alloc {before:bytes} error ! (?: at [\w/.\[\](): -]{0,120}? )? \[? (?:Hint:)? )?"
        r" Expected posix_memalign\( &p, alignment, size \) == 0 , but received posix_memalign\( [^)]{1,40} \)"
        r" :? 12 != 0 (?::0)? \.? (?: \]? Alloc {behind:bytes} error ! )?"
    ),
    pattern(r"Check failed: posix_memalign\( &ptr, \d{1,6} ul, size \) == 0 \( 12 vs\. 0 \)"),
)
_BARE = pattern(r"(?:\( ?External ?\))? CUDA error ?\(2\) ,? out of memory \.?")
_PLACES = {"xpu": "xpu", "npu": "npu", "dcu": "hip", "hpu": "hpu", "cpu": "cpu", "cudapinned": "cpu"}
_HIP = re.compile(r"\bhip|rocm", re.IGNORECASE)

_WHO = Fix(
    "See who else holds memory on the card",
    "flag",
    "nvidia-smi",
    "before the program starts",
    "in a container, other containers' processes are not listed",
)
_GROW = Fix(
    "Let the pool grow as it is needed",
    "env",
    "export FLAGS_allocator_strategy=auto_growth",
    "Paddle >= 1.6 (the default since 2.0)",
    "the need stays the same; FLAGS_fraction_of_gpu_memory_to_use has no effect then",
)
_EAGER = Fix("Return freed tensors at once", "env", "export FLAGS_eager_delete_tensor_gb=0.0", "static graphs", "a little slower")
_HOST_BATCH = Fix(
    "Use a smaller batch or smaller inputs: one tensor in the host's memory was refused",
    "code",
    "",
    "Paddle on CPUs; PaddleOCR: --rec_batch_num 1 --det_limit_side_len 736",
    "",
)
_BATCH = Fix(
    "Halve the batch and accumulate gradients",
    "code",
    "strategy.gradient_merge = True; strategy.gradient_merge_configs = {'k_steps': 2}",
    "fleet; elsewhere loss.backward() twice for each optimizer.step()",
    "batch normalisation sees the smaller batch",
)
_RECOMPUTE = Fix(
    "Recompute activations instead of keeping them",
    "code",
    "x = paddle.distributed.fleet.utils.recompute(block, x)",
    "training with Paddle >= 2.1",
    "about a third more arithmetic",
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for head, stop in stretches(text, _HEAD, 600):
        given, end = gather(text, head.start(), stop, _CLAUSES)
        fields = take(head) | given
        place = (head["place"] or "gpu").lower()
        if head["place"] is None and "free_bytes" not in fields:
            continue  # "Cannot allocate …" of somebody else
        if place in {"cpu", "cudapinned"}:
            fields.pop("device_index", None)
        backend = _PLACES.get(place, "hip" if _HIP.search(text.text, head.start(), end) else "cuda")
        judgement = Judgement("host", "high", (), ("memory of the host was refused",)) if backend == "cpu" else _judge(fields)
        fixes = _fixes(judgement.verdict, fields)
        yield Found(head.start(), max(end, head.end()), "paddle", "paddle", backend, fields, judgement, fixes)
    for form in (_ENFORCE, _MALLOC):
        for match in form.finditer(text.text):
            yield _fraction(match)
    for match in sorted((match for form in _HOST for match in form.finditer(text.text)), key=lambda match: match.start()):
        sizes = [value for value in take(match).values() if isinstance(value, int)]
        fields = {"requested_bytes": sizes[0]} if sizes else {}
        why = f"{shown(sizes[0])} of host memory refused" if sizes else "host memory was refused (posix_memalign returned ENOMEM)"
        judgement = Judgement("host", "high", (), (why,))
        yield Found(match.start(), match.end(), "paddle", "paddle", "cpu", fields, judgement, (_HOST_BATCH, WATCH, FEWER_WORKERS))
    for match in _BARE.finditer(text.text):
        judgement = Judgement("unknown", "low", ("capacity", "other_process"), ("no number is printed",))
        yield Found(match.start(), match.end(), "paddle", "paddle", "cuda", {}, judgement, (_WHO, _BATCH))


def _fraction(match: re.Match[str]) -> Found:
    fields = take(match)
    requested, free = number(fields, "requested_bytes"), number(fields, "free_bytes")
    if requested is not None and requested >= ABSURD:
        judgement = Judgement("unknown", "high", (), (f"{shown(requested)} is more than any card has: a garbage size",))
        return Found(match.start(), match.end(), "paddle", "paddle", "cuda", fields, judgement, ())
    left = f", {shown(free)} was free" if free is not None else ""
    why = (
        f"Paddle asked for {shown(requested)} in one piece, its fraction of the card{left}",
        "it is a setting, not what the model needs; why so little was free is not printed",
    )
    fixes: tuple[Fix, ...] = (_GROW, _WHO)
    if requested and free:
        value = int(0.92 * free / requested * 95) / 100  # what fits of the usual 0.92, and a little less
        if value >= 0.01:
            title = "Or, without auto_growth, ask for a fraction that fits into what is free"
            caveat = "computed from the default of 0.92: scale your own value by the same factor"
            fixes = (_GROW, Fix(title, "env", f"export FLAGS_fraction_of_gpu_memory_to_use={value:.2f}", "Paddle", caveat), _WHO)
    return Found(
        match.start(), match.end(), "paddle", "paddle", "cuda", fields, Judgement("limit", "medium", ("other_process",), why), fixes
    )


def _judge(fields: Fields) -> Judgement:
    requested, free, allocated = (number(fields, f"{name}_bytes") for name in ("requested", "free", "allocated"))
    verdict: Cause = "capacity"
    others: tuple[Cause, ...] = ("unknown", "other_process")
    level: Confidence = "low"
    if requested is None:
        return Judgement("unknown", "low", ("capacity", "other_process"), ("the size asked for is not printed",))
    if requested == 0 or requested >= ABSURD:
        return Judgement("unknown", "high", (), (f"{shown(requested)} were asked for: a wrong shape, no lack of memory",))
    reasons = [f"{shown(requested)} asked for, {shown(free)} available on the card"]
    if allocated is not None:
        reasons = [f"{shown(allocated)} allocated here, {shown(free)} available, {shown(requested)} asked for"]
        if free is not None and allocated < 2 * GIB and free + allocated < 4 * GIB and requested < 8 * GIB:
            verdict, others = "other_process", ("capacity", "limit")
            reasons.append(f"both together are {shown(free + allocated)}, less than any card of today has: others hold the rest")
        elif free is not None and free >= requested:
            others = ("unknown", "fragmentation")
            reasons.append("more was available than asked for: the pool grows by larger pieces, or not in one piece")
        else:
            level = "medium"
    else:
        reasons.append("what this process holds itself is not printed: look for others on the card first")
        others = ("other_process", "unknown", "limit")
    return Judgement(verdict, level, others, tuple(reasons))


def _fixes(verdict: Cause, fields: Fields) -> tuple[Fix, ...]:
    if verdict == "host":
        return FEWER_WORKERS, WATCH
    if verdict == "unknown" and fields.get("requested_bytes"):
        return ()
    if verdict == "other_process":
        return _WHO, _GROW
    return _BATCH, _RECOMPUTE, _EAGER, _WHO
