"""Holds phantom CUDA devices against a real one: the same scripts recorded on both, sizes in order and peaks compared.

``make gpu-check``.

    python bench/gpu_check.py --python VENV/bin/python [--device cuda:h200] [--only lstm]

Needs a GPU, a driver and a CUDA build of torch in VENV (transformers for one of the scripts). Without a GPU it says so,
compares nothing and ends with 2. The simulated device uses the profile of the card that was found, with the memory and
multiprocessors that the driver reports, so only the simulation itself can cause a difference. Writes
reports/gpu-check.md.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from memdiag.units import format_bytes

HERE = Path(__file__).parent
REPORT = HERE.parent / "reports" / "gpu-check.md"
KINDS = (
    "gpt-fp32",
    "gpt-bf16",
    "gpt-compiled",
    "gpt-fp16-scaler",
    "gpt-checkpointing",
    "gpt-fused-adam",
    "gpt-graph",
    "gpt-expandable",
    "convolutions",
    "lstm",
    "attention-padded",
    "ddp",
    "fsdp2",
    "transformers-llama",
)
PEAK_TARGET = 0.01
_QUESTION = """
import json, torch
if not torch.cuda.is_available(): raise SystemExit(3)
p = torch.cuda.get_device_properties(0)
print(json.dumps({"name": p.name, "total": p.total_memory, "sms": p.multi_processor_count, "capability": \
f"{p.major}.{p.minor}"}))
"""


@dataclass(frozen=True)
class Recording:
    """The allocator's events in one run.

    Attributes:
        sizes: Of each allocation and each free, in order; frees are negative.
        segments: Of each segment taken from the driver and given back.
        peaks: The highest of allocated and reserved bytes.
    """

    sizes: list[int]
    segments: list[int]
    peaks: tuple[int, int]


def card(python: str) -> dict[str, Any] | None:
    """Returns the GPU's properties from the driver, or None without a GPU that torch can use."""
    done = subprocess.run([python, "-c", _QUESTION], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def profile_of(found: dict[str, Any]) -> str:
    """The phantom of a card, by its name, capability and size, with the card's own figures."""
    from memdiag.phantom.profiles import profiles

    alike = [
        one for one in profiles() if one.backend == "cuda" and str(one.figures["capability"]) == found["capability"]
    ]
    alike = alike or [one for one in profiles() if one.backend == "cuda"]
    nearest = min(alike, key=lambda one: (one.product not in found["name"], abs(one.total_bytes - found["total"])))
    return f"{nearest.full_name},total={found['total']},sms={found['sms']},capability={found['capability']}"


def record(kind: str, python: str, phantom: str | None, folder: Path) -> Recording | str:
    """Records a script on the card, or on its phantom; a text: what went wrong."""
    device = ["--phantom", phantom] if phantom else []
    command = [
        sys.executable,
        "-m",
        "memdiag",
        "record",
        "--quiet",
        "--backend",
        "cuda",
        *device,
        "-o",
        str(folder),
        "--",
    ]
    done = subprocess.run(
        [*command, python, str(HERE / "programs" / "gpu_check.py"), kind], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["nothing was said"])[-1][:200]
    with next(iter(sorted(folder.glob("rank*.pkl")))).open("rb") as file:
        trace = pickle.load(file)["device_traces"][0]  # written a moment ago, by memdiag
    return recording(trace)


def recording(trace: Sequence[dict[str, Any]]) -> Recording:
    """Reads the allocator's entries."""
    signs = {
        "alloc": 1,
        "free_requested": -1,
        "segment_alloc": 1,
        "segment_map": 1,
        "segment_free": -1,
        "segment_unmap": -1,
    }
    sizes: list[int] = []
    segments: list[int] = []
    now, peaks = [0, 0], [0, 0]
    for entry in trace:
        sign = signs.get(entry["action"], 0)
        if not sign:
            continue
        which = int(entry["action"].startswith("segment"))
        (segments if which else sizes).append(sign * entry["size"])
        now[which] += sign * entry["size"]
        peaks[which] = max(peaks[which], now[which])
    return Recording(sizes, segments, (peaks[0], peaks[1]))


def row(kind: str, real: Recording | str, phantom: Recording | str) -> tuple[str, bool, bool]:
    """Returns a row of the table, whether sizes and their order are equal, and whether both peaks meet the target."""
    if isinstance(real, str) or isinstance(phantom, str):
        said = " / ".join(text for text in (real, phantom) if isinstance(text, str)).replace("|", "/")
        return f"| {kind} | not compared: {said} | | | | |", False, False
    same = real.sizes == phantom.sizes
    matcher = SequenceMatcher(None, real.sizes, phantom.sizes, autojunk=False)
    alike = "the same" if same else f"{matcher.ratio():.2%} alike, first at {_first(real.sizes, phantom.sizes):,}"
    segments = "the same" if real.segments == phantom.segments else f"{len(real.segments)} and {len(phantom.segments)}"
    off = [abs(theirs - ours) / max(theirs, 1) for theirs, ours in zip(real.peaks, phantom.peaks, strict=True)]
    shown = " | ".join(
        f"{format_bytes(a)} / {format_bytes(b)} ({share:.2%})"
        for a, b, share in zip(real.peaks, phantom.peaks, off, strict=True)
    )
    return (
        f"| {kind} | {alike} | {len(real.sizes):,} / {len(phantom.sizes):,} | {segments} | {shown} |",
        same,
        max(off) <= PEAK_TARGET,
    )


def _first(one: Sequence[int], other: Sequence[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def main() -> int:
    """Compares what is asked for; 0: compared and within the targets, 1: compared and not, 2: no GPU."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", required=True, help="a Python with a CUDA build of torch")
    parser.add_argument("--device", help="the phantom to compare with; left out: that of the card found")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    found = card(given.python)
    if found is None:
        print("error: no GPU was found (torch.cuda.is_available() is False): nothing was compared", file=sys.stderr)
        print("hint: run make gpu-check on a machine with an NVIDIA GPU and its driver", file=sys.stderr)
        return 2
    phantom = given.device or profile_of(found)
    lines = [
        (
            "| script | sizes in order | events, card / phantom | segments | peak allocated, card / phantom | peak "
            "reserved, card / phantom |"
        )
    ]
    lines.append("|---|---|--:|---|--:|--:|")
    verdicts = []
    for kind in KINDS:
        if given.only not in kind:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            real, other = (
                record(kind, given.python, device, Path(scratch) / name)
                for device, name in ((None, "real"), (phantom, "phantom"))
            )
        line, *verdict = row(kind, real, other)
        lines.append(line)
        verdicts.append(verdict)
        print(line, flush=True)
    num_same, num_near = (sum(verdict[which] for verdict in verdicts) for which in (0, 1))
    of = f"of {len(verdicts)} scripts {num_same} have the same sizes in order, {num_near} have peaks within 1 %."
    said = f"{found['name']} against {phantom}: {of}"
    print(said)
    if not given.only:
        text = (
            f"# Phantom CUDA devices against a real one\n\n`make gpu-check` writes this.\n\n{said}\n\n"
            + "\n".join(lines)
            + "\n"
        )
        REPORT.write_text(text, encoding="utf-8")
    return 0 if verdicts and 2 * num_same >= len(verdicts) and num_near == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
