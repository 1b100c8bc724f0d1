"""MLX on Apple silicon (and CUDA): memory of the machine that CPU and GPU share.

One buffer cannot exceed the device's maximum buffer size, even if more memory is free. The error of Metal itself has no
sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.diagnosis import thresholds
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase

FORMATS = ("mlx",)
NAMES = {"mlx": "MLX"}
ANCHORS = ("malloc_or_wait]", "malloc]", "[metal]commandbuffer", "maximumallowedbuffersize")
EXAMPLES = (
    (
        "mlx",
        (
            "RuntimeError: [metal::malloc] Attempting to allocate 20000000000 bytes which is greater than the "
            "maximum allowed "
            "buffer size of 9534832640 bytes."
        ),
    ),
    (
        "mlx",
        (
            "libc++abi: terminating due to uncaught exception of type std::runtime_error: "
            "[malloc_or_wait] Unable to allocate "
            "1073741824 bytes."
        ),
    ),
)

_UNABLE = pattern(
    r"\[(?:(?:metal|cuda|allocator)::)?(?:malloc_or_wait|malloc)\] Unable to allocate {requested:bytes} bytes"
)
_BUFFER = pattern(
    r"(?:\[(?:\w{1,20}::)?malloc(?:_or_wait)?\])? Attempting to allocate {requested:bytes} bytes which is "
    r"greater than the"
    r" maximum allowed buffer size of {limit:bytes} bytes"
)
_RESOURCES = pattern(r"\[(?:metal|cuda)::malloc\] Resource limit \( \d{1,12} \) exceeded")
_COMMAND = pattern(
    r"\[METAL\] Command buffer execution failed: (?:Insufficient Memory | .{0,80}?OutOfMemory)"
    r" (?:\(0{0,7}8:kIOGPU\w{10,60}\))?"
)

_LIMITS = LazyFix("oom_mlx.limits", "code", "mx.set_cache_limit(2 << 30); print(mx.get_peak_memory() >> 20)")
_WIRED = LazyFix("oom_shared.wired", "flag", "sudo sysctl iogpu.wired_limit_mb=24576")
_SMALLER = LazyFix("oom_mlx.smaller", "flag", "mlx_lm.generate --max-kv-size 4096 ...")
_CHECKPOINT = LazyFix("oom_mlx.train", "flag", "mlx_lm.lora --batch-size 1 --num-layers 4 --grad-checkpoint")
_EVALUATE = LazyFix("oom_mlx.evaluate", "code", "mx.eval(loss, model.parameters(), optimizer.state)")
_PIECES = LazyFix("oom_mlx.chunks", "code", "for piece in mx.split(x, 8): mx.eval(f(piece))")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _UNABLE.finditer(text.text):
        fields = take(match)
        requested = number(fields, "requested_bytes") or 0
        if requested == 0 or requested >= thresholds.ABSURD:
            judgement = Judgement("unknown", "high", (), (phrase("oom_shared.why.shape", size=shown(requested)),))
            fixes: tuple[LazyFix, ...] = ()
        else:
            why = phrase("oom_mlx.why.used", size=shown(requested))
            judgement = Judgement("capacity", "medium", ("host", "unknown"), (why,))
            fixes = (_SMALLER, _CHECKPOINT, _LIMITS)
        backend = "cuda" if "cuda" in match[0].lower() else "metal"
        yield Found(match.start(), match.end(), "mlx", "mlx", backend, fields, judgement, fixes)
    for match in _BUFFER.finditer(text.text):
        fields = take(match)
        why = phrase(
            "oom_mlx.why.buffer",
            size=shown(number(fields, "requested_bytes")),
            limit=shown(number(fields, "limit_bytes")),
        )
        yield Found(
            match.start(),
            match.end(),
            "mlx",
            "mlx",
            "metal",
            fields,
            Judgement("limit", "high", ("capacity",), (why,)),
            (_PIECES, _SMALLER),
        )
    for match in _RESOURCES.finditer(text.text):
        why = phrase("oom_mlx.why.count")
        judgement = Judgement("limit", "high", (), (why,))
        yield Found(match.start(), match.end(), "mlx", "mlx", "metal", {}, judgement, (_EVALUATE, _LIMITS))
    for match in _COMMAND.finditer(text.text):
        why = phrase("oom_mlx.why.metal")
        judgement = Judgement("capacity", "low", ("unknown", "limit"), (why,))
        yield Found(
            match.start(), match.end(), "mlx", "mlx", "metal", {}, judgement, (_SMALLER, _CHECKPOINT, _WIRED, _LIMITS)
        )
