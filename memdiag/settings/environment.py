"""Checks a whole environment: which allocator variable is read, and the effect of related variables.

Up to torch 2.8 there was one variable per backend. 2.9 read PYTORCH_ALLOC_CONF first and deprecated the others; from
2.10 on, the old names come first again. Only the first variable that is set is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import Any

from memdiag.results.conf import ConfReport, RelatedVariable
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.settings.conf import parse_conf
from memdiag.settings.lint import in_order, lint
from memdiag.settings.model import parse_version, version_text
from memdiag.settings.relations import Scene
from memdiag.settings.tables import VARIABLE, backend_words, newest
from memdiag.settings.variables import VARIABLES, Variable
from memdiag.settings.written import Assignment
from memdiag.text import joined, phrase

GENERAL = "PYTORCH_ALLOC_CONF"
EXPLAINED_EVERYWHERE = frozenset({"MEMORY_FRAGMENTATION"})  # people try it on every device
_LIKE = re.compile("ALLOC|CONF|MEM|FRAG|CACH|NCCL|HCCL|CUBLAS|TORCH")
ALLOC_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF", GENERAL)


def read_order(scene: Scene) -> tuple[str, ...]:
    """Returns the variables that the backend reads in this version; only the first that is set is used."""
    if scene.backend in {"npu", "mindspeed"}:
        return (VARIABLE["npu"], GENERAL) if scene.backend == "npu" and scene.version >= (2, 13) else (VARIABLE["npu"],)
    old = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
    if scene.version >= (2, 10):
        return (*old, GENERAL)
    if scene.version >= (2, 9):
        return (GENERAL, *old)
    return old if scene.backend == "hip" else old[:1]


def guess_backend(environ: Mapping[str, str]) -> str:
    """Returns the backend of an environment: "npu" or "hip" if only its variable is set, else "cuda"."""
    if "PYTORCH_CUDA_ALLOC_CONF" in environ:
        return "cuda"
    if "MEMORY_FRAGMENTATION" in environ:
        return "npu"
    return next((name for name in ("npu", "hip") if VARIABLE[name] in environ), "cuda")


def check_environment(
    environ: Mapping[str, str],
    scene: Scene,
    features: tuple[str, ...] = (),
    version: str | None = None,
    lost: Mapping[str, str] | None = None,
) -> ConfReport:
    """Returns the report on ``environ``: the variable that is read, ignored ones, and related variables.

    Args:
        environ: Variables and their values.
        scene: Backend, version and platform.
        features: Features that the program uses, keys of ``features.FEATURES``.
        version: The version as given on the command line, for the report.
        lost: By variable, the end of its value that the shell removes.
    """
    order = read_order(scene)
    present = [name for name in order if name in environ]
    name = present[0] if present else order[0]
    report = lint(Assignment(name, environ.get(name, ""), (lost or {}).get(name, "")), scene, features, version)
    if not present:
        report = replace(report, text=None, corrected=None, command="", findings=())
    keys = {
        key: value == "True" for key, value in parse_conf(environ.get(name, "")).items() if value in {"True", "False"}
    }
    findings = [*report.findings, *_names(environ, scene, present), *_misspelt(environ)]
    related = []
    for variable in VARIABLES:
        value = environ.get(variable.name)
        if value is None:
            continue
        is_read = scene.backend in variable.backends
        if is_read or variable.name in EXPLAINED_EVERYWHERE:
            related.append(RelatedVariable(variable.name, value, variable.meaning))
        if is_read:
            findings += _variable(variable, value, keys)
        elif variable.name in EXPLAINED_EVERYWHERE:
            reasons = (Evidence(phrase("conf_environment.switch.why"), f"{variable.name}={value}", "", variable.name),)
            fix = (Fix(phrase("conf_environment.switch.fix"), "env"),)
            title = phrase("conf_environment.switch", name=variable.name, backend=backend_words(scene.backend))
            findings.append(Finding("MD658", title, "info", None, reasons, fix))
    return replace(report, findings=tuple(in_order(findings)), related=tuple(related))


def _misspelt(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Returns MD651 for names that are misspelt versions of known variables, so that nothing reads them."""
    known = [*ALLOC_VARIABLES, *(variable.name for variable in VARIABLES)]
    for name, value in environ.items():
        close = get_close_matches(name, known, 1, 0.85) if name not in known and _LIKE.search(name) else []
        if close and close[0] not in environ:
            fix = Fix(phrase("conf.fix.write", text=close[0]), "env", f"export {close[0]}={quote(value)}")
            evidence = Evidence(phrase("conf_environment.close.why"), f"{name}={value}", "", name)
            title = phrase("conf_environment.close", name=name, close=close[0])
            yield Finding("MD651", title, "warning", None, (evidence,), (fix,))


def _names(environ: Mapping[str, str], scene: Scene, present: list[str]) -> Iterator[Finding]:
    """Returns MD655 and MD658 for the names of the allocator's own variables."""
    if scene.backend == "npu" and len(present) > 1:
        yield Finding(
            "MD658",
            phrase("conf_environment.both", names=joined(present, phrase("remedies.and"))),
            "critical",
            None,
            tuple(Evidence(phrase("conf_environment.set"), environ[name], "", name) for name in present),
            (Fix(phrase("conf_environment.both.fix"), "env", f"unset {present[1]}"),),
        )
    else:
        for name in present[1:]:
            same = environ[name] == environ[present[0]]
            yield Finding(
                "MD658",
                phrase("conf_environment.ignored", name=name, first=present[0]),
                "info" if same else "warning",
                None,
                (
                    Evidence(phrase("conf_environment.ignored.whole"), environ[name], "", name),
                    Evidence(phrase("conf_environment.ignored.read"), environ[present[0]], "", present[0]),
                ),
                (Fix(phrase("conf_environment.ignored.fix"), "env", f"unset {name}"),),
            )
    order = read_order(scene)
    for name in ALLOC_VARIABLES:
        if name in environ and name not in order:
            evidence = Evidence(phrase("conf_environment.foreign.why"), environ[name], "", name)
            fix = Fix(
                phrase("conf_environment.foreign.fix", name=order[0]),
                "env",
                "",
                "",
                phrase("conf_environment.foreign.caveat"),
            )
            unit = "torch_npu" if scene.backend in {"npu", "mindspeed"} else "torch"
            who = {"backend": backend_words(scene.backend), "unit": unit, "version": version_text(scene.version)}
            yield Finding(
                "MD658", phrase("conf_environment.foreign", name=name, **who), "warning", None, (evidence,), (fix,)
            )
    if scene.backend in {"cuda", "hip"} and scene.version == (2, 9) and present and present[0] != GENERAL:
        fix = Fix(phrase("conf_environment.deprecated.fix", name=GENERAL), "env")
        evidence = Evidence(phrase("conf_environment.deprecated.why"), environ[present[0]], "", present[0])
        yield Finding(
            "MD655", phrase("conf_environment.deprecated", name=present[0]), "info", None, (evidence,), (fix,)
        )


def _variable(variable: Variable, value: str, settings: Mapping[str, bool]) -> Iterator[Finding]:
    evidence = (Evidence(phrase("conf_environment.set"), value, "", variable.name),)
    if not re.fullmatch(variable.allowed, value, re.DOTALL):
        fix = (Fix(phrase("conf_environment.range.fix", range=variable.range), "env", f"unset {variable.name}"),)
        title = phrase("conf_environment.range", name=variable.name, value=value, range=variable.range)
        yield Finding("MD652", title, "warning", None, evidence, fix)
    if variable.name == "OOM_SNAPSHOT_PATH" and not (Path(value).is_dir() and os.access(value, os.W_OK)):
        fix = (Fix(phrase("conf_environment.folder.fix"), "env", f"mkdir -p {value}"),)
        yield Finding("MD658", phrase("conf_environment.folder"), "warning", None, evidence, fix)
    for remark in variable.remarks:
        if not re.fullmatch(remark.pattern, value, re.DOTALL):
            continue
        if remark.beside is None or settings.get(remark.beside[0]) is remark.beside[1]:
            reasons = (Evidence(remark.why, f"{variable.name}={value}"),)
            fixes = (Fix(remark.fix, "env", f"unset {variable.name}" if remark.is_unset else ""),)
            yield Finding(remark.code, remark.title, remark.severity, None, reasons, fixes)


def check_builds(environ: Mapping[str, str], builds: Iterable[Mapping[str, Any]], platform: str) -> list[ConfReport]:
    """Returns linter reports on the allocator settings in ``environ``, as each build of torch would read them.

    Args:
        environ: Variables and their values.
        builds: For each torch: "torch_version", and "cuda_build", "hip_build" and "npu_build" (None or missing if not
            built for it), as in the facts of ``memdiag.runs.machine``.
        platform: "windows" or "linux".

    Returns:
        One report per backend; none without settings in ``environ``.
    """
    if not any(name in environ for name in (*ALLOC_VARIABLES, "PYTORCH_NO_CUDA_MEMORY_CACHING")):
        return []
    versions: dict[str, str] = {}
    for facts in builds:
        for backend in ("hip", "cuda", "npu"):
            if facts.get(f"{backend}_build"):
                versions.setdefault(backend, facts["npu_build"] if backend == "npu" else facts["torch_version"])
    if not versions:
        versions = {guess_backend(environ): ""}
    reports = []
    for backend, text in versions.items():
        version = parse_version(text) if text else None
        reports.append(
            check_environment(environ, Scene(backend, version or newest(backend), platform, version is not None))
        )
    return reports
