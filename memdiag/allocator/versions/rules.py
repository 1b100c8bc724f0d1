"""Differences of the allocators between versions, as data: each row replaces a few of the rules before it.

No other module of the allocator checks a version. Settings that a version does not have are refused by their own tables
(``memdiag.settings``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from memdiag.settings.model import Version, parse_version
from memdiag.sizes import npu

# Orders of free blocks of equal size.
BY_ADDRESS, BY_BIRTH, BY_SEGMENT = "address", "birth", "segment"


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of one version of one backend.

    Attributes:
        pad: Bytes added to each request before it is rounded.
        ties: Which of two equal free blocks is used: the one at the lower address; the one whose block was made first;
            or the one whose segment was made first, then the lower address.
        whole_fraction_is_limit: A memory fraction of 1 is a limit; otherwise there is no limit and no garbage
            collection.
        capacity_is_asked: A memory fraction refers to the device memory when it is set; otherwise to the device memory
            at the start.
        outermost_scope: If several open private-pool scopes match a stream, the first one opened applies; otherwise the
            last one.
        scope_is_capture: While a private-pool scope is open, the allocator assumes a graph capture: it polls no events,
            defers frees that need one, and does not release cached memory to retry.
        capture_uses_count: A block that a capture recorded on a stream and freed waits for that stream after the
            capture; otherwise it does not, because the graph orders that work.
        reuse_needs_capture: With graph_capture_record_stream_reuse, a private-pool scope without a graph capture fails
            an assertion when the allocator looks for reusable blocks.
        scope_end_frees: With that setting, closing a private pool's scope frees the blocks that were freed in it.
        expandable_is_collected: Garbage collection and the release of oversize blocks treat expandable segments as
            ordinary ones, and then fail an assertion.
        one_division_is_exact: Requests for which roundup_power2_divisions is 1 are not rounded at all; otherwise they
            are rounded as without the setting.
        rounding_follows_segment: The default of max_non_split_rounding_mb is large_segment_size_mb; otherwise 20.
        private_is_expandable: Private pools use expandable segments if the setting is on; otherwise they always use
            ordinary segments.
        use_on_oom_last: Private pools that lend to the default pool are tried after all else failed, even if they were
            released; otherwise they are tried before any cached memory is released.
        use_on_oom_expandable: Private pools also lend from expandable segments.
        own_stream_counts: A block recorded on the stream that allocated it waits for that stream.
    """

    pad: int = 0
    ties: str = BY_ADDRESS
    whole_fraction_is_limit: bool = False
    capacity_is_asked: bool = False
    outermost_scope: bool = False
    scope_is_capture: bool = False
    capture_uses_count: bool = False
    reuse_needs_capture: bool = False
    scope_end_frees: bool = False
    expandable_is_collected: bool = False
    one_division_is_exact: bool = False
    rounding_follows_segment: bool = True
    private_is_expandable: bool = True
    use_on_oom_last: bool = False
    use_on_oom_expandable: bool = False
    own_stream_counts: bool = False


_CUDA_2_0 = Rules(
    whole_fraction_is_limit=True,
    capacity_is_asked=True,
    outermost_scope=True,
    scope_is_capture=True,
    capture_uses_count=True,
    expandable_is_collected=True,
    one_division_is_exact=True,
    private_is_expandable=False,
    use_on_oom_last=True,
    use_on_oom_expandable=True,
)
_CUDA_2_4 = replace(_CUDA_2_0, one_division_is_exact=False, capture_uses_count=False)
_CUDA_2_5 = replace(_CUDA_2_4, private_is_expandable=True)
_CUDA_2_6 = replace(_CUDA_2_5, expandable_is_collected=False)
_CUDA_2_9 = replace(_CUDA_2_6, reuse_needs_capture=True)
_CUDA_2_10 = replace(
    _CUDA_2_6,
    whole_fraction_is_limit=False,
    capacity_is_asked=False,
    outermost_scope=False,
    use_on_oom_expandable=False,
)
_CUDA_2_11 = replace(_CUDA_2_10, use_on_oom_last=False)
_CUDA_2_12 = replace(_CUDA_2_11, ties=BY_BIRTH, scope_end_frees=True)
_CUDA_2_13 = replace(_CUDA_2_12, ties=BY_SEGMENT, scope_is_capture=False)
_NPU_2_1 = Rules(pad=npu.PAD, own_stream_counts=True)

RULES: dict[str, tuple[tuple[Version, Rules], ...]] = {
    "cuda": (
        ((2, 0), _CUDA_2_0),
        ((2, 4), _CUDA_2_4),
        ((2, 5), _CUDA_2_5),
        ((2, 6), _CUDA_2_6),
        ((2, 9), _CUDA_2_9),
        ((2, 10), _CUDA_2_10),
        ((2, 11), _CUDA_2_11),
        ((2, 12), _CUDA_2_12),
        ((2, 13), _CUDA_2_13),
    ),
    "npu": (((2, 1), _NPU_2_1),),
    "mindspeed": (((1, 11), Rules(whole_fraction_is_limit=True)),),
}
DEFAULT_VERSION: Version = (2, 13)
LAST_VERIFIED: Version = (2, 15)  # the newest version with recordings that the model reproduces (tests/goldens)


def rules_for(backend: str, version: str) -> Rules:
    """Returns the rules of ``backend`` ("cuda", "npu") in ``version`` ("2.6", "2.6.0+cu124").

    For an older version than all known ones, these are the rules of the oldest.
    """
    table = RULES[backend]
    wanted = parse_version(version) or DEFAULT_VERSION
    found = table[0][1]
    for since, rules in table:
        if since <= wanted:
            found = rules
    return found
