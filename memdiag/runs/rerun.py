"""A recorded run, from its manifest, and the order to rerun it with other allocator settings."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.runs.listener import SILENT
from memdiag.runs.recording import Order
from memdiag.text import phrase

# Variables that the new run sets itself: the launcher sets ranks and ports, the recorder its own.
_SET_BY_LAUNCHERS = frozenset(
    {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "MEMDIAG_RECORD",
        "MEMDIAG_PHANTOM",
    }
)


@dataclass(frozen=True)
class RepeatableRun:
    """A run that can be repeated.

    Attributes:
        folder: Its folder.
        manifest: As ``memdiag record`` wrote it.
        traces: Its traces, by rank.
    """

    folder: Path
    manifest: Mapping[str, Any]
    traces: tuple[Path, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """Words of the command."""
        return tuple(self.manifest["argv"])

    @property
    def shown(self) -> str:
        """The command as typed in a shell."""
        return shlex.join(self.command)


def find_run(given: Path | None = None, say: Callable[[str], None] = SILENT.say) -> RepeatableRun:
    """Returns the run in a folder, the run that a trace belongs to, or the newest run in this directory.

    Args:
        given: The folder, or the trace, or None for the newest run.
        say: Receives the name of a run that was chosen rather than given.

    Raises:
        MemdiagError: There is no run, its manifest cannot be read, or the command cannot be repeated.
    """
    from memdiag.recorder.run_folder import MANIFEST, read_json, traces
    from memdiag.runs.chosen import choose_trace, original_of

    if given is not None and (given / MANIFEST).is_file():
        folder = given.resolve()
    else:
        if given is not None and not given.exists():
            raise MemdiagError(phrase("errors.missing", path=str(given)), phrase("try.how"))
        folder = original_of(choose_trace(given, say=say).resolve()).parent
    manifest = read_json(str(folder / MANIFEST))
    if manifest is None:
        if given is not None and given.is_file():
            raise MemdiagError(phrase("errors.no-run.file", path=str(given)), phrase("try.how"))
        raise MemdiagError(phrase("errors.no-run", folder=str(given or folder)), phrase("try.how"))
    words = manifest.get("argv")
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise MemdiagError(
            phrase("errors.no-recorded-command", value=str(folder / MANIFEST)),
            phrase("errors.no-recorded-command.hint", how=phrase("try.how")),
        )
    _check(folder, manifest, words)
    return RepeatableRun(folder, manifest, tuple(Path(path) for path in traces(str(folder))))


def _check(folder: Path, manifest: Mapping[str, Any], words: list[str]) -> None:
    from memdiag.recorder.private import HIDDEN

    if any(HIDDEN in word for word in words):
        raise MemdiagError(
            phrase("errors.secret"),
            phrase("errors.secret.hint"),
        )
    if not Path(str(manifest.get("cwd"))).is_dir():
        raise MemdiagError(
            phrase("errors.no-cwd", value=str(manifest.get("cwd"))),
            phrase("errors.see", value=str(folder / "manifest.json")),
        )


def again(run: RepeatableRun, changes: Mapping[str, str], output: str | None) -> Order:
    """Returns the order to rerun it.

    Args:
        run: The recorded run.
        changes: Variables to set in addition to the recorded ones; "" removes one.
        output: The folder of the new run, or None for one next to the recorded run.
    """
    settings = {
        name: value
        for name, value in dict(run.manifest.get("settings") or {}).items()
        if name not in {"folder", "file"}
    }
    settings["backends"] = tuple(settings.get("backends") or ())
    phantom = run.manifest.get("phantom") or {}
    recorded = {
        name: value
        for name, value in dict(run.manifest.get("environment") or {}).items()
        if name not in _SET_BY_LAUNCHERS
    }
    return Order(
        run.command,
        settings,
        output or str(run.folder.parent),
        phantom.get("device"),
        phantom.get("as_rank"),
        phantom.get("world"),
        {**recorded, **changes},
        has_short_name=False,
    )
