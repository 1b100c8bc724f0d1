"""Runs trainings that waste memory, each as it is and mended as memdiag advises, and writes reports/pains.md.

    python bench/pains.py --python VENV/bin/python [--only "logits;cache"] [--device cuda:h100-80g]

VENV has a CUDA build of torch (for an NPU: torch_npu and its torch). Each program of bench/programs/pains.py is
recorded three times on a
simulated device: with too little memory, for the report that a user would read; with enough memory, for the
predictions; and corrected, with too little memory again. Kernels do nothing on this device, but the allocator is real.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import memdiag
from memdiag.analyzers.report import build_report
from memdiag.analyzers.support.joined import join
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.units import format_bytes

HERE = Path(__file__).parent
REPORT = HERE.parent / "reports" / "pains.md"
SETTING = "expandable_segments:True"
LIMIT = 600  # seconds of a run


@dataclass(frozen=True)
class Pain:
    """One program.

    Attributes:
        name: Its function in programs/pains.py.
        words: What is wrong with it.
        gib: Memory that is too little for it.
        code: The finding that an expert would begin with.
        setting: It is mended by a setting, not by other code.
        options: Of the recording.
    """

    name: str
    words: str
    gib: float
    code: str
    setting: str = ""
    options: tuple[str, ...] = ()


PAINS = (
    Pain("kept_losses", "validation losses kept with their graph", 12, "MD106"),
    Pain("evaluation", "evaluation without `no_grad`", 30, "MD106"),
    Pain("predictions", "an evaluation that collects its logits", 5, "MD135"),
    Pain("micro_batches", "losses added up for one backward", 9, "MD136"),
    Pain("retained", "`backward(retain_graph=True)`", 8, "MD111"),
    Pain("cache", "a dict of embeddings that grows", 4, "MD301"),
    Pain("first_step", "out of memory in the first optimizer step", 45, "MD104"),
    Pain("gradients", "`zero_grad(set_to_none=False)`", 14, "MD112"),
    Pain("checkpoint", "a checkpoint loaded onto the device", 8, "MD127"),
    Pain("logits", "logits of a large vocabulary in float32", 24, "MD105"),
    Pain("lengths", "batches of changing length", 19, "MD201", SETTING),
    Pain("survivors", "small survivors in large segments", 9, "MD201", SETTING),
    Pain("key_values", "keys and values that grow by `torch.cat`", 2, "MD128"),
    Pain("graphs", "a private pool for each CUDA graph", 5, "MD705"),
    Pain("one_unit", "FSDP of the whole model as one unit", 20, "MD129", "", ("--as-rank", "0", "--world", "8")),
    Pain("fraction", "a forgotten memory fraction", 60, "MD206"),
)


@dataclass
class Row:
    """The results of one program: memdiag's finding and prediction, and the peaks of the corrected program."""

    pain: Pain
    verdict: str = ""
    findings: list[str] = field(default_factory=list)
    predicted: dict[str, int] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    fits: bool = False

    @property
    def place(self) -> int:
        """Position of the expected finding among the remedies, from 1; 0 if it is missing."""
        return self.findings.index(self.pain.code) + 1 if self.pain.code in self.findings else 0


def record(pain: Pain, python: str, device: str, folder: Path, *, mended: bool = False) -> Trace | None:
    """Records a run and loads it; None: it left nothing."""
    environment = dict(os.environ)
    is_npu = device.startswith("npu")
    if mended and pain.setting:
        environment[f"PYTORCH_{'NPU' if is_npu else 'CUDA'}_ALLOC_CONF"] = pain.setting
    words = [*(("--mended",) if mended and not pain.setting else ()), *(("--npu",) if is_npu else ())]
    command = [
        sys.executable,
        "-m",
        "memdiag",
        "record",
        "--quiet",
        "--phantom",
        device,
        *pain.options,
        "-o",
        str(folder),
        "--",
    ]
    command += [python, str(HERE / "programs" / "pains.py"), pain.name, *words]
    subprocess.run(command, env=environment, capture_output=True, timeout=LIMIT, check=False)
    files = sorted(folder.glob("rank*.pkl"))
    return memdiag.load(files[0]) if files else None


def peaks(trace: Trace) -> dict[str, int]:
    """The highest reserved and allocated bytes."""
    usage = trace.devices[0].usage
    return {name: int(usage[name].max(initial=0)) for name in ("reserved", "allocated")}


def study(pain: Pain, python: str, device: str) -> Row:
    """Runs one pain three times."""
    row, small = Row(pain), f"{device},capacity={pain.gib}GiB"
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        if (failed := record(pain, python, small, base / "failed")) is not None:
            messages = join(None, failed).messages
            row.verdict = messages[-1].judgement.verdict if messages else "it fits"
            row.findings = [finding.code for finding in messages[-1].findings] if messages else []
            if not messages:
                row.findings = [finding.code for finding in build_report(failed).findings]
        if (whole := record(pain, python, device, base / "whole")) is not None:
            row.before = peaks(whole)
            row.predicted = predicted(pain, whole)
        if (mended := record(pain, python, small, base / "mended", mended=True)) is not None:
            row.after = peaks(mended)
            row.fits = not join(None, mended).messages
    return row


def predicted(pain: Pain, trace: Trace) -> dict[str, int]:
    """Returns the peaks that the report predicts, by the curve that they belong to."""
    report = build_report(trace)
    if pain.setting:
        told = [result.peak_reserved_bytes for result in report.what_if if result.change.endswith(f"={pain.setting}")]
        return {"reserved": told[0]} if told else {}
    finding = next((finding for finding in report.findings if finding.code == pain.code), None)
    facts = {fact.what: fact.value for fact in finding.evidence} if finding else {}
    left = facts.get(phrase("without.left"))
    return {"allocated": left} if isinstance(left, int) else {}


def table(rows: list[Row], device: str, versions: str) -> str:
    """The report."""
    lines = [
        "# Trainings that waste memory: memdiag's remedies and their effect",
        "",
        (
            f"Made by bench/pains.py on a phantom {device} ({versions}). *First*: whether the first remedy of the "
            "failure's report is"
        ),
        (
            "the one that an expert would choose, and its code. *Predicted*: the peak that the report predicts. For "
            "findings about code, this is"
        ),
        (
            "the peak of the trace without the named tensors; the measured peak is lower if the remedy saves more. For "
            "settings, it is a"
        ),
        "replay. *Measured*: the peak of the fixed program, on the device that was too small.",
        "",
        "| program | GiB it had | verdict | first | peak before | predicted | measured | fits now |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        curve = next(iter(row.predicted), "allocated")
        told = f"{format_bytes(row.predicted[curve])}" if row.predicted else "-"
        first = (
            f"yes, {row.pain.code}"
            if row.place == 1
            else f"no: {row.pain.code} is {f'number {row.place}' if row.place else 'missing'}"
        )
        cells = [
            row.pain.words,
            f"{row.pain.gib:g}",
            row.verdict.replace("_", " "),
            first,
            f"{format_bytes(row.before.get(curve))} {curve}",
            told,
            format_bytes(row.after.get(curve)),
            "yes" if row.fits else "no",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs the chosen programs and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="the interpreter of an environment with torch for the device")
    parser.add_argument("--device", default="cuda:h100-80g")
    parser.add_argument("--only", help="names, separated by ;")
    arguments = parser.parse_args()
    chosen = [pain for pain in PAINS if not arguments.only or re.fullmatch(arguments.only.replace(";", "|"), pain.name)]
    rows = []
    for pain in chosen:
        rows.append(study(pain, arguments.python, arguments.device))
        print(rows[-1], flush=True)
    asked = subprocess.run(
        [arguments.python, "-c", "from importlib.metadata import version; print(version('torch'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    text = table(rows, arguments.device, f"torch {asked.stdout.strip()}")
    if arguments.only:
        print(text)
    else:
        REPORT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
