"""vLLM's check before it starts: whether gpu_memory_utilization of the device is free.

The fraction refers to the whole device, so the memory of other processes counts against it. Later releases name the
device. During profiling, vLLM also stops if memory of other processes grows or shrinks.
"""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.diagnosis import thresholds
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, size_of, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Judgement
from memdiag.text import phrase

FORMATS = ("vllm_startup_free",)
ANCHORS = ("freememoryondevice", "desiredgpumemory", "errorinmemoryprofiling")
EXAMPLES = (
    (
        "vllm_startup_free",
        (
            "ValueError: Free memory on device cuda:0 (31.00/47.00 GiB) on startup is less than desired GPU memory "
            "utilization "
            "(0.9, 42.30 GiB). "
            "Decrease GPU memory utilization or reduce GPU memory used by other processes."
        ),
    ),
)

_NUMBER = r"\d{1,9}(?:[.,]\d{1,4})?"
_HEAD = pattern(
    rf"Free memory on device (?: (?P<device>cuda|npu|xpu|hip|hpu):? {{device_index:int}} | (?:cuda|npu|xpu|hpu))? \(?"
    rf" (?P<free>{_NUMBER}) (?P<own>[KMGT]i?B)? / (?P<total>{_NUMBER})"
    r" (?P<unit>[KMGT]i?B) \)? (?:on startup)? is less than (?:the)? desired GPU memory utilization"
    r" (?: \( {utilization:float}"
    r" (?: , {requested:size} )? \)? )?"
    r" (?: \.? Decrease GPU memory utilization or reduce GPU memory used by other processes)?"
)
_PROFILING = pattern(
    r"Error in memory profiling\. Initial (?P<what>free|used) memory (?P<before>\d[\d.]{0,20}(?:[KMGT]i?B)?) ,? "
    r"current(?:ly)?"
    r" (?:free|used) memory (?P<after>\d[\d.]{0,20}(?:[KMGT]i?B)?)"
)

_WHO = LazyFix("oom_vllm.end", "flag", "nvidia-smi --query-compute-apps=pid,used_memory --format=csv")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _HEAD.finditer(text.text):
        fields = take(match)
        fields["free_bytes"] = size_of(match["free"] + (match["own"] or match["unit"]))
        fields["total_bytes"] = size_of(match["total"] + match["unit"])
        backend = (match["device"] or "cuda").lower()
        judgement, fixes = _judge(
            found_free=number(fields, "free_bytes") or 0,
            total=number(fields, "total_bytes") or 0,
            wanted=number(fields, "requested_bytes"),
        )
        yield Found(match.start(), match.end(), "vllm_startup_free", "vllm", backend, fields, judgement, fixes)
    for match in _PROFILING.finditer(text.text):
        why = phrase("oom_vllm.why.changed", what=match["what"], before=match["before"], after=match["after"])
        judgement = Judgement("other_process", "high", ("unknown",), (why, phrase("oom_vllm.why.quiet")))
        yield Found(match.start(), match.end(), "vllm_startup_free", "vllm", "cuda", {}, judgement, (_WHO,))


def _judge(found_free: int, total: int, wanted: int | None) -> tuple[Judgement, tuple[LazyFix, ...]]:
    taken = total - found_free
    share = taken / total if total else 0.0
    reasons = [phrase("oom_vllm.why.taken", taken=shown(taken), total=shown(total), share=f"{share:.0%}")]
    if wanted is not None:
        reasons.append(
            phrase(
                "oom_vllm.why.wanted",
                wanted=shown(wanted),
                free=shown(found_free),
                short=shown(max(wanted - found_free, 0)),
            )
        )
    verdict: Cause = "other_process" if share > thresholds.FEW_OUTSIDE else "limit"
    others: tuple[Cause, ...] = ("limit",) if verdict == "other_process" else ("other_process",)
    fits = int(found_free / total * 100) if total else 0
    if fits and found_free / total * 100 - fits < 0.2:
        fits -= 1  # in some releases, vLLM's own context is created before the check
    less = LazyFix("oom_vllm.free", "flag", f"--gpu-memory-utilization {fits / 100:.2f}")
    if verdict == "other_process":
        fixes: tuple[LazyFix, ...] = (_WHO, less) if fits > 0 else (_WHO,)
    else:
        fixes = (less, _WHO)
    is_sure = share > thresholds.SURELY_OTHERS or share < thresholds.SURELY_ALONE
    return Judgement(verdict, "high" if is_sure else "medium", others, tuple(reasons)), fixes
