"""Runs texts through the allocators' own parsers, for tests and to record ``golden_*.json``.

torch 2.13 has three parsers: "common" (shared by all accelerators, in any build of torch), "cuda" (a CUDA build on a
simulated runtime) and "npu" (torch_npu on a simulated runtime). A small C++ program runs the first two. The third runs
through Python, since torch_npu does not export its parser. For older releases of torch, the program is built from
old_parser.cpp. To record again:

    python -m tests.settings.real_parsers record common|npu                  (by an interpreter that has torch, or
    torch_npu) python -m tests.settings.real_parsers record cuda --program PROGRAM      (built from real_parser.cpp with
    -DWITH_CUDA) python -m tests.settings.real_parsers record cuda --version 2.6 --program PROGRAM     (built from
    old_parser.cpp)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 651
COUNT = 350


def build(folder: Path) -> Path:
    """Builds the program for the common parser against the torch of this interpreter; returns its path."""
    from importlib.util import find_spec

    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    torch = Path(spec.origin).parent
    program = folder / "real_parser"
    libraries = [f"-L{torch / 'lib'}", "-lc10", f"-Wl,-rpath,{torch / 'lib'}"]
    compiler = ["g++", "-std=c++20", "-w", f"-I{torch / 'include'}", str(HERE / "real_parser.cpp")]
    subprocess.run([*compiler, "-o", str(program), *libraries], check=True)
    return program


class Program:
    """The running C++ program; a call passes one text to it and returns the outcome."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, text: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(text.encode() + b"\0")
        self._process.stdin.flush()
        outcome: dict[str, Any] = json.loads(self._process.stdout.readline())
        return outcome

    def close(self) -> None:
        """Ends the program."""
        self._process.communicate()


def npu(text: str) -> dict[str, Any]:
    """Returns whether torch_npu starts in a child process with ``text`` as its settings, and the error if not.

    The values that it reads are not accessible.
    """
    import torch
    import torch_npu  # noqa: F401 - registers the device

    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ["PYTORCH_NPU_ALLOC_CONF"] = text
        try:
            torch.empty(1, device="npu")
            outcome: dict[str, Any] = {"accepted": True}
        except torch.OutOfMemoryError:
            outcome = {"accepted": True}  # the text was read and sets a tiny limit
        except (RuntimeError, ValueError) as error:
            outcome = {"accepted": False, "error": str(error).splitlines()[0]}
        os.write(writable, json.dumps(outcome).encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    result: dict[str, Any] = json.loads(said or '{"accepted": false, "error": "died"}')
    return result


def record(backend: str, program: Path | None, version: str) -> None:
    """Writes ``golden_<backend>_<version>.json`` with the texts of texts.py and the parser's outcome for each."""
    import tempfile

    from tests.settings.texts import BY_HAND, generated

    major, minor = map(int, version.split("."))
    texts = list(
        dict.fromkeys([*BY_HAND, *generated("npu" if backend == "npu" else "cuda", SEED, COUNT, (major, minor))])
    )
    ask: Any = npu
    if backend != "npu":
        ask = Program(program or build(Path(tempfile.mkdtemp())))
    base = ask("").get("values", {})
    rows = []
    for text in texts:
        outcome = ask(text)
        values = outcome.get("values", {})
        row = {"text": text, "accepted": outcome["accepted"]}
        if not outcome["accepted"]:
            row["error"] = outcome["error"].split("INTERNAL ASSERT")[0].strip()
        if changed := {key: value for key, value in values.items() if value != base[key]}:
            row["values"] = changed
        rows.append(row)
    lines = ",\n".join(json.dumps(row) for row in rows)
    path = HERE / f"golden_{backend}_{version}.json"
    path.write_text(f'{{"defaults": {json.dumps(base)}, "texts": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{path.name}: {len(rows)} texts, {sum(row['accepted'] for row in rows)} accepted")


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("what", choices=["record"])
    options.add_argument("backend", choices=["common", "cuda", "npu"])
    options.add_argument("--program", type=Path)
    options.add_argument("--version", default="2.13")
    given = options.parse_args()
    record(given.backend, given.program, given.version)
