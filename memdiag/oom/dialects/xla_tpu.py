"""XLA on TPUs: the compiler knows before the start whether a program fits, and prints how much is missing.

Sizes are powers of 1024 ("21.95G"). hbm is the device's memory; vmem and smem are the small memories of a core, for
kernels and fusions, where smaller blocks help, but not a smaller batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.oom.dialects.parts import gather, number, shown
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Confidence, Judgement
from memdiag.text import phrase

FORMATS = ("xla_tpu",)
ANCHORS = (
    "inmemoryspace",
    "scopedvmem",
    "thatwasnotpossible",
    "exceededhbmcapacity",
    "compile-timeoom",
    "compiletimehbmoom",
)
WORDS = ("scoped vmem",)
EXAMPLES = (
    (
        "xla_tpu",
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
            "Used 20.00G of 15.48G hbm. "
            "Exceeded hbm capacity by 4.52G."
        ),
    ),
    (
        "xla_tpu",
        (
            "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 4.00G. "
            "That was not possible. There are "
            "1.49G free.; (0x0x0_HBM0)"
        ),
    ),
)

_SPACE = pattern(
    r"Ran out of memory in memory space (?P<space>hbm|vmem|smem|cmem|sflag|host)"
    r" (?:while allocating on stack[^.]{0,400})?"
)
_USED = pattern(r"Used {requested:size} of {total:size}")
_EXCEEDED = pattern(r"Exceeded \w{3,8}? capacity by [\d.]{1,12}[KMGT]?B?")
_TOTAL_USAGE = pattern(r"Total \w{3,8}? usage >= [\d.]{1,12}[KMGT]?")
_SCOPED = (
    pattern(
        r"Scoped allocation with size {requested:size} and limit {limit:size} exceeded scoped "
        r"(?P<space>vmem|smem) limit"
    ),
    pattern(
        r"Scoped allocation with size {requested:size} exceeds the scoped (?P<space>vmem|smem) limit of {limit:size}"
    ),
    pattern(r"Insufficient scoped (?P<space>vmem|smem) : {requested:size} > {limit:size}"),  # Mosaic's, for kernels
)
_PARTS = pattern(r"(?P<part>reserved|program|arguments|global) {size:size} (?!of)")
_RUNTIME = pattern(
    r"(?:Error (?:allocating device buffer|loading program[^:]{0,120}):)? Attempting to (?P<act>allocate|reserve)"
    r" {requested:size} (?:at the bottom of memory)?\."
    r" That was not possible\. (?: There are {free:size} free )?"
)
# The account that older runtimes print below it.
_CAPACITY = pattern(r"HBM capacity {total:size}")
_ALLOCATED = pattern(r"Currently allocated : [\d.]{1,12}[KMGT]?B? \( {allocated:size} \)")

_BATCH = LazyFix("oom_tpu.batch", "code", "grads = jax.lax.scan(accumulate, zeros, microbatches)")
_REMAT = LazyFix(
    "remedies.recompute",
    "code",
    "loss = jax.checkpoint(loss_fn, policy=jax.checkpoint_policies.nothing_saveable)",
    when="oom_shared.training",
)
_DONATE = LazyFix("oom_shared.donate", "code", "step = jax.jit(step, donate_argnums=(0,))")
_SHARD = LazyFix("oom_tpu.shard", "code", 'jax.device_put(params, NamedSharding(mesh, PartitionSpec("fsdp")))')
_BLOCKS = LazyFix("oom_tpu.blocks", "code", "pl.BlockSpec((block_rows // 2, block_columns), index_map)")
_VMEM = LazyFix("oom_tpu.vmem", "env", 'export LIBTPU_INIT_ARGS="--xla_tpu_scoped_vmem_limit_kib=65536"')
_RELEASE = LazyFix("oom_tpu.release", "code", "for array in jax.live_arrays(): print(array.shape, array.nbytes)")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    heads = sorted(
        (match for head in (_SPACE, *_SCOPED, _RUNTIME) for match in head.finditer(text.text)),
        key=lambda match: match.start(),
    )
    for match, following in zip(heads, [*heads, None][1:], strict=True):
        stop = min(following.start() if following else len(text.text), match.end() + 800)
        if match.re is _RUNTIME:
            yield _runtime(match, gather(text, match.end(), stop, (_CAPACITY, _ALLOCATED)))
        elif match.re in _SCOPED:
            yield _small(match, take(match), match.end(), match["space"].lower())
        else:
            fields, end = gather(text, match.end(), stop, (_USED,))
            _, end_of_words = gather(text, end, stop, (_EXCEEDED, _TOTAL_USAGE))
            space = match["space"].lower()
            if space != "hbm" and following and following.re in _SCOPED and following.start() == stop:
                continue  # the next sentence has the numbers
            parts = _parts(text, end_of_words, stop)
            yield (
                _hbm(match, fields, end_of_words, parts)
                if space == "hbm"
                else _small(match, fields, end_of_words, space)
            )


def _parts(text: Squeezed, start: int, stop: int) -> str:
    """Returns the parts that the compiler counts, in words: "10.90 GiB program, 8.02 GiB arguments", or ""."""
    found: dict[str, int | None] = {}
    for match in _PARTS.finditer(text.text, start, min(stop, start + 200)):
        found.setdefault(match["part"].lower(), number(take(match), "size_bytes"))
    return ", ".join(f"{shown(size)} {name}" for name, size in found.items())


def _hbm(match: re.Match[str], fields: Fields, end: int, parts: str) -> Found:
    used, total = number(fields, "requested_bytes"), number(fields, "total_bytes")
    reasons = [phrase("oom_tpu.why.fit")]
    if used is not None and total is not None:
        reasons = [phrase("oom_tpu.why.needs", used=shown(used), total=shown(total), over=shown(used - total))]
    if parts:
        reasons.append(phrase("oom_tpu.why.parts", parts=parts))
    return _found(match.start(), end, fields, "capacity", "high", (), tuple(reasons), (_REMAT, _DONATE, _BATCH, _SHARD))


def _small(match: re.Match[str], fields: Fields, end: int, space: str) -> Found:
    used, limit = number(fields, "requested_bytes"), number(fields, "limit_bytes") or number(fields, "total_bytes")
    sized = used is not None and bool(limit)
    amounts = {"used": shown(used), "limit": shown(limit)}
    if space == "host":
        why = phrase("oom_tpu.why.host.size", **amounts) if sized else phrase("oom_tpu.why.host")
        return _found(match.start(), end, fields, "host", "high", (), (why,), (_BATCH,))
    why = (
        phrase("oom_tpu.why.small.size", space=space, **amounts) if sized else phrase("oom_tpu.why.small", space=space)
    )
    return _found(match.start(), end, fields, "limit", "high", ("capacity",), (why,), (_BLOCKS, _VMEM))


def _runtime(match: re.Match[str], account: tuple[Fields, int]) -> Found:
    fields, end = {**take(match), **account[0]}, max(match.end(), account[1])
    requested, free = number(fields, "requested_bytes"), number(fields, "free_bytes")
    verdict: Cause = "capacity"
    others: tuple[Cause, ...] = ("other_process", "unknown")
    why = phrase("oom_tpu.why.no-room", size=shown(requested))
    if free is not None:
        why = phrase("oom_tpu.why.left", size=shown(requested), free=shown(free))
    if requested is not None and free is not None and free >= requested:
        verdict, others = "fragmentation", ("capacity",)
        why = phrase("oom_tpu.why.pieces", free=shown(free), size=shown(requested))
    return _found(match.start(), end, fields, verdict, "medium", others, (why,), (_DONATE, _RELEASE, _REMAT, _SHARD))


def _found(
    start: int,
    end: int,
    fields: Fields,
    verdict: Cause,
    level: Confidence,
    others: tuple[Cause, ...],
    why: tuple[str, ...],
    fixes: tuple[LazyFix, ...],
) -> Found:
    return Found(start, end, "xla_tpu", "xla", "tpu", fields, Judgement(verdict, level, others, why), fixes)
