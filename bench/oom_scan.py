"""Times finding out-of-memory messages in a log of many ranks against grep, which only counts the lines that hold three words.

    python bench/oom_scan.py [--gigabytes 1] [--runs 3]

The log is written to a temporary folder: what 64 ranks print in training (steps, NCCL, bars, warnings, tables), every line with the
rank before it, and a message of eight ranks in the last tenth. Besides, ordinary logs, in which nothing may be found, are read once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from measuring import Contender, Machine, markdown_table, measure, write_report

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "oom"))

import ordinary_logs  # noqa: E402 - found by the line above

RANKS = 64
FAILED = 8
MEMORY_BOUND = 100 << 20
READ = """import json, sys
from memdiag.oom.read import read_files
report = read_files(sys.argv[1:])
print(json.dumps([len(report.messages), report.num_lines]))
"""


def write_log(path: Path, size: int, chance: random.Random) -> None:
    """Writes a training log of at least ``size`` bytes with a message of some ranks near its end."""
    said = ordinary_logs.text(16 << 10).split("\n")
    steps = [
        f"{{'loss': {chance.random() * 9:.4f}, 'grad_norm': {chance.random():.3f}, 'memory(GiB)': {step / 1e3:.2f}, 'step': {step}}}"
        if step % 4
        else f"node1:{step}:{step} [{step % 8}] NCCL INFO Channel 01/0 : 3[3] -> 4[4] via P2P/CUMEM/read, buffers allocated"
        for step in range(60_000)
    ]
    lines = [f"[rank{chance.randrange(RANKS)}]: {line}" for line in steps] + said
    chance.shuffle(lines)
    blocks = ["\n".join(lines[start : start + 500]) + "\n" for start in range(0, len(lines), 500)]
    failures = "".join(
        f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {rank + 1}.50 GiB. GPU {rank} has a total capacity "
        f"of 79.11 GiB of which {rank}.25 GiB is free. Including non-PyTorch memory, this process has 78.00 GiB memory in use. Of the "
        "allocated memory 70.00 GiB is allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but unallocated.\n"
        for rank in range(FAILED)
    )
    written, failed = 0, False
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            if not failed and written > size * 0.9:
                file.write(failures)
                failed = True
            written += file.write(chance.choice(blocks))


def main() -> None:
    """Measures and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ordinary-megabytes", type=int, default=100)
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "bench-oom")
    given = parser.parse_args()
    machine = Machine.here()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        log, ordinary = scratch / "train.log", scratch / "ordinary.log"
        write_log(log, int(given.gigabytes * 1e9), random.Random(1))  # noqa: S311 - a log, no secret
        size = log.stat().st_size
        ours = Contender("memdiag: every message, taken apart", [sys.executable, "-c", READ, str(log)], cwd=ROOT)
        contenders = [
            ours,
            Contender('grep -c "out of memory"', ["grep", "-c", "out of memory", str(log)]),
            Contender('grep -ci "out of memory"', ["grep", "-ci", "out of memory", str(log)]),
        ]
        measure(contenders, given.runs, scratch)
        messages, lines = json.loads(ours.output)
        log.unlink()
        block = ordinary_logs.text(min(given.ordinary_megabytes, 20) * 10**6, seed=2)
        with ordinary.open("w", encoding="utf-8") as file:
            for _ in range(max(1, given.ordinary_megabytes // 20)):
                file.write(block)
        quiet = Contender("ordinary logs", [sys.executable, "-c", READ, str(ordinary)], cwd=ROOT)
        quiet.run(scratch)
        false_alarms, _ = json.loads(quiet.output)
        ordinary_size = ordinary.stat().st_size
    rows = []
    for one in contenders:
        times = [f"{one.best:.2f} s", f"{one.median:.2f} s", f"{size / one.best / 1e6:.0f} MB/s"]
        rows.append([one.name, *times, f"{one.peak_bytes / 2**20:.0f} MiB", f"{ours.best / one.best:.1f}"])
    table = markdown_table(["", "best", "median", "speed", "peak memory", "memdiag / this"], rows)
    kept = "within" if ours.peak_bytes <= MEMORY_BOUND else "BEYOND"
    text = f"""# Finding out-of-memory messages in a large log

`python bench/oom_scan.py`: {size / 1e9:.2f} GB, {lines:,} lines of {RANKS} ranks, {FAILED} of which run out of memory.
Three lines in four tell of memory, and about one in three hundred is a warning, a table, a document or another error.

{table}
memdiag found {messages} messages (there are {FAILED}), each with its numbers, verdict and advice; its peak memory is {kept} the bound of
{MEMORY_BOUND >> 20} MiB (a child counts what its parent held: that is all that grep's number is).

In {ordinary_size / 1e6:.0f} MB of ordinary logs ({min(given.ordinary_megabytes, 20)} MB again and again) it found {false_alarms} messages;
there are none. Every few lines of them speak of running out of memory, so nearly all are taken apart: that took {quiet.best:.1f} s.

{machine.sentence()}
"""
    data: dict[str, object] = {
        "bytes": size, "lines": lines, "messages": messages, "expected_messages": FAILED, "false_alarms": false_alarms,
        "contenders": [one.as_dict() for one in contenders], "ordinary": quiet.as_dict(), "machine": asdict(machine),
    }  # fmt: skip
    write_report(given.out, text, data)
    if messages != FAILED or false_alarms or ours.peak_bytes > MEMORY_BOUND:
        raise SystemExit("not what is expected: see the report")


if __name__ == "__main__":
    main()
