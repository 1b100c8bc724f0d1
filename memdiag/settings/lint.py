"""The settings linter: from a text to findings and a corrected text.

The intended settings are read leniently (``written.py``) and judged key by key. The actual parser (``parsers.py``)
decides whether the program starts, so accepted text never gets a critical finding, and refused text always does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from memdiag.results.conf import ConfReport, Setting
from memdiag.results.finding import SEVERITIES, Evidence, Finding, Fix, Severity
from memdiag.settings.features import clashes
from memdiag.settings.model import Key, version_text
from memdiag.settings.parsers import ParserOutcome, Value, parse
from memdiag.settings.problem import Clash
from memdiag.settings.relations import Scene, relations
from memdiag.settings.tables import VARIABLE, backend_words, elsewhere, every, known, newest
from memdiag.settings.values import ValueContext, check_value
from memdiag.settings.written import Assignment, WrittenKey, entries
from memdiag.text import phrase

CODES: dict[str, str] = {
    "MD651": "unknown key in an allocator setting",
    "MD652": "invalid value in an allocator setting",
    "MD653": "allocator setting is ignored, or read differently than written",
    "MD654": "conflicting allocator settings",
    "MD655": "allocator setting or variable has an old name",
    "MD656": "allocator setting that changes nothing",
    "MD657": "True or False misspelt in an allocator setting",
    "MD658": "allocator setting that conflicts with the program or its environment",
}
_REFUSING = {"MD651", "MD652", "MD653", "MD657"}


@dataclass
class _Lint:
    """State collected during the check."""

    scene: Scene
    variable: str
    right: dict[str, str] = field(default_factory=dict)  # the corrected settings
    findings: list[Finding] = field(default_factory=list)
    blamed: set[str] = field(default_factory=set)  # keys with a finding

    def add(self, code: str, title: str, severity: Severity, why: str, shown: str, fix: str) -> None:
        fixes = (Fix(fix, "env"),) if fix else ()
        self.findings.append(
            Finding(code, title, severity, None, (Evidence(why, shown or None, "", self.variable),), fixes)
        )

    def report(self, clash: Clash, text: Mapping[str, str]) -> None:
        shown = ",".join(f"{key}:{text[key]}" for key in clash.keys if key in text)
        self.add(clash.code, clash.title, clash.severity, clash.why, shown, clash.fix)
        self.blamed.update(clash.keys)

    def apply(self, clash: Clash) -> None:
        for key, value in clash.changes.items():
            if value is None:
                self.right.pop(key, None)
            else:
                self.right[key] = value


def lint(
    assignment: Assignment, scene: Scene, features: tuple[str, ...] = (), version: str | None = None
) -> ConfReport:
    """Returns the report on the settings in ``assignment``.

    Args:
        assignment: The variable ("" if only a text was given) and its value.
        scene: Backend, version and platform.
        features: Features that the program uses, keys of ``features.FEATURES``.
        version: The version as given on the command line, for the report.
    """
    variable = assignment.variable or VARIABLE[scene.backend]
    state = _Lint(scene, variable)
    _version(state, scene)
    found = entries(assignment.value)
    meant = entries(f"{assignment.value}{assignment.lost}" if assignment.lost[:1] in {"<", ">"} else assignment.value)
    if assignment.lost and assignment.lost[:1] not in {"<", ">"}:
        meant = [*found, *entries(assignment.lost)]
    if assignment.lost:
        _lost(state, assignment)
    _signs(state, meant)
    settings = tuple(_entry(state, entry, meant) for entry in meant if entry.key or entry.value)
    outcome = parse(assignment.value, scene.backend, scene.version)
    _between(state, features)
    _last_word(state, outcome, found)
    _settle(state.right, scene)
    joined = _joined(state.right)
    is_changed = (
        bool(assignment.lost)
        or joined != ",".join(entry.text for entry in found)
        or any(entry.oddity for entry in meant)
    )
    needed = bool(state.findings) and is_changed
    line = _line(variable, joined) if needed else ""
    findings = tuple(
        replace(f, fixes=tuple(_with_line(fix, line) for fix in f.fixes)) for f in in_order(state.findings)
    )
    return ConfReport(
        scene.backend,
        version,
        version_text(scene.version),
        variable,
        assignment.value,
        settings,
        findings,
        joined if needed else None,
        line,
    )


def _between(state: _Lint, features: tuple[str, ...]) -> None:
    """Adds findings about combinations of settings, and of settings with features.

    Settings that a feature forbids are removed first, because this may resolve a conflict.
    """
    written = dict(state.right)
    values = _alone([WrittenKey(key, value) for key, value in written.items()], state.scene)
    for clash in clashes(values, features, state.scene):
        state.report(clash, written)
        state.apply(clash)
    for clash in relations(values, state.scene):
        state.report(clash, written)
    before: dict[str, str] = {}
    while before != state.right:  # a removed setting can leave another one without effect; nothing is ever added again
        before = dict(state.right)
        for clash in relations(
            _alone([WrittenKey(key, value) for key, value in before.items()], state.scene), state.scene
        ):
            state.apply(clash)


def _settle(right: dict[str, str], scene: Scene) -> None:
    """Makes corrected values consistent: some limits depend on other settings."""
    for _ in right:
        found = [WrittenKey(key, value) for key, value in right.items()]
        place = ValueContext(scene.backend, scene.version, _segment(found))
        changes = {
            entry.key: problem.right
            for entry in found
            for problem in check_value(every(scene.backend)[entry.key], entry.value, place)
            if problem.right != entry.value
        }
        for key, value in changes.items():
            if value is None:
                del right[key]
            else:
                right[key] = value
        if not changes:
            return


def _with_line(fix: Fix, line: str) -> Fix:
    return replace(fix, change=line) if line and fix.kind == "env" and not fix.change else fix


def in_order(findings: list[Finding]) -> list[Finding]:
    """Returns ``findings``, the most severe first."""
    return sorted(findings, key=lambda finding: (SEVERITIES.index(finding.severity), finding.code))


def _joined(settings: Mapping[str, str]) -> str:
    return ",".join(f"{key}:{value}" for key, value in settings.items())


def _line(variable: str, text: str) -> str:
    if not text:
        return f"unset {variable}"
    quoted = f"'{text}'" if set(text) & set("[]<>*?$&|;() ") else text
    return f"export {variable}={quoted}"


def _version(state: _Lint, scene: Scene) -> None:
    """Adds MD658 for a version newer than all known rules."""
    last = max(key.since for key in every(scene.backend).values())
    last = max(last, newest(scene.backend))
    if scene.is_given and scene.version > last:
        unit = "torch_npu" if scene.backend in {"npu", "mindspeed"} else "torch"
        title = phrase("conf.version", unit=unit, version=version_text(scene.version), known=version_text(last))
        state.add("MD658", title, "info", phrase("conf.version.why"), "", "")


def _lost(state: _Lint, assignment: Assignment) -> None:
    redirected = assignment.lost[:1] in {"<", ">"}
    title = (
        phrase("conf.lost.redirection", lost=assignment.lost)
        if redirected
        else phrase("conf.lost.space", lost=assignment.lost)
    )
    left = assignment.value or phrase("conf.lost.empty")
    state.add("MD653", title, "warning", phrase("conf.lost.why"), left, phrase("conf.lost.fix"))


def _signs(state: _Lint, found: list[WrittenKey]) -> None:
    """Adds findings about invalid separators."""
    for oddity in dict.fromkeys(entry.oddity for entry in found if entry.oddity):
        shown = ", ".join(entry.text for entry in found if entry.oddity == oddity) or None
        state.findings.append(
            Finding(
                "MD653",
                phrase(f"conf.sign.{oddity}"),
                "critical",
                None,
                (Evidence(phrase("conf.sign.why"), shown, "", state.variable),),
                (Fix(phrase("conf.sign.fix"), "env"),),
            )
        )


def _entry(state: _Lint, entry: WrittenKey, found: list[WrittenKey]) -> Setting:
    """Judges one entry, adds its correction to the corrected settings, and returns its explanation."""
    scene = state.scene
    name, value = entry.key, entry.value
    table = known(scene.backend, scene.version)
    if name not in table:
        name = _unknown(state, entry) or ""
    key = table.get(name)
    if key is None:
        other = _of_any(entry.key, scene.backend)
        return _explained(other, entry) if other else Setting(entry.key, value or "", "", "", "", None)
    if name in state.right and name == entry.key:
        _twice(state, name, found)
    problems = check_value(key, value, ValueContext(scene.backend, scene.version, _segment(found)))
    right = problems[-1].right if problems else value  # the last correction includes the earlier ones
    for problem in problems:
        fix = (
            phrase("conf.fix.write", text=f"{name}:{right}") if right is not None else phrase("conf.fix.drop", key=name)
        )
        state.add(problem.code, problem.title, problem.severity, problem.why, entry.text, fix)
        state.blamed.add(name)
    if right is None:
        state.right.pop(name, None)
    else:
        state.right[name] = right
    return _explained(key, entry)


def _segment(found: list[WrittenKey]) -> int:
    for entry in reversed(found):
        if entry.key == "large_segment_size_mb" and entry.value and entry.value.isascii() and entry.value.isdigit():
            return min(int(entry.value[:18]), 1 << 60)
    return 20


def _explained(key: Key, entry: WrittenKey) -> Setting:
    return Setting(key.name, entry.value or "", key.meaning, key.default, key.range, version_text(key.since))


def _of_any(name: str, backend: str) -> Key | None:
    tables = (backend, *elsewhere(name, backend))
    return next((every(table)[name] for table in tables if name in every(table)), None)


def _twice(state: _Lint, name: str, found: list[WrittenKey]) -> None:
    state.blamed.add(name)
    values = [entry.value or "" for entry in found if entry.key == name]
    title = phrase("conf.twice", key=name, times=len(values))
    if all(title != finding.title for finding in state.findings):
        shown = ", ".join(f"{name}:{value}" for value in values)
        state.add("MD653", title, "warning", phrase("conf.twice.why", value=values[-1]), shown, phrase("conf.fix.once"))


def _unknown(state: _Lint, entry: WrittenKey) -> str | None:
    """Adds MD651; returns the probably intended key."""
    scene, name = state.scene, entry.key
    table = known(scene.backend, scene.version)
    own = every(scene.backend).get(name)
    unit = "torch_npu" if scene.backend == "npu" else "torch"
    state.blamed.add(name)
    if own and own.until and scene.version >= own.until:
        why = phrase("conf.removed.instead", key=own.replaced_by) if own.replaced_by else phrase("conf.ends")
        title = phrase("conf.removed", key=name, unit=unit, version=version_text(own.until))
        state.add("MD651", title, "critical", why, entry.text, phrase("conf.fix.out"))
        return None
    if own:
        title = phrase("conf.early", key=name, unit=unit, version=version_text(own.since))
        here = {"unit": unit, "version": version_text(scene.version)}
        why = phrase("conf.early.npu", **here) if scene.backend == "npu" else phrase("conf.early.why", **here)
        state.add(
            "MD651",
            title,
            "critical",
            why,
            entry.text,
            phrase("conf.fix.upgrade", unit=unit, version=version_text(own.since)),
        )
        return None
    if others := elsewhere(name, scene.backend):
        twin = _twin(name, table)
        title = phrase("conf.foreign", key=name, other=backend_words(others[0]), backend=backend_words(scene.backend))
        fix = phrase("conf.fix.twin", key=twin) if twin else phrase("conf.fix.out")
        state.add("MD651", title, "critical", phrase("conf.ends"), entry.text, fix)
        return twin
    close = get_close_matches(name.lower().replace("-", "_"), list(table), 1, 0.75)
    if close:
        title = phrase("conf.close", key=name or phrase("conf.empty"), close=close[0])
        state.add("MD651", title, "critical", phrase("conf.ends"), entry.text, phrase("conf.fix.write", text=close[0]))
        return close[0]
    title = phrase("conf.unknown", key=name or phrase("conf.empty"), backend=backend_words(scene.backend))
    state.add("MD651", title, "critical", phrase("conf.ends"), entry.text, phrase("conf.fix.out"))
    return None


def _twin(name: str, table: Mapping[str, Key]) -> str | None:
    """Returns this backend's key whose name differs only in the backend's name."""
    for old in ("cuda", "hip", "npu"):
        for new in ("cuda", "hip", "npu"):
            if old in name and old != new and (twin := name.replace(old, new)) in table:
                return twin
    return None


def _last_word(state: _Lint, outcome: ParserOutcome, found: list[WrittenKey]) -> None:
    """Adjusts the findings to the parser's result for the whole text."""
    refused = outcome.refused
    critical = any(
        finding.severity == "critical" and finding.code in {*_REFUSING, "MD654"} for finding in state.findings
    )
    if refused and not critical:
        title = phrase("conf.unreadable.key", key=refused.key) if refused.key else phrase("conf.unreadable")
        written = _joined({entry.key: entry.value or "" for entry in found})
        state.add("MD653", title, "critical", refused.reason, written, phrase("conf.fix.line"))
        return
    if refused:
        return
    state.findings = [
        replace(finding, severity="warning")
        if finding.severity == "critical" and finding.code in _REFUSING
        else finding
        for finding in state.findings
    ]
    for key, value in _alone(found, state.scene).items():
        if key not in state.blamed and outcome.values.get(key) != value:
            title = phrase("conf.around.nothing", key=key)
            if key in outcome.values:
                title = phrase("conf.around", key=key, value=str(outcome.values[key]))
            state.add("MD653", title, "warning", phrase("conf.around.why"), f"{key}:{value}", phrase("conf.fix.anew"))


def _alone(found: list[WrittenKey], scene: Scene) -> dict[str, Value]:
    """Returns the meaning of each entry on its own."""
    values: dict[str, Value] = {}
    for entry in found:
        values.update(parse(entry.text, scene.backend, scene.version).values)
    return values
