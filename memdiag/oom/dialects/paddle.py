"""PaddlePaddle, 1.0 to 3.x: its pools on CUDA, ROCm, XPU and NPU, and its CPU allocator.

Up to 1.6, Paddle requested a fraction of the device at once (FLAGS_fraction_of_gpu_memory_to_use, 92 %), and failed if
less was free. The message's own advice depends on the case: a higher fraction cannot help if the device itself is full.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.diagnosis import thresholds
from memdiag.oom.dialects.host_memory import FEWER_WORKERS, WATCH
from memdiag.oom.dialects.parts import gather, number, shown, stretches
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Confidence, Judgement
from memdiag.text import phrase

FORMATS = ("paddle",)
NAMES = {"paddle": "PaddlePaddle"}
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
            "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 2.000000GB memory on GPU 0, "
            "14.000000GB memory has been "
            "allocated and available memory is only 1.500000GB."
        ),
    ),
    ("paddle", "EnforceNotMet: enforce allocating <= available failed, 2048 > 1024"),
)

_PLACE = r"(?P<place>GPU|DCU|XPU|NPU|MLU|IPU|GCU|HPU|CPU|CUDAPinned|\w{2,12}?)"
_HEAD = pattern(
    rf"(?:ResourceExhaustedError: (?:\w{{1,20}} )?)?"
    rf" (?:Out of memory error on {_PLACE} (?:place)? [:(]? {{device_index:int}}"
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
    # Up to 1.8: the check failed with errno 12; the size comes before or after it.
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

_WHO = LazyFix("oom_shared.who", "flag", "nvidia-smi")
_GROW = LazyFix("oom_paddle.grow", "env", "export FLAGS_allocator_strategy=auto_growth")
_EAGER = LazyFix("oom_paddle.eager", "env", "export FLAGS_eager_delete_tensor_gb=0.0")
_HOST_BATCH = LazyFix("oom_paddle.host-batch", "code")
_BATCH = LazyFix(
    "oom_paddle.batch", "code", "strategy.gradient_merge = True; strategy.gradient_merge_configs = {'k_steps': 2}"
)
_RECOMPUTE = LazyFix(
    "remedies.recompute",
    "code",
    "x = paddle.distributed.fleet.utils.recompute(block, x)",
    when="oom_paddle.recompute.when",
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for head, stop in stretches(text, _HEAD, 600):
        given, end = gather(text, head.start(), stop, _CLAUSES)
        fields = take(head) | given
        place = (head["place"] or "gpu").lower()
        if head["place"] is None and "free_bytes" not in fields:
            continue  # "Cannot allocate …" of another program
        if place in {"cpu", "cudapinned"}:
            fields.pop("device_index", None)
        backend = _PLACES.get(place, "hip" if _HIP.search(text.text, head.start(), end) else "cuda")
        judgement = (
            Judgement("host", "high", (), (phrase("oom_shared.why.host"),)) if backend == "cpu" else _judge(fields)
        )
        fixes = _fixes(judgement.verdict, fields)
        yield Found(head.start(), max(end, head.end()), "paddle", "paddle", backend, fields, judgement, fixes)
    for form in (_ENFORCE, _MALLOC):
        for match in form.finditer(text.text):
            yield _fraction(match)
    for match in sorted(
        (match for form in _HOST for match in form.finditer(text.text)), key=lambda match: match.start()
    ):
        sizes = [value for value in take(match).values() if isinstance(value, int)]
        fields = {"requested_bytes": sizes[0]} if sizes else {}
        why = phrase("oom_shared.why.host.size", size=shown(sizes[0])) if sizes else phrase("oom_paddle.why.enomem")
        judgement = Judgement("host", "high", (), (why,))
        yield Found(
            match.start(),
            match.end(),
            "paddle",
            "paddle",
            "cpu",
            fields,
            judgement,
            (_HOST_BATCH, WATCH, FEWER_WORKERS),
        )
    for match in _BARE.finditer(text.text):
        judgement = Judgement("unknown", "low", ("capacity", "other_process"), (phrase("oom_shared.why.driver"),))
        yield Found(match.start(), match.end(), "paddle", "paddle", "cuda", {}, judgement, (_WHO, _BATCH))


def _fraction(match: re.Match[str]) -> Found:
    fields = take(match)
    requested, free = number(fields, "requested_bytes"), number(fields, "free_bytes")
    if requested is not None and requested >= thresholds.ABSURD:
        judgement = Judgement("unknown", "high", (), (phrase("oom_shared.why.shape", size=shown(requested)),))
        return Found(match.start(), match.end(), "paddle", "paddle", "cuda", fields, judgement, ())
    asked = phrase("oom_paddle.why.fraction", size=shown(requested))
    if free is not None:
        asked = phrase("oom_paddle.why.fraction.free", size=shown(requested), free=shown(free))
    why = (
        asked,
        phrase("oom_paddle.why.setting"),
    )
    fixes: tuple[LazyFix, ...] = (_GROW, _WHO)
    if requested and free:
        value = int(0.92 * free / requested * 95) / 100  # the part of the default 0.92 that fits, slightly reduced
        if value >= 0.01:
            line = f"export FLAGS_fraction_of_gpu_memory_to_use={value:.2f}"
            fixes = (_GROW, LazyFix("oom_paddle.fraction", "env", line), _WHO)
    return Found(
        match.start(),
        match.end(),
        "paddle",
        "paddle",
        "cuda",
        fields,
        Judgement("limit", "medium", ("other_process",), why),
        fixes,
    )


def _judge(fields: Fields) -> Judgement:
    requested, free, allocated = (number(fields, f"{name}_bytes") for name in ("requested", "free", "allocated"))
    verdict: Cause = "capacity"
    others: tuple[Cause, ...] = ("unknown", "other_process")
    level: Confidence = "low"
    if requested is None:
        return Judgement("unknown", "low", ("capacity", "other_process"), (phrase("oom_shared.why.no-size"),))
    if requested == 0 or requested >= thresholds.ABSURD:
        return Judgement("unknown", "high", (), (phrase("oom_shared.why.shape", size=shown(requested)),))
    reasons = [phrase("oom_paddle.why.request", size=shown(requested), free=shown(free))]
    if allocated is not None:
        reasons = [
            phrase("oom_paddle.why.allocated", allocated=shown(allocated), free=shown(free), size=shown(requested))
        ]
        is_little = allocated < thresholds.LITTLE_OWN and requested < thresholds.MODEST
        if free is not None and is_little and free + allocated < thresholds.LITTLE_LEFT:
            verdict, others = "other_process", ("capacity", "limit")
            reasons.append(phrase("oom_paddle.why.others", size=shown(free + allocated)))
        elif free is not None and free >= requested:
            others = ("unknown", "fragmentation")
            reasons.append(phrase("oom_paddle.why.pieces"))
        else:
            level = "medium"
    else:
        reasons.append(phrase("oom_paddle.why.own"))
        others = ("other_process", "unknown", "limit")
    return Judgement(verdict, level, others, tuple(reasons))


def _fixes(verdict: Cause, fields: Fields) -> tuple[LazyFix, ...]:
    if verdict == "host":
        return FEWER_WORKERS, WATCH
    if verdict == "unknown" and fields.get("requested_bytes"):
        return ()
    if verdict == "other_process":
        return _WHO, _GROW
    if "allocated_bytes" not in fields:  # without this process's own use, others may hold the memory
        return _WHO, _BATCH, _RECOMPUTE, _EAGER
    return _BATCH, _RECOMPUTE, _EAGER, _WHO
