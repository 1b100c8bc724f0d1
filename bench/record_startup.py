"""Times what ``memdiag record`` adds to a Python process that never imports torch, and to starting a command.

    python bench/record_startup.py [--python PATH]

``python -c pass`` with and without the recorder's bootstrap on PYTHONPATH, in turns: every tool, hook and helper below
a recorded command pays this. Two more comparisons follow: the fake torch of the tests, for the cost of loading the
recorder itself, and ``memdiag record -q -- true`` with ``true``, for the cost of each run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from measuring import Contender, Machine, markdown_table, measure, write_report

from memdiag.recorder.config import Config
from memdiag.recorder.launch import environment_for

TARGET_MS = 2.0
ROOT = Path(__file__).parents[1]
FAKE_TORCH = ROOT / "tests" / "recorder" / "fake_torch"


def main() -> None:
    """Measures and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="measured runs of each (default 100)")
    parser.add_argument("--python", default=sys.executable, help="the Python that is recorded")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "reports" / "bench-record-startup", help="report, without suffix"
    )
    args = parser.parse_args()
    here = Machine.here()
    # Bytecode is written as it is after an ordinary installation.
    dropped = {"PYTHONPATH", "MEMDIAG_RECORD", "PYTHONDONTWRITEBYTECODE"}
    plain = {name: value for name, value in os.environ.items() if name not in dropped}
    with_torch = {**plain, "PYTHONPATH": str(FAKE_TORCH)}
    with tempfile.TemporaryDirectory() as folder:
        config = Config(str(Path(folder, "run")))
        Path(config.folder).mkdir()
        record = [
            str(Path(sys.executable).with_name("memdiag")),
            "record",
            "-q",
            "-o",
            str(Path(folder, "runs", "x")),
            "--",
            "true",
        ]
        runners = [
            Contender("python -c pass", [args.python, "-c", "pass"], env=plain),
            Contender(
                "the same, below memdiag record", [args.python, "-c", "pass"], env=environment_for(config, plain)
            ),
            Contender("import of a fake torch", [args.python, "-c", "import torch"], env=with_torch),
            Contender(
                "the same, recorded", [args.python, "-c", "import torch"], env=environment_for(config, with_torch)
            ),
            Contender("true", ["true"], env=plain),
            Contender("memdiag record -q -- true", record, env=plain),
        ]
        measure(runners, args.runs, Path(folder))
    pairs = list(zip(runners[::2], runners[1::2], strict=True))
    added = [
        {"of": ours.name, "best_ms": _ms(ours.best - other.best), "median_ms": _ms(ours.median - other.median)}
        for other, ours in pairs
    ]
    times = [[r.name, f"{r.best * 1000:.1f}", f"{r.median * 1000:.1f}"] for r in runners]
    rows = [
        [other.name, f"{_ms(ours.best - other.best)}", f"{_ms(ours.median - other.median)}"] for other, ours in pairs
    ]
    met = "met" if added[0]["median_ms"] <= TARGET_MS else "MISSED"
    text = (
        "# What recording adds to start-up, measured\n\n"
        f"Made by bench/record_startup.py: whole processes, in turns, {args.runs} runs each after one that is not "
        "counted.\n\n"
        f"{markdown_table(['', 'best ms', 'median ms'], times)}\n"
        f"{markdown_table(['added to', 'best ms', 'median ms'], rows)}\n"
        f"A process that never imports torch is to pay at most {TARGET_MS:.0f} ms: {met}.\n\n{here.sentence()}\n"
    )
    write_report(
        args.output,
        text,
        {"machine": asdict(here), "contenders": [runner.as_dict() for runner in runners], "added": added},
    )
    print(text)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


if __name__ == "__main__":
    main()
