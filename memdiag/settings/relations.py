"""Settings beside each other: which exclude each other, and which have no effect for want of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from memdiag.settings.model import Version
from memdiag.settings.npu_keys import EXCLUDED_BY_EXPANDABLE, NEEDS_EXPANDABLE
from memdiag.settings.parsers import Value
from memdiag.settings.problem import Clash
from memdiag.settings.tables import known

_UNLIMITED_MIB = 1 << 40
_IGNORED_BY_ASYNC = (
    "max_split_size_mb", "max_non_split_rounding_mb", "large_segment_size_mb", "roundup_power2_divisions", "garbage_collection_threshold",
    "expandable_segments", "throw_on_cudamalloc_oom", "graph_capture_record_stream_reuse", "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
)  # fmt: skip
_GIGABYTE_PAGES = ("segment_size_mb", "large_segment_size_mb")


@dataclass(frozen=True, slots=True)
class Scene:
    """What the settings are for.

    Attributes:
        backend: "cuda", "hip", "npu" or "mindspeed".
        version: Version that is looked at.
        platform: "linux", "windows" or "" (not said).
        is_given: Whether the version was said, or is only the newest one known.
    """

    backend: str
    version: Version
    platform: str = ""
    is_given: bool = False


def relations(values: Mapping[str, Value], scene: Scene) -> Iterator[Clash]:
    """Yields MD654, MD655 and MD656 for ``values`` (as the parser read them)."""
    expandable = values.get("expandable_segments") is True
    if scene.backend == "mindspeed":
        yield from _mindspeed(values)
        return
    if str(values.get("backend", "native")).endswith("MallocAsync"):
        yield from _async(values)
        return
    if expandable:
        yield from _platform(scene)
        yield from _beside_expandable(values, scene)
    else:
        yield from _without_expandable(values, scene)
    if values.get("page_size") != "1g":
        yield from _deprecated(values, scene, expandable=expandable)
    yield from _collection(values, scene, expandable=expandable)
    yield from _splits(values, scene, expandable=expandable)
    yield from _pinned(values)
    if values.get("page_size") == "1g":
        for key in _GIGABYTE_PAGES:
            if key in values:
                yield _idle(key, "page_size:1g decides the size of large segments")


def _idle(key: str, why: str) -> Clash:
    return Clash("MD656", f"{key} has no effect", "info", why, (key,), {key: None}, "Leave it out: settings without effect hide the others")


def _async(values: Mapping[str, Value]) -> Iterator[Clash]:
    ignored = tuple(key for key in _IGNORED_BY_ASYNC if key in values)
    if ignored:
        yield Clash(
            "MD656",
            f"{' and '.join(ignored)}: no effect with backend:{values['backend']}",
            "warning",
            "the driver's own pool decides how memory is kept, and reads none of PyTorch's settings",
            ignored,
            dict.fromkeys(ignored),
            "Leave them out, or leave out backend",
        )


def _platform(scene: Scene) -> Iterator[Clash]:
    if scene.backend in {"cuda", "hip"} and scene.platform == "windows":
        yield Clash(
            "MD656",
            "expandable_segments is not supported on Windows",
            "warning",
            "it is read, a warning is printed once, and segments stay as they were",
            ("expandable_segments",),
            {"expandable_segments": None},
            "Leave it out; max_split_size_mb and garbage_collection_threshold work on Windows",
        )
    elif scene.backend == "hip":
        yield Clash(
            "MD656",
            "expandable_segments has no effect in builds for ROCm before 7.0",
            "info",
            "such builds print a warning once, and segments stay as they were",
            ("expandable_segments",),
        )


def _beside_expandable(values: Mapping[str, Value], scene: Scene) -> Iterator[Clash]:
    if scene.backend == "npu":
        excluded = tuple(key for key in EXCLUDED_BY_EXPANDABLE if key in values)
        if excluded:
            yield Clash(
                "MD654",
                f"expandable_segments:True and {' and '.join(excluded)} exclude each other",
                "critical",
                "torch_npu raises at the first allocation",
                ("expandable_segments", *excluded),
                dict.fromkeys(excluded),
                "Keep expandable_segments, which makes the others unnecessary in most cases",
            )
        if "segment_size_mb" in values and "large_segment_size_mb" in values:
            yield _idle("segment_size_mb", "large_segment_size_mb wins over it")
        return
    large = values.get("large_segment_size_mb")
    if isinstance(large, int) and large % 2:
        yield Clash(
            "MD654",
            f"large_segment_size_mb:{large} is odd: expandable segments cannot grow by it",
            "critical",
            "the driver maps multiples of 2 MiB only, so that every large allocation fails with 'invalid argument'",
            ("large_segment_size_mb", "expandable_segments"),
            {"large_segment_size_mb": str(large + 1)},
            "Use an even number",
        )


def _without_expandable(values: Mapping[str, Value], scene: Scene) -> Iterator[Clash]:
    if scene.backend == "npu":
        for key in NEEDS_EXPANDABLE:
            if key in values:
                yield _idle(key, "it is read with expandable_segments:True only")
    for key in ("expandable_segments_reserve", "expandable_segments_reserve_by_class"):
        if key in values:
            yield _idle(key, "it is about expandable segments, which are off")


def _deprecated(values: Mapping[str, Value], scene: Scene, *, expandable: bool) -> Iterator[Clash]:
    table = known(scene.backend, scene.version)
    for key in values:
        new = table[key].replaced_by if key in table else ""
        if new and new in table and new not in values:
            yield Clash(
                "MD655",
                f"{key} is deprecated: {new} is its successor",
                "info",
                f"{new} works without expandable segments as well",
                (key,),
                {key: None, new: str(values[key])} if expandable else {},  # without them it had no effect, and the new one would
                f"Write {new}",
            )


def _collection(values: Mapping[str, Value], scene: Scene, *, expandable: bool) -> Iterator[Clash]:
    key = "garbage_collection_threshold"
    if key not in values or (expandable and scene.backend == "npu"):
        return
    if expandable:
        yield _idle(key, "it gives back whole segments only, and expandable segments are none of these")
        return
    fraction = values.get("per_process_memory_fraction", 1.0)
    if isinstance(fraction, float) and fraction >= 1:
        how = f"torch.{'npu' if scene.backend == 'npu' else 'cuda'}.set_per_process_memory_fraction(0.95)"
        newer = "per_process_memory_fraction" in known(scene.backend, scene.version)
        yield Clash(
            "MD656",
            f"{key} has no effect without a memory limit",
            "info",
            "it is a share of the limit, and without one nothing is ever collected",
            (key,),
            {},
            f"Set a limit below 1, before the first tensor on the device: {how}"
            + (", or per_process_memory_fraction:0.95 here" if newer else ""),
        )


def _splits(values: Mapping[str, Value], scene: Scene, *, expandable: bool) -> Iterator[Clash]:
    split = values.get("max_split_size_mb")
    limited = isinstance(split, int) and split < _UNLIMITED_MIB
    if limited and expandable and scene.backend != "npu":
        yield Clash(
            "MD654",
            f"max_split_size_mb:{split} makes expandable segments reserve more",
            "warning",
            "smaller requests cannot use a free range of that size or more, also not one between live tensors, and map new memory instead",
            ("expandable_segments", "max_split_size_mb"),
            {"max_split_size_mb": None},
            "Keep expandable_segments alone: memdiag simulate TRACE --conf shows what each costs",
        )
    if "max_non_split_rounding_mb" in values and not limited:
        yield _idle("max_non_split_rounding_mb", "it is about blocks of max_split_size_mb and more, and no such limit is set")
    divisions = values.get("roundup_power2_divisions")
    if isinstance(divisions, tuple) and all(number <= 1 for number in divisions):
        yield _idle("roundup_power2_divisions", "0 and 1 both mean no rounding to powers of two")


def _pinned(values: Mapping[str, Value]) -> Iterator[Clash]:
    registered = values.get("pinned_use_cuda_host_register") is True or values.get("pinned_use_hip_host_register") is True
    if "pinned_num_register_threads" in values and not registered:
        yield _idle("pinned_num_register_threads", "threads register memory with pinned_use_cuda_host_register:True only")
    if values.get("pinned_mem_register") is True and values.get("pin_memory_expandable_segments") is True:
        yield Clash(
            "MD654",
            "pinned_mem_register and pin_memory_expandable_segments exclude each other",
            "warning",
            "pinned_mem_register is turned off with a warning",
            ("pinned_mem_register", "pin_memory_expandable_segments"),
            {"pinned_mem_register": None},
            "Keep one of them",
        )


def _mindspeed(values: Mapping[str, Value]) -> Iterator[Clash]:
    if values.get("expandable_segments") is True:
        yield Clash(
            "MD654",
            "expandable_segments:True excludes MindSpeed's memory fragmentation feature",
            "critical",
            "the feature has segments of its own and must run with expandable_segments:False",
            ("expandable_segments",),
            {"expandable_segments": None},
            "Choose one: on current versions expandable segments, without the feature",
        )
    if "garbage_collection_threshold" in values:
        yield _idle("garbage_collection_threshold", "this allocator reads it and does nothing with it")
