"""A request to simulate: policies, settings, version and device, checked before any file is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from memdiag.allocator.policies import POLICIES
from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from memdiag.allocator.scenario import Scenario
    from memdiag.allocator.subject import Subject
    from memdiag.trace.model import DeviceTrace, Trace

_MOST_BYTES = 1 << 50
OFFLOAD = "offload"  # not an allocator: it changes the requests


@dataclass(frozen=True)
class SimulationRequest:
    """A request to simulate; None stands for the recorded value.

    Attributes:
        policies: Keys of ``POLICIES``.
        confs: Texts of settings.
        torch: Version, as "2.13".
        capacity: Bytes.
        fraction: Per-process memory fraction.
        outside: Bytes of the device outside the allocator.
        offload: Whether to offload idle tensors to the host too, and serve the rest with the recorded allocator.
    """

    policies: tuple[str, ...]
    confs: tuple[str, ...] | None
    torch: str | None
    capacity: int | None
    fraction: float | None
    offload: bool = False
    outside: int | None = None

    @classmethod
    def read(
        cls,
        policies: list[str],
        confs: list[str] | None,
        torch: str | None,
        capacity: str | None,
        fraction: float | None,
        outside: str | None = None,
    ) -> SimulationRequest:
        """Reads a request from texts.

        Args:
            policies: Names; one text may contain several, separated by commas.
            confs: Settings strings, or None for the recorded ones.
            torch: Version of PyTorch whose rules apply, as "2.13".
            capacity: Memory of the device, as "64GiB".
            fraction: Per-process memory fraction, from 0 to 1.
            outside: Bytes of the device outside the allocator, as "512MiB".

        Raises:
            MemdiagError: One of them is invalid.
        """
        names = [name.strip() for item in policies for name in item.split(",") if name.strip()]
        offload = OFFLOAD in names
        names = [name for name in names if name != OFFLOAD]
        for name in names:
            if name not in POLICIES:
                close = get_close_matches(name.lower().replace("_", "-"), [*POLICIES, OFFLOAD], 1, 0.5)
                meant = phrase("errors.meant", name=close[0]) if close else ""
                hint = phrase("errors.policy.hint", meant=meant, names=", ".join((*POLICIES, OFFLOAD)))
                raise MemdiagError(phrase("errors.policy", name=name), hint)
        if torch is not None:
            _check_version(torch)
        size = parse_bytes(capacity) if capacity is not None else None
        if size is not None and not 0 < size <= _MOST_BYTES:
            raise MemdiagError(phrase("errors.capacity", capacity=str(capacity)), phrase("errors.capacity.hint"))
        if fraction is not None and not 0 <= fraction <= 1:
            raise MemdiagError(
                phrase("errors.fraction", fraction=str(fraction)),
                phrase("errors.fraction.hint"),
            )
        texts = None if confs is None else tuple(_settings_of(text) for text in confs)
        beside = parse_bytes(outside) if outside is not None else None
        if beside is not None and size is not None and beside >= size:
            raise MemdiagError(
                phrase("errors.outside", outside=str(outside), capacity=str(capacity)), phrase("errors.outside.hint")
            )
        return cls(tuple(dict.fromkeys(names)), texts or None, torch, size, fraction, offload, beside)

    @property
    def num(self) -> int:
        """Number of requested runs."""
        return max(len(self.policies), not self.offload) * len(self.confs or ("",)) + self.offload

    def check(self, trace: Trace, device: DeviceTrace) -> None:
        """Checks the given settings with the parser of their allocator.

        Raises:
            MemdiagError: The parser refuses them.
        """
        from memdiag.allocator.calibration.recorded_settings import recorded_settings

        if self.fraction is not None and self.capacity is None and device.capacity_bytes is None:
            raise MemdiagError(
                phrase("errors.fraction-unknown"),
                phrase("errors.fraction-unknown.hint"),
            )
        for policy in self.policies or (recorded_settings(trace, device).policy,):
            for text in self.confs or ():
                _check_conf(
                    self._own(text, policy), policy, self.torch or version_for(policy, self._version(trace, device))
                )

    def or_usual(self, trace: Trace) -> SimulationRequest:
        """Returns the request or, without policies and settings, one for the plain and the expandable allocator."""
        if self.policies or self.confs is not None:
            return self
        return replace(
            self, policies=("npu", "npu-expandable") if trace.backend == "npu" else ("caching", "expandable")
        )

    def on_card(self, subject: Subject) -> Subject:
        """Returns a recording with the requested memory outside the allocator.

        Raises:
            MemdiagError: The requested card is not larger than the recorded memory outside the allocator.
        """
        if self.outside is not None:
            return subject.with_outside(self.outside)
        if self.capacity is not None and subject.most_outside >= self.capacity:
            size, beside = format_bytes(self.capacity), format_bytes(subject.most_outside)
            raise MemdiagError(
                phrase("errors.capacity-outside", capacity=size, outside=beside), phrase("errors.capacity-outside.hint")
            )
        return subject

    def scenarios(self, subject: Subject) -> list[Scenario]:
        """Returns the scenarios to simulate, policy by policy."""
        from memdiag.allocator.scenario import Scenario

        own = subject.recorded if self.capacity is None else subject.on_card(self.capacity)
        fraction = own.fraction if self.fraction is None else self.fraction
        found = []
        for policy in self.policies or (() if self.offload else (own.policy,)):
            version = self.torch or version_for(policy, own.torch_version)
            for text in self.confs or (None,):
                conf = _for_policy(own.conf, policy, version) if text is None else self._own(text, policy)
                found.append(Scenario(policy, conf, version, own.capacity_bytes, fraction))
        return found

    def offload_scenario(self, subject: Subject) -> Scenario:
        """Returns the allocator for tensors that do not move: the recorded one, with the given settings."""
        return replace(self, policies=(), offload=False).scenarios(subject)[0]

    def _own(self, text: str, policy: str) -> str:
        """Returns settings without the variables that only other policies read."""
        from memdiag.allocator.versions.variables import split, written

        names, settings = split(text)
        mine, others = (
            {name for each in which for name in POLICIES[each].variables} for which in ((policy,), self.policies)
        )
        return (
            written({name: value for name, value in names.items() if name in mine or name not in others}, settings)
            if names
            else text
        )

    def _version(self, trace: Trace, device: DeviceTrace) -> str:
        from memdiag.runs.simulation import default_version

        return default_version(trace, device)


def _check_version(text: str) -> None:
    """Refuses a version whose rules are unknown: a prediction for it would use another version's rules.

    Raises:
        MemdiagError: It is not a version, or not one that the allocator model supports.
    """
    from memdiag.allocator.versions.rules import LAST_VERIFIED, RULES
    from memdiag.settings.model import parse_version, version_text

    version = parse_version(text)
    if version is None:
        raise MemdiagError(phrase("errors.torch", text=str(text)), phrase("errors.torch.hint"))
    first, last = RULES["cuda"][0][0], LAST_VERIFIED
    if not first <= version <= last:
        why = (
            "older than any version that memdiag can simulate"
            if version < first
            else "newer than any version that memdiag knows"
        )
        raise MemdiagError(
            phrase("errors.torch-unknown", text=str(text), why=str(why)),
            phrase("errors.versions", value=str(version_text(first)), value2=str(version_text(last))),
        )


def _settings_of(text: str) -> str:
    """Returns settings without a leading variable, as in the line to paste; other variables there remain."""
    before, variable, settings = text.partition("ALLOC_CONF=")
    if not variable:
        return text
    others = [word for word in before.split()[:-1] if "=" in word]
    return ",".join([*others, settings.strip()] if settings.strip() else others)


def version_for(policy: str, version: str) -> str:
    """Returns ``version``, or the first later one that supports the policy.

    For example, expandable segments came with torch 2.1.
    """
    from memdiag.settings.model import parse_version, version_text
    from memdiag.settings.parsers import parse
    from memdiag.settings.tables import newest

    how = POLICIES[policy]
    number, last = parse_version(version), newest(how.backend)
    if number is None or not parse(how.effective_conf(""), how.backend, number).refused:
        return version
    later = ((number[0], minor) for minor in range(number[1] + 1, last[1] + 1))
    return next(
        (version_text(each) for each in later if not parse(how.effective_conf(""), how.backend, each).refused), version
    )


def _check_conf(text: str, policy: str, version: str) -> None:
    """Raises the findings of ``memdiag conf`` on settings that the allocator refuses."""
    from memdiag.settings.model import parse_version
    from memdiag.settings.parsers import parse
    from memdiag.settings.tables import newest

    how = POLICIES[policy]
    number = parse_version(version) or newest(how.backend)
    refused = parse(how.effective_conf(text), how.backend, number).refused
    if refused is None:
        return
    from memdiag.settings.lint import lint
    from memdiag.settings.relations import Scene
    from memdiag.settings.written import Assignment

    report = lint(Assignment("", how.effective_conf(text), ""), Scene(how.backend, number, "", True), (), version)
    worst = next((finding for finding in report.findings if finding.severity == "critical"), None)
    why = worst.title if worst else f"{refused.key}: {refused.reason}"
    fix = worst.fixes[0].title if worst and worst.fixes else f"see memdiag conf '{text}'"
    raise MemdiagError(phrase("errors.conf-refused", text=str(text), backend=str(how.backend), why=str(why)), fix)


def _for_policy(conf: str, policy: str, version: str) -> str:
    """Returns the recorded settings that another policy supports: settings of one backend mean nothing to the other."""
    from memdiag.settings.conf import parse_conf
    from memdiag.settings.model import parse_version
    from memdiag.settings.tables import known, newest

    how = POLICIES[policy]
    table = known(how.backend, parse_version(version) or newest(how.backend))
    keys = {key: value for key, value in parse_conf(conf).items() if key in table}
    inherited = how.inherit_conf(keys)
    return ",".join(f"{key}:{value}" for key, value in inherited.items())
