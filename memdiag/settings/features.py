"""Program features that are incompatible with some settings, by version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from memdiag.results.finding import Severity
from memdiag.settings.model import Version
from memdiag.settings.parsers import Value
from memdiag.settings.problem import Clash
from memdiag.settings.relations import Scene
from memdiag.settings.tables import every
from memdiag.text import Phrase, catalogue, joined, phrase

FEATURES = ("ipc", "cuda-graphs", "mempool", "sleep-mode", "pluggable", "mindspeed-pools", "snapshots")


def feature_words(feature: str) -> Phrase:
    """Returns a feature in words."""
    return phrase(f"conf_features.feature.{feature}")


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One setting that is incompatible with one feature. Its texts are in the catalogue ``conf_features``.

    Attributes:
        feature: A key of FEATURES.
        backends: Backends to which it applies.
        key: The setting, which must have the value ``value``; "" for any setting.
        value: Value as the parser reads it, or None for any value.
        severity: As in findings.
        text: Key of the title; ``text.why`` and ``text.fix`` are the explanation and the remedy.
        since: First version to which it applies.
        until: First version to which it no longer applies.
        is_dropped: Whether the setting is removed from the corrected line.
    """

    feature: str
    backends: tuple[str, ...]
    key: str
    value: Value | None
    severity: Severity
    text: str
    since: Version = (0, 0)
    until: Version | None = None
    is_dropped: bool = True


_GPU = ("cuda", "hip")
_EXPANDABLE = "expandable_segments"

RULES: tuple[Incompatibility, ...] = (
    Incompatibility("ipc", _GPU, _EXPANDABLE, True, "critical", "ipc-old", until=(2, 5)),
    Incompatibility("ipc", _GPU, _EXPANDABLE, True, "info", "ipc-pidfd", since=(2, 5), is_dropped=False),
    Incompatibility("ipc", ("npu",), _EXPANDABLE, True, "warning", "ipc-npu"),
    Incompatibility("ipc", _GPU, "backend", "cudaMallocAsync", "critical", "ipc-async"),
    Incompatibility("mempool", _GPU, _EXPANDABLE, True, "critical", "mempool-refused", since=(2, 7), until=(2, 10)),
    Incompatibility("mempool", _GPU, _EXPANDABLE, True, "warning", "mempool-bypassed", until=(2, 7)),
    Incompatibility("mempool", _GPU, _EXPANDABLE, True, "info", "mempool-plain", since=(2, 10), is_dropped=False),
    Incompatibility("mempool", _GPU, "backend", "cudaMallocAsync", "critical", "mempool-async"),
    Incompatibility("sleep-mode", (*_GPU, "npu"), _EXPANDABLE, True, "critical", "sleep-refused"),
    Incompatibility("sleep-mode", _GPU, "backend", "cudaMallocAsync", "critical", "sleep-async"),
    Incompatibility("cuda-graphs", (*_GPU, "npu"), _EXPANDABLE, True, "info", "graphs-pool", is_dropped=False),
    Incompatibility(
        "cuda-graphs",
        (*_GPU, "npu"),
        "garbage_collection_threshold",
        None,
        "info",
        "graphs-collection",
        is_dropped=False,
    ),
    Incompatibility("pluggable", (*_GPU, "npu"), "", None, "warning", "pluggable", is_dropped=False),
    Incompatibility("snapshots", _GPU, "backend", "cudaMallocAsync", "warning", "snapshots-async"),
    Incompatibility("mindspeed-pools", ("npu",), _EXPANDABLE, True, "critical", "mindspeed"),
)


def clashes(values: Mapping[str, Value], features: tuple[str, ...], scene: Scene) -> Iterator[Clash]:
    """Yields MD658 for settings in ``values`` that are incompatible with ``features``."""
    for rule in RULES:
        if rule.feature not in features or scene.backend not in rule.backends:
            continue
        if not (rule.since <= scene.version and (rule.until is None or scene.version < rule.until)):
            continue
        if rule.key and (rule.key not in values or not _is(values[rule.key], rule.value)):
            continue
        if not values:
            continue
        changes: dict[str, str | None] = {rule.key: None} if rule.key and rule.is_dropped else {}
        fix = phrase(f"conf_features.{rule.text}.fix") if f"{rule.text}.fix" in catalogue("conf_features") else ""
        title, why = phrase(f"conf_features.{rule.text}"), phrase(f"conf_features.{rule.text}.why")
        yield Clash("MD658", title, rule.severity, why, (rule.key,) if rule.key else tuple(values), changes, fix)
    if "mindspeed-pools" in features and scene.backend == "npu":
        foreign = tuple(key for key in values if key not in every("mindspeed"))
        if foreign:
            yield Clash(
                "MD658",
                phrase("conf_features.mindspeed-keys", keys=joined(foreign, phrase("remedies.and"))),
                "critical",
                phrase("conf_features.mindspeed-keys.why", known=", ".join(every("mindspeed"))),
                foreign,
                dict.fromkeys(foreign),
                phrase("conf_features.mindspeed-keys.fix"),
            )


def _is(value: Value, wanted: Value | None) -> bool:
    if isinstance(wanted, str):
        return str(value).replace("hip", "cuda") == wanted
    return wanted is None or value == wanted
