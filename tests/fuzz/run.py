"""Fuzzes the readers of all formats: for any bytes, a reader returns a consistent trace or raises MemdiagError.

    python -m tests.fuzz.run --seconds 10                      # 10 seconds per source, as in CI
    python -m tests.fuzz.run --seconds 600 --engine atheris    # guided by coverage (pip install atheris)

The plain engine needs no further packages. It mutates earlier inputs, and keeps inputs with a new outcome. With
NUMBA_BOUNDSCHECK=1 (and a separate NUMBA_CACHE_DIR) it also checks every index of the compiled loops. Compiled code has
no coverage data, so the atheris engine runs the loops as plain Python (NUMBA_DISABLE_JIT=1), which is slow. It stores
inputs with new coverage in --corpus, from which the plain engine can start. Finds are written to --finds, each with its
traceback.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import re
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

_MOST_MEMORY = 4 << 30  # bytes; a reader that needs more for such small inputs raises MemoryError, which is a find
_SMALL = 1 << 16  # bytes; largest input for loops in plain Python
FORMS = ("terminal", "full", "json", "md")  # text forms of a report


class ControlCharacter(Exception):
    """Raised if text of a file could control the terminal of the reader of a report."""


class Session:
    """The fuzzing of one source: its inputs so far, their outcomes, and the finds."""

    def __init__(self, source: str, folder: Path, finds: Path | None, *, report: bool) -> None:
        self.source = source
        self.folder = folder
        self.finds = finds
        self.report = report
        self.inputs: list[bytes] = []
        self.opened: list[bytes] = []
        self.seen: set[str] = set()
        self.failures: dict[str, str] = {}
        self.counts = {"executions": 0, "opened": 0, "refused": 0}
        self._name = next(iter(sorted((HERE / "seeds" / source).iterdir()))).name

    def add(self, inputs: Iterable[bytes]) -> None:
        """Adds initial inputs."""
        for data in inputs:
            self._keep(data, opened=self.one(data) == "opened")

    def _keep(self, data: bytes, *, opened: bool) -> None:
        self.inputs.append(data)
        if opened:
            self.opened.append(data)

    def one(self, data: bytes) -> str:
        """Runs one input; returns its outcome in a few words."""
        from tests.fuzz.forms import write_temporary
        from tests.fuzz.target import outcome

        path = write_temporary(data, self.folder, self._name)
        self.counts["executions"] += 1
        try:
            kind = outcome(self.source, path, self._diagnose if self.report else None)
        except Exception as error:  # noqa: BLE001 - exceptions are the finds
            kind = self._found(data, error)
            del error
            gc.collect()  # the frames of the exception hold the data of the reader
            return kind
        self.counts[kind] += 1
        return kind

    def interesting(self, data: bytes) -> bool:
        """Runs one input; keeps it and returns True if its outcome is new (words of the refusal, or set of notes)."""
        opened = self.one(data) == "opened"
        mark = self._mark(opened=opened)
        if mark in self.seen:
            return False
        self.seen.add(mark)
        self._keep(data, opened=opened)
        return True

    def _mark(self, *, opened: bool) -> str:
        from tests.fuzz.target import last

        return ("opened " if opened else "refused ") + re.sub(r"[0-9,.]+|'[^']*'", "#", last())

    def _diagnose(self, trace: object) -> None:
        from memdiag.analyzers.report import build_report
        from memdiag.errors import MemdiagError
        from memdiag.render import renderer
        from memdiag.render.support.look import Look

        try:
            report = build_report(trace, replay=False)  # type: ignore[arg-type]
        except MemdiagError:
            return
        self._replay(trace)
        for name in FORMS:
            text = renderer("analyze", name)(report, Look(width=80))
            if name == "json":
                json.loads(text)
            if any(ord(character) < 32 and character != "\n" for character in text):
                raise ControlCharacter(
                    f"{name}: {next(c for c in text if ord(c) < 32 and c != chr(10))!r} of the file reaches the reader"
                )

    def _replay(self, trace: Any) -> None:
        """Replays a trace with the recorded settings, and with settings that move every block."""
        from memdiag.allocator.scenario import Scenario
        from memdiag.allocator.subject import Subject
        from memdiag.errors import MemdiagError

        for device in trace.devices:
            try:
                subject = Subject.of(trace, device)
            except MemdiagError:
                continue
            for policy in ("caching", "npu"):
                for conf in ("expandable_segments:True", "roundup_power2_divisions:4"):
                    try:
                        subject.replay(Scenario(policy, conf, "2.13", 8 << 30), log=True)
                    except MemdiagError:
                        continue

    def _found(self, data: bytes, error: Exception) -> str:
        frames = [
            f for f in traceback.extract_tb(error.__traceback__) if "memdiag" in f.filename or "fuzz" in f.filename
        ]
        chain = error.__cause__ or error.__context__
        if chain is not None:
            frames += [f for f in traceback.extract_tb(chain.__traceback__) if "memdiag" in f.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        key = f"{type(error).__name__} at {place}: {re.sub('[0-9]+', '#', str(error))[:80]}"
        if key not in self.failures:
            self.failures[key] = "".join(traceback.format_exception(error))
            print(f"  FIND in {self.source}: {key}", flush=True)
            if self.finds is not None:
                name = f"{self.source}-{sha256(key.encode()).hexdigest()[:10]}"
                self.finds.mkdir(parents=True, exist_ok=True)
                (self.finds / name).write_bytes(data)
                (self.finds / f"{name}.txt").write_text(self.failures[key])
        return "find"


def _from_folder(folder: Path | None, largest: int = 1 << 20) -> list[bytes]:
    if folder is None or not folder.is_dir():
        return []
    return [
        path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file() and 0 < path.stat().st_size <= largest
    ]


def fuzz_plain(
    session: Session, chance: random.Random, more: Callable[[int], bool], corpus: Path | None = None
) -> None:
    """Mutates inputs as long as ``more(executions)`` is true."""
    from tests.fuzz.mutate import mutated

    session.add(_from_folder(HERE / "seeds" / session.source))
    session.add(_from_folder(corpus))
    while more(session.counts["executions"]):
        # Mostly choose inputs that opened, since a refused one is seldom read further. Often choose the newest, so that
        # several oddities combine.
        pool = session.opened if chance.random() < 0.85 and session.opened else session.inputs
        pool = pool[-40:] if chance.random() < 0.4 else pool
        session.interesting(mutated(session.source, chance.choice(pool), session.inputs, chance))


def _fuzz_atheris(session: Session, seconds: int, corpus: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["memdiag"]):
        from memdiag.registry import ANALYZERS, SOURCES
        from memdiag.render import renderer
        from memdiag.sources import load  # noqa: F401 - atheris instruments the module during the import
        from memdiag.trace import annotate  # noqa: F401

        SOURCES[session.source]
        if session.report:
            list(ANALYZERS.values())
        for form in FORMS if session.report else ():
            renderer("analyze", form)
    from tests.fuzz.mutate import mutated

    def mutator(data: bytes, largest: int, seed: int) -> bytes:
        chance = random.Random(seed)  # noqa: S311
        if chance.random() < 0.3:
            return bytes(atheris.Mutate(data, largest))
        return mutated(session.source, data, session.inputs, chance, largest)

    session.add(_from_folder(HERE / "seeds" / session.source, _SMALL))
    corpus.mkdir(parents=True, exist_ok=True)

    def one(data: bytes) -> None:
        session.one(data)
        if session.counts["executions"] % 50 == 0:
            _write_result(session)

    options = [f"-max_total_time={seconds}", f"-max_len={_SMALL}", "-timeout=300", "-rss_limit_mb=6000", "-verbosity=0"]
    atheris.Setup(
        [sys.argv[0], *options, str(corpus), str(HERE / "seeds" / session.source)], one, custom_mutator=mutator
    )
    atheris.Fuzz()


def _write_result(session: Session) -> None:
    place = os.environ.get("MEMDIAG_FUZZ_RESULT")
    if place:
        Path(place).write_text(
            json.dumps({"source": session.source, **session.counts, "finds": list(session.failures)})
        )


def _run_one(source: str, options: argparse.Namespace) -> dict[str, object]:
    """Fuzzes one source in this process."""
    from tests.fuzz.forms import temporary_folder

    with temporary_folder() as folder:
        session = Session(source, Path(folder), options.finds, report=options.report)
        chance = random.Random(f"{options.seed} {source}")  # noqa: S311 - repeatable on purpose
        if options.engine == "atheris":
            _fuzz_atheris(session, options.seconds, (options.corpus or Path(folder) / "corpus") / source)
        else:
            end = time.monotonic() + options.seconds
            fuzz_plain(
                session, chance, lambda _: time.monotonic() < end, options.corpus / source if options.corpus else None
            )
        return {"source": source, **session.counts, "finds": list(session.failures)}


def _in_process_of_its_own(source: str, options: argparse.Namespace) -> dict[str, object]:
    """Fuzzes one source in a new process: libFuzzer never returns, and a reader may kill the process (also a find)."""
    from tests.fuzz.forms import temporary_folder

    with temporary_folder() as folder:
        result = Path(folder) / "result.json"
        arguments = [
            sys.executable,
            "-m",
            "tests.fuzz.run",
            "--worker",
            "--seconds",
            str(options.seconds),
            "--seed",
            str(options.seed),
        ]
        arguments += ["--engine", options.engine, "--sources", source]
        arguments += [x for name in ("corpus", "finds") if (p := getattr(options, name)) for x in (f"--{name}", str(p))]
        arguments += ["--report"] if options.report else []
        environment = {**os.environ, "MEMDIAG_FUZZ_RESULT": str(result)}
        if options.engine == "atheris":
            environment["NUMBA_DISABLE_JIT"] = "1"
        done = subprocess.run(arguments, env=environment, check=False)
        row = (
            json.loads(result.read_text())
            if result.exists()
            else {"source": source, "executions": 0, "opened": 0, "refused": 0, "finds": []}
        )
        if done.returncode != 0:
            row["finds"].append(f"the process ended with {done.returncode}")
        return row


def _engine(asked: str) -> str:
    if asked != "auto":
        return asked
    try:
        import atheris  # noqa: F401
    except ImportError:
        return "plain"
    return "atheris"


def main() -> int:
    """Parses the command line; returns 1 if there are finds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="for each source")
    parser.add_argument("--most", type=int, default=0, help="seconds for all sources together; 0: no limit")
    parser.add_argument("--sources", default="", help="some of them, comma-separated; default: all")
    parser.add_argument("--engine", choices=("auto", "plain", "atheris"), default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--corpus", type=Path, help="where inputs of interest are kept (atheris) and taken from (plain)"
    )
    parser.add_argument("--finds", type=Path, help="where to write what fails")
    parser.add_argument("--report", action="store_true", help="also diagnose and render every trace that opens")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
        # memdiag must not be loaded yet, because atheris instruments modules during their import.
        row = _run_one(options.sources, options)
        place = os.environ.get("MEMDIAG_FUZZ_RESULT")
        if place:
            Path(place).write_text(json.dumps(row))
        return 0
    from tests.fuzz.target import available

    options.engine = _engine(options.engine)
    sources = [name for name in available() if not options.sources or name in options.sources.split(",")]
    if options.most:
        options.seconds = max(1, min(options.seconds, options.most // max(len(sources), 1)))
    failed = False
    for source in sources:
        row = _in_process_of_its_own(source, options)
        failed |= bool(row["finds"])
        print(
            (
                f"{source:20} {row['executions']:9,} executions, {row['opened']:9,} opened, {row['refused']:9,} "
                f"refused, {len(row['finds'])} finds"
            ),
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
