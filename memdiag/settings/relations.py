"""Combinations of settings: some exclude each other, and some have no effect without another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from memdiag.settings.exclusions import EXCLUDED_BY_EXPANDABLE
from memdiag.settings.model import Version
from memdiag.settings.npu_keys import NEEDS_EXPANDABLE
from memdiag.settings.parsers import Value
from memdiag.settings.problem import Clash
from memdiag.settings.tables import known
from memdiag.text import joined, phrase

_UNLIMITED_MIB = 1 << 40
_IGNORED_BY_ASYNC = (
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "large_segment_size_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
    "expandable_segments",
    "throw_on_cudamalloc_oom",
    "graph_capture_record_stream_reuse",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
)
_GIGABYTE_PAGES = ("segment_size_mb", "large_segment_size_mb")


@dataclass(frozen=True, slots=True)
class Scene:
    """The environment that the settings are checked for.

    Attributes:
        backend: "cuda", "hip", "npu" or "mindspeed".
        version: Version to check against.
        platform: "linux", "windows" or "" if unknown.
        is_given: Whether the version was given; otherwise it is the newest one known.
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
                yield _idle(key, "pages")


def _idle(key: str, why: str) -> Clash:
    title, reason = phrase("conf_relations.idle", key=key), phrase(f"conf_relations.idle.{why}")
    return Clash("MD656", title, "info", reason, (key,), {key: None}, phrase("conf_relations.idle.fix"))


def _async(values: Mapping[str, Value]) -> Iterator[Clash]:
    ignored = tuple(key for key in _IGNORED_BY_ASYNC if key in values)
    if ignored:
        yield Clash(
            "MD656",
            phrase(
                "conf_relations.async", keys=joined(ignored, phrase("remedies.and")), backend=str(values["backend"])
            ),
            "warning",
            phrase("conf_relations.async.why"),
            ignored,
            dict.fromkeys(ignored),
            phrase("conf_relations.async.fix"),
        )


def _platform(scene: Scene) -> Iterator[Clash]:
    if scene.backend in {"cuda", "hip"} and scene.platform == "windows":
        yield Clash(
            "MD656",
            phrase("conf_relations.windows"),
            "warning",
            phrase("conf_relations.windows.why"),
            ("expandable_segments",),
            {"expandable_segments": None},
            phrase("conf_relations.windows.fix"),
        )
    elif scene.backend == "hip":
        yield Clash(
            "MD656",
            phrase("conf_relations.rocm"),
            "info",
            phrase("conf_relations.rocm.why"),
            ("expandable_segments",),
        )


def _beside_expandable(values: Mapping[str, Value], scene: Scene) -> Iterator[Clash]:
    if scene.backend == "npu":
        excluded = tuple(key for key in EXCLUDED_BY_EXPANDABLE if key in values)
        if excluded:
            yield Clash(
                "MD654",
                phrase("conf_relations.exclude", keys=joined(excluded, phrase("remedies.and"))),
                "critical",
                phrase("conf_relations.exclude.why"),
                ("expandable_segments", *excluded),
                dict.fromkeys(excluded),
                phrase("conf_relations.exclude.fix"),
            )
        if "segment_size_mb" in values and "large_segment_size_mb" in values:
            yield _idle("segment_size_mb", "wins")
        return
    large = values.get("large_segment_size_mb")
    if isinstance(large, int) and large % 2:
        yield Clash(
            "MD654",
            phrase("conf_relations.odd", size=str(large)),
            "critical",
            phrase("conf_relations.odd.why"),
            ("large_segment_size_mb", "expandable_segments"),
            {"large_segment_size_mb": str(large + 1)},
            phrase("conf_relations.odd.fix"),
        )


def _without_expandable(values: Mapping[str, Value], scene: Scene) -> Iterator[Clash]:
    if scene.backend == "npu":
        for key in NEEDS_EXPANDABLE:
            if key in values:
                yield _idle(key, "expandable")
    for key in ("expandable_segments_reserve", "expandable_segments_reserve_by_class"):
        if key in values:
            yield _idle(key, "off")


def _deprecated(values: Mapping[str, Value], scene: Scene, *, expandable: bool) -> Iterator[Clash]:
    table = known(scene.backend, scene.version)
    for key in values:
        new = table[key].replaced_by if key in table else ""
        if new and new in table and new not in values:
            yield Clash(
                "MD655",
                phrase("conf_relations.deprecated", key=key, new=new),
                "info",
                phrase("conf_relations.deprecated.why", new=new),
                (key,),
                # without expandable segments the old name had no effect, but the new one has
                {key: None, new: str(values[key])} if expandable else {},
                phrase("conf.fix.write", text=new),
            )


def _collection(values: Mapping[str, Value], scene: Scene, *, expandable: bool) -> Iterator[Clash]:
    key = "garbage_collection_threshold"
    if key not in values or (expandable and scene.backend == "npu"):
        return
    if expandable:
        yield _idle(key, "whole")
        return
    fraction = values.get("per_process_memory_fraction", 1.0)
    if isinstance(fraction, float) and fraction >= 1:
        how = f"torch.{'npu' if scene.backend == 'npu' else 'cuda'}.set_per_process_memory_fraction(0.95)"
        newer = "per_process_memory_fraction" in known(scene.backend, scene.version)
        yield Clash(
            "MD656",
            phrase("conf_relations.collection", key=key),
            "info",
            phrase("conf_relations.collection.why"),
            (key,),
            {},
            phrase("conf_relations.collection.fix.key", call=how)
            if newer
            else phrase("conf_relations.collection.fix", call=how),
        )


def _splits(values: Mapping[str, Value], scene: Scene, *, expandable: bool) -> Iterator[Clash]:
    split = values.get("max_split_size_mb")
    limited = isinstance(split, int) and split < _UNLIMITED_MIB
    if limited and expandable and scene.backend != "npu":
        yield Clash(
            "MD654",
            phrase("conf_relations.split", size=str(split)),
            "warning",
            phrase("conf_relations.split.why"),
            ("expandable_segments", "max_split_size_mb"),
            {"max_split_size_mb": None},
            phrase("conf_relations.split.fix"),
        )
    if "max_non_split_rounding_mb" in values and not limited:
        yield _idle("max_non_split_rounding_mb", "unlimited")
    divisions = values.get("roundup_power2_divisions")
    if isinstance(divisions, tuple) and all(number <= 1 for number in divisions):
        yield _idle("roundup_power2_divisions", "power")


def _pinned(values: Mapping[str, Value]) -> Iterator[Clash]:
    registered = (
        values.get("pinned_use_cuda_host_register") is True or values.get("pinned_use_hip_host_register") is True
    )
    if "pinned_num_register_threads" in values and not registered:
        yield _idle("pinned_num_register_threads", "threads")
    if values.get("pinned_mem_register") is True and values.get("pin_memory_expandable_segments") is True:
        yield Clash(
            "MD654",
            phrase("conf_relations.pinned"),
            "warning",
            phrase("conf_relations.pinned.why"),
            ("pinned_mem_register", "pin_memory_expandable_segments"),
            {"pinned_mem_register": None},
            phrase("conf_relations.pinned.fix"),
        )


def _mindspeed(values: Mapping[str, Value]) -> Iterator[Clash]:
    if values.get("expandable_segments") is True:
        yield Clash(
            "MD654",
            phrase("conf_relations.mindspeed"),
            "critical",
            phrase("conf_relations.mindspeed.why"),
            ("expandable_segments",),
            {"expandable_segments": None},
            phrase("conf_relations.mindspeed.fix"),
        )
    if "garbage_collection_threshold" in values:
        yield _idle("garbage_collection_threshold", "mindspeed")
