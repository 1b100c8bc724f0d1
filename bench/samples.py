"""Times training steps of a recording with and without samples of device memory, and counts their bytes.

    python bench/samples.py --device cpu --python PYTHON
    python bench/samples.py --device cuda --phantom cuda:h100-80g --python PYTHON

Steps are those of bench/record.py: CPU time of the mean step, runs in turns, the median of their ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from measuring import Machine, markdown_table, write_report
from record import PROGRAM, SIZES, _step

from memdiag.phantom.launch import environment_for as phantom_environment_for
from memdiag.phantom.launch import same_addresses_from_now_on
from memdiag.phantom.profiles import choose
from memdiag.recorder.config import Config
from memdiag.recorder.launch import environment_for

ROOT = Path(__file__).parents[1]
TARGET = 1.01
OFF, ON = "without samples", "with samples"


def main() -> None:
    """Measures and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=sorted(SIZES), default="cpu")
    parser.add_argument("--python", default=sys.executable, help="the Python that trains")
    parser.add_argument("--phantom", default="", help="the phantom device to train on")
    parser.add_argument("--size", default="", help="layers, width, tokens and steps; default: those of bench/record.py")
    parser.add_argument("--runs", type=int, default=7)
    args = parser.parse_args()
    here = Machine.here()
    size = args.size.split(",") if args.size else map(str, SIZES[args.device])
    command = [args.python, str(PROGRAM), args.device, *size]
    plain = {**os.environ, "OMP_NUM_THREADS": "1"}
    if args.phantom:
        same_addresses_from_now_on()
        plain = phantom_environment_for(choose(args.phantom), command, plain)
    seconds: dict[str, list[float]] = {OFF: [], ON: []}
    sizes: dict[str, list[int]] = {OFF: [], ON: []}
    shares: list[float] = []
    for number in range(args.runs):
        for name, interval in ((OFF, None), (ON, 1.0)) if number % 2 else ((ON, 1.0), (OFF, None)):
            with tempfile.TemporaryDirectory() as folder:
                config = Config(folder, backends=(args.device,), sample_interval=interval)
                seconds[name].append(_step(command, environment_for(config, plain)))
                sizes[name].append(sum(path.stat().st_size for path in Path(folder).glob("rank*.pkl")))
                if name == ON:
                    shares.append(_share(Path(folder), seconds[ON][-1]))
        print(f"run {number + 1} of {args.runs}: {seconds[OFF][-1]:.4f} s, {seconds[ON][-1]:.4f} s", file=sys.stderr)
    ratio = median(on / off for on, off in zip(seconds[ON], seconds[OFF], strict=True))
    title = f"phantom {args.phantom}" if args.phantom else args.device
    rows = [[name, f"{median(seconds[name]) * 1e3:.2f}", f"{median(sizes[name]):,.0f}"] for name in (OFF, ON)]
    text = (
        f"# What samples of device memory cost: {title}\n\nMade by bench/samples.py: a training step of a GPT under "
        f"`memdiag record`, CPU time of the mean step, {args.runs} runs of each in turns, one thread; samples at every "
        f"phase and step, and each second.\n\n{markdown_table(['', 'ms a step', 'bytes of the trace'], rows)}\n"
        f"with / without: {ratio:.4f}, median of the runs' ratios (at most {TARGET}: "
        f"{'met' if ratio <= TARGET else 'MISSED'}).\n\nProcessor time of the samples themselves, counted by the "
        f"recorder: {median(shares):.2%} of the steps, median of the runs. A recording samples by the clock, so that a "
        f"step has more samples on a busy machine than on a quiet one.\n\n{here.sentence()}\n"
    )
    data = {"device": title, "seconds": seconds, "bytes": sizes, "ratio": ratio, "shares": shares}
    write_report(ROOT / "reports" / f"bench-samples-{args.device}", text, data)


def _share(folder: Path, step: float) -> float:
    """Returns the processor time of samples as a fraction of all steps of the run in a folder."""
    (status,) = (json.loads(path.read_text()) for path in folder.glob("rank0.json"))
    return float(status["seconds_in_samples"]) / (step * status["steps"])


if __name__ == "__main__":
    main()
