"""Extension points: each registry maps a name to a module or an attribute, which is imported on first use.

An entry has the attributes of the registry's protocol. Types from higher-level packages are ``Any`` here, since imports
go down only.

Other packages add entries by entry points (docs/extending.md). memdiag looks for them only when a registry is iterated
or asked for a name that it does not know. A plug-in that fails is skipped with a one-line notice and never ends a
command.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from memdiag.errors import MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
R = TypeVar("R")

_GROUP = re.compile(rb"^\[(memdiag\.\w+)\]", re.MULTILINE)


class Registry(Mapping[str, T], Generic[T]):
    """Entries by name, in order: those of memdiag, then plug-ins.

    Args:
        kind: What an entry is, for messages.
        protocol: Attributes that every entry must have.
        targets: memdiag's own entries, as ``"module"`` or ``"module:attribute"``.
        group: Entry-point group through which other packages add entries, or "" if they cannot.
    """

    def __init__(self, kind: str, protocol: type[Any], targets: Mapping[str, str], group: str = "") -> None:
        self.kind, self.protocol, self.targets, self.group = kind, protocol, dict(targets), group
        self._loaded: dict[str, T] = {}
        self._found: dict[str, EntryPoint] | None = None
        self._noted: set[str] = set()

    def __getitem__(self, name: str) -> T:
        """Returns an entry.

        Raises:
            KeyError: There is no entry of that name.
            MemdiagError: A plug-in has that name and cannot be loaded.
        """
        if name not in self._loaded:
            self._loaded[name] = (
                cast("T", resolve(self.targets[name])) if name in self.targets else self._load(self.plug_ins[name])
            )
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        """Yields all names, without importing any entry."""
        yield from self.targets
        yield from self.plug_ins

    def __len__(self) -> int:
        return len(self.targets) + len(self.plug_ins)

    def __contains__(self, name: object) -> bool:
        """Returns whether there is an entry, without importing it."""
        return name in self.targets or name in self.plug_ins

    @property
    def plug_ins(self) -> Mapping[str, EntryPoint]:
        """Entry points of other packages, by name.

        An entry point whose name is already used is ignored, with a notice.
        """
        if self._found is None:
            self._found = {}
            for point in entry_points(self.group) if self.group else ():
                if point.name in self.targets or point.name in self._found:
                    self._note(point, phrase("errors.plug-in.taken"))
                else:
                    self._found[point.name] = point
        return self._found

    def attempt(self, name: str, ask: Callable[[T], R]) -> R | None:
        """Returns the result of ``ask`` for an entry.

        Returns None, with a notice, if a plug-in cannot be loaded or raises.
        """
        if name in self.targets:
            return ask(self[name])
        try:
            return ask(self[name])
        # a plug-in of another package may raise anything, and must not end the command
        except Exception as error:  # noqa: BLE001
            self._note(self.plug_ins[name], str(error) if isinstance(error, MemdiagError) else _described(error))
            return None

    def attempts(self, ask: Callable[[T], R]) -> Iterator[tuple[str, R]]:
        """Yields the name of each entry and the result of ``ask`` for it, if not None; see ``attempt``."""
        for name in self:
            answer = self.attempt(name, ask)
            if answer is not None:
                yield name, answer

    def call(self, name: str, ask: Callable[[T], R]) -> R:
        """Returns the result of ``ask`` for an entry.

        Raises:
            MemdiagError: A plug-in raised an exception of any kind.
        """
        if name in self.targets:
            return ask(self[name])
        try:
            return ask(self[name])
        except MemdiagError:
            raise
        except Exception as error:
            point = self.plug_ins[name]
            raise MemdiagError(
                phrase("errors.plug-in.failed", name=name, package=_package(point), error=_described(error)),
                phrase("errors.plug-in.hint"),
            ) from error

    def _load(self, point: EntryPoint) -> T:
        try:
            entry = point.load()
        except Exception as error:
            raise MemdiagError(
                phrase("errors.plug-in.not-loaded", name=point.name, package=_package(point), error=_described(error)),
                phrase("errors.plug-in.hint"),
            ) from error
        missing = [name for name in members(self.protocol) if not hasattr(entry, name)]
        if missing:
            raise MemdiagError(
                phrase("errors.plug-in.lacks", name=point.name, package=_package(point), missing=", ".join(missing)),
                phrase("errors.plug-in.hint"),
            )
        return cast("T", entry)

    def _note(self, point: EntryPoint, why: str) -> None:
        if point.name not in self._noted:
            self._noted.add(point.name)
            import logging  # without a handler, a warning is one line on stderr

            logging.getLogger("memdiag").warning(
                "%s", phrase("errors.plug-in.unused", kind=self.kind, name=point.name, package=_package(point), why=why)
            )


def members(protocol: type) -> tuple[str, ...]:
    """Returns the attributes that a protocol requires."""
    return tuple(
        sorted(
            {*getattr(protocol, "__annotations__", {}), *(name for name in vars(protocol) if not name.startswith("_"))}
        )
    )


@cache
def _declared_groups() -> frozenset[str]:
    """Returns memdiag's entry-point groups in which any installed package has entry points.

    Importing ``importlib.metadata`` takes longer than importing everything else here, and few installations have
    plug-ins.
    """
    found: set[str] = set()
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as entries:
                names = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        for name in names:
            try:
                text = Path(name, "entry_points.txt").read_bytes()
            except OSError:
                continue
            found |= {group.decode() for group in _GROUP.findall(text)}
    return frozenset(found)


def entry_points(group: str) -> Iterable[EntryPoint]:
    """Returns the entry points of installed packages in one of memdiag's groups, by package name and entry name."""
    if group not in _declared_groups():
        return ()
    import importlib.metadata

    return sorted(importlib.metadata.entry_points(group=group), key=lambda point: (_package(point), point.name))


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name} {point.dist.version}" if point.dist is not None else "unknown package"


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def resolve(target: str) -> Any:
    """Imports ``"module"`` or ``"module:attribute"`` and returns it."""
    module, _, attribute = target.partition(":")
    loaded = import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


class Source(Protocol):
    """A format of trace files.

    Attributes:
        FORMAT: Its name.
    """

    FORMAT: str

    def sniff(self, head: bytes) -> bool:
        """Returns whether a file that begins with ``head`` (64 KiB, decompressed) has this format; never raises."""

    def read(self, path: Path) -> Any:
        """Returns the ``Trace`` of a file; raises ``RefusedFile`` if the file cannot be opened."""


class Analyzer(Protocol):
    """A question about a trace.

    Attributes:
        CODES: Meaning of each finding, by code.
    """

    CODES: Mapping[str, str]

    def analyze(self, trace: Any, context: Any) -> Iterable[Any]:
        """Yields each ``Finding`` in a ``Trace``, given the ``Context`` of the report."""


class LintRule(Protocol):
    """A pattern to look for in source code.

    Attributes:
        CODE, SEVERITY: Code and severity of its findings.
        WORDS: A file that contains none of them is not searched.
    """

    CODE: str
    SEVERITY: Any
    WORDS: tuple[str, ...]

    def check(self, module: Any) -> Iterable[Any]:
        """Yields each ``Hit`` in a ``Module``."""


class Export(Protocol):
    """An output format of another tool.

    Attributes:
        SUFFIXES: File name suffixes.
    """

    SUFFIXES: tuple[str, ...]

    def write(self, trace: Any, path: Path, wanted: Any) -> list[Path]:
        """Writes the ``Wanted`` parts of a ``Trace``; returns the files."""


# Tried in this order: formats recognised by their first bytes come before formats that are recognised by their columns.
SOURCES: Registry[Source] = Registry(
    "source",
    Source,
    {
        "torch-snapshot": "memdiag.sources.torch_snapshot",
        "memory-viz-html": "memdiag.sources.memory_viz_html",
        "event-npz": "memdiag.sources.event_npz",
        "ascend-db": "memdiag.sources.ascend_db",
        "msmemscope-db": "memdiag.sources.msmemscope_db",
        "msmemscope-csv": "memdiag.sources.msmemscope_csv",
        "ascend-csv": "memdiag.sources.ascend_csv",
        "ascend-memory-usage": "memdiag.sources.ascend_memory_usage",
        "rmm-csv": "memdiag.sources.rmm_csv",
        "lifespans-csv": "memdiag.sources.lifespans_csv",
        "memory-timeline": "memdiag.sources.memory_timeline",
        "chrome-trace": "memdiag.sources.chrome_trace",
        "jax-profile": "memdiag.sources.jax_profile",
        "nccl-log": "memdiag.sources.nccl_log",
        "hccl-log": "memdiag.sources.hccl_log",
        "bfc-dump": "memdiag.sources.bfc_dump",
    },
    "memdiag.sources",
)

# The order in which analyzers run; the report sorts findings by severity and bytes.
ANALYZERS: Registry[Analyzer] = Registry(
    "analyzer",
    Analyzer,
    {
        "quality": "memdiag.analyzers.quality",
        "peak": "memdiag.analyzers.peak",
        "logits": "memdiag.analyzers.logits",
        "kept-passes": "memdiag.analyzers.kept_passes",
        "fragmentation": "memdiag.analyzers.fragmentation",
        "lifetimes": "memdiag.analyzers.lifetimes",
        "lifetime-pools": "memdiag.analyzers.lifetime_pools",
        "leaks": "memdiag.analyzers.leaks",
        "churn": "memdiag.analyzers.churn",
        "changing-sizes": "memdiag.analyzers.changing_sizes",
        "streams": "memdiag.analyzers.streams",
        "private-pools": "memdiag.analyzers.private_pools",
        "communication": "memdiag.analyzers.communication",
        "communicators": "memdiag.analyzers.communicators",
        "scattered": "memdiag.analyzers.scattered",
        "intermediates": "memdiag.analyzers.intermediates",
        "kept_chains": "memdiag.analyzers.kept_chains",
        "attention": "memdiag.analyzers.attention",
        "buckets": "memdiag.analyzers.buckets",
        "gathered": "memdiag.analyzers.gathered",
        "leftovers": "memdiag.analyzers.leftovers",
        "loaded-twice": "memdiag.analyzers.loaded_twice",
        "earlier-attempt": "memdiag.analyzers.earlier_attempt",
        "unused-gradients": "memdiag.analyzers.unused_gradients",
        "resident-data": "memdiag.analyzers.resident_data",
        "collected": "memdiag.analyzers.collected",
        "waiting-graphs": "memdiag.analyzers.waiting_graphs",
        "needless-graphs": "memdiag.analyzers.needless_graphs",
        "large-results": "memdiag.analyzers.large_results",
        "model-copies": "memdiag.analyzers.model_copies",
        "regrown": "memdiag.analyzers.regrown",
        "residue": "memdiag.analyzers.residue",
        "pinned-rounding": "memdiag.analyzers.pinned_rounding",
        "growing-workers": "memdiag.analyzers.growing_workers",
        "saving-peaks": "memdiag.analyzers.saving_peaks",
        "host-limit": "memdiag.analyzers.host_limit",
        "settings": "memdiag.analyzers.settings",
        "scratch": "memdiag.analyzers.scratch",
    },
    "memdiag.analyzers",
)

# Source code patterns that ``memdiag lint`` looks for, by finding code.
LINT_RULES: Registry[LintRule] = Registry(
    "rule",
    LintRule,
    {
        "MD801": "memdiag.lint.rules.gather_list",
        "MD802": "memdiag.lint.rules.embedding",
        "MD803": "memdiag.lint.rules.collectives",
        "MD804": "memdiag.lint.rules.empty_cache",
        "MD805": "memdiag.lint.rules.host_copies",
        "MD806": "memdiag.lint.rules.waits_in_forward",
        "MD807": "memdiag.lint.rules.waits_in_loop",
        "MD808": "memdiag.lint.rules.unfused",
        "MD809": "memdiag.lint.rules.cumsum",
        "MD810": "memdiag.lint.rules.gradient_buckets",
        "MD811": "memdiag.lint.rules.record_stream",
        "MD812": "memdiag.lint.rules.kept_graph",
    },
)

# Formats that ``memdiag export --format`` writes.
EXPORTS: Registry[Export] = Registry(
    "format",
    Export,
    {
        "perfetto": "memdiag.exports.perfetto",
        "speedscope": "memdiag.exports.speedscope",
        "csv": "memdiag.exports.csv_tables",
        "parquet": "memdiag.exports.parquet",
        "snapshot": "memdiag.exports.snapshot",
    },
)


# Functions that show a result in a notebook and on a terminal, by the name of its class. The results are below them.
NOTEBOOK = {
    "LiveTensors": "memdiag.notebook.html:live_html",
    "Prediction": "memdiag.notebook.html:prediction_html",
    "Report": "memdiag.notebook.html:report_html",
    "Trace": "memdiag.notebook.html:trace_html",
}


def in_notebook(value: object) -> str:
    """Returns a result as HTML for a notebook."""
    text: str = resolve(NOTEBOOK[type(value).__name__])(value)
    return text


def in_terminal(value: object) -> str:
    """Returns the live tensors as text."""
    text: str = resolve("memdiag.notebook.html:live_text")(value)
    return text
