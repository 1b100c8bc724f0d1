"""Kernels that need more on-chip memory than a core has: Triton, XLA's Triton kernels, and ptxas.

The limit is a fixed size of the chip (shared memory of a block, tensor memory of Blackwell), not device memory: batch
size and free memory make no difference. "Required" grows with block sizes times the number of pipeline stages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from memdiag.oom.dialects.parts import number
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase
from memdiag.units import KIB

FORMATS = ("triton_smem",)
ANCHORS = ("outofresource:", "sharedmemorysizelimitexceeded", "toomuchshareddata")
EXAMPLES = (
    (
        "triton_smem",
        (
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, "
            "Hardware limit: 101376. "
            "Reducing block sizes or `num_stages` may help."
        ),
    ),
)

_HEAD = pattern(
    r"out of resource: (?P<what>[\w ]{3,40}?) ,? Required:? {required:int} ,? Hardware limit(?:ation)?:? {limit:int}"
    r" (?:[.,]? Reducing (?:the)? block sizes? or [`']? num_stages [`']? may help)?"
)
_XLA = pattern(r"Shared memory size limit exceeded: requested {required:int} ,? available:? {limit:int}")
_PTXAS = pattern(r"uses too much shared data \( 0x(?P<required>[0-9a-f]{1,12}) bytes, 0x(?P<limit>[0-9a-f]{1,12}) max")
_HIP = re.compile(r"rocm|hip[_/.]|amdgpu|gfx\d", re.IGNORECASE)

_STAGES = LazyFix("oom_triton.stages", "code", "triton.Config({...}, num_stages=%d, num_warps=4)")
_BLOCKS = LazyFix("oom_triton.blocks", "code", "triton.Config({'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': 32}, ...)")
_INDUCTOR = LazyFix("oom_triton.inductor", "code", 'torch.compile(model)  # not mode="max-autotune"')
_PRUNE = LazyFix(
    "oom_triton.prune",
    "code",
    "@triton.autotune(configs, key, prune_configs_by={'early_config_prune': fits_shared_memory})",
)
_THREADS = LazyFix("oom_triton.threads", "code", "triton.Config({...}, num_warps=4)")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for head in (_HEAD, _XLA, _PTXAS):
        for match in head.finditer(text.text):
            yield _found(text, match)


def _found(text: Squeezed, match: re.Match[str]) -> Found:
    if match.re is _PTXAS:
        required, limit, what = int(match["required"], 16), int(match["limit"], 16), "sharedmemory"
    else:
        given = take(match)
        required, limit = number(given, "required") or 0, number(given, "limit") or 0
        what = match["what"].lower() if match.re is _HEAD else "sharedmemory"
        if what.startswith("triton_"):  # Inductor names the kernel there
            what = "sharedmemory"
    backend = "hip" if _HIP.search(text.text, max(match.start() - 2000, 0), match.end()) else "cuda"
    fields: Fields = {}
    if what in {"sharedmemory", "localdatashare"}:
        fields = {"requested_bytes": required, "limit_bytes": limit}
        times = required / limit if limit else 0
        why = phrase(
            "oom_triton.why.shared", required=f"{required / KIB:.1f}", limit=f"{limit / KIB:.1f}", times=f"{times:.2f}"
        )
        stages = replace(_STAGES, change=_STAGES.change % (1 if times > 1.5 else 2))
        fixes: tuple[LazyFix, ...] = (stages, _BLOCKS, _PRUNE, _INDUCTOR)
    else:
        name = {"tensormemory": "tensor memory"}.get(what, what)
        why = phrase("oom_triton.why.other", required=required, name=name, limit=limit)
        fixes = (_THREADS, _BLOCKS) if what in {"threads", "registers"} else (_BLOCKS, _PRUNE)
    reasons = (why, phrase("oom_triton.why.fixed"))
    return Found(
        match.start(),
        match.end(),
        "triton_smem",
        "triton",
        backend,
        fields,
        Judgement("limit", "high", (), reasons),
        fixes,
    )
