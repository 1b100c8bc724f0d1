"""Results of ``memdiag conf``: one text of allocator settings, explained and judged; and the table of all settings."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.results.finding import Finding


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of the text, explained.

    Attributes:
        key: Name of the setting, or the name that was probably meant.
        value: The value as written; "" if there is none.
        meaning: Effect of the setting; "" for an unknown setting.
        default: Value that applies if the setting is absent.
        range: Allowed values.
        since: First version that knows the setting ("2.6"); null: unknown.
    """

    key: str
    value: str
    meaning: str
    default: str
    range: str
    since: str | None


@dataclass(frozen=True, slots=True)
class RelatedVariable:
    """Another environment variable that is set and affects memory.

    Attributes:
        name: Name of the variable.
        value: Value of the variable.
        meaning: Effect of the variable.
    """

    name: str
    value: str
    meaning: str


@dataclass(frozen=True, slots=True)
class ConfReport:
    """Allocator settings, explained and checked.

    Attributes:
        backend: Backend of the settings: "cuda", "hip", "npu" or "mindspeed".
        torch_version: The requested version of PyTorch or torch_npu; null: the newest known.
        checked_version: The version whose rules were applied.
        variable: The environment variable that holds the settings.
        text: The settings as written; null if the variable is not set.
        settings: The settings, in order.
        findings: Findings, the most severe first.
        corrected: Corrected settings; "" if the variable should be unset; null if the text is correct.
        command: The shell line that sets the corrected settings; "" if there is none.
        related: Other environment variables that are set and affect memory.
    """

    backend: str
    torch_version: str | None
    checked_version: str
    variable: str
    text: str | None
    settings: tuple[Setting, ...]
    findings: tuple[Finding, ...]
    corrected: str | None
    command: str
    related: tuple[RelatedVariable, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownSetting:
    """One key of an allocator setting.

    Attributes:
        key: Name of the setting.
        type: Type of the value: "mib", "kib", "count", "fraction", "bool", "word" or "divisions".
        meaning: Effect of the setting.
        default: Value that applies if the setting is absent.
        range: Allowed values.
        since: First version that knows the setting.
        until: First version that no longer knows the setting; null: the newest version knows it.
        replaced_by: The name to use instead; null unless deprecated.
    """

    key: str
    type: str
    meaning: str
    default: str
    range: str
    since: str
    until: str | None
    replaced_by: str | None


@dataclass(frozen=True, slots=True)
class ListedBackend:
    """The settings of one backend.

    Attributes:
        backend: "cuda", "hip", "npu" or "mindspeed".
        variable: The environment variable that holds the settings.
        keys: The settings, in order.
    """

    backend: str
    variable: str
    keys: tuple[KnownSetting, ...]


@dataclass(frozen=True, slots=True)
class KnownVariable:
    """Another environment variable that affects memory.

    Attributes:
        name: Name of the variable.
        meaning: Effect of the variable, in a sentence.
        range: The valid values, in words.
        backends: Backends that read the variable.
    """

    name: str
    meaning: str
    range: str
    backends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """The table of all settings.

    Attributes:
        torch_version: Version whose settings are listed; null: all versions.
        backends: Settings by backend.
        variables: Other environment variables that affect memory.
    """

    torch_version: str | None
    backends: tuple[ListedBackend, ...]
    variables: tuple[KnownVariable, ...]
