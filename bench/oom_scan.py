"""Times finding out-of-memory messages in large logs against grep, which only counts the lines that hold three words.

    python bench/oom_scan.py [--gigabytes 1] [--runs 3]

The logs are written to a temporary folder: what 64 ranks print in training (steps, NCCL, bars, warnings, tables), every
line with the rank before it, and a message of eight ranks in the last tenth; text that is new in every line; lines that
all speak of memory, every tenth of running out of it; and ordinary logs, in which nothing may be found.
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
sys.path.insert(0, str(ROOT))

from tests.oom import ordinary_logs  # noqa: E402 - found by the line above

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
        (
            f"{{'loss': {chance.random() * 9:.4f}, 'grad_norm': {chance.random():.3f}, 'memory(GiB)': "
            f"{step / 1e3:.2f}, 'step': {step}}}"
        )
        if step % 4
        else (
            f"node1:{step}:{step} [{step % 8}] NCCL INFO Channel 01/0 : 3[3] -> 4[4] via P2P/CUMEM/read, buffers "
            "allocated"
        )
        for step in range(60_000)
    ]
    lines = [f"[rank{chance.randrange(RANKS)}]: {line}" for line in steps] + said
    chance.shuffle(lines)
    blocks = ["\n".join(lines[start : start + 500]) + "\n" for start in range(0, len(lines), 500)]
    failures = "".join(
        f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {rank + 1}.50 GiB. GPU {rank} "
        f"has a total capacity of 79.11 GiB of which {rank}.25 GiB is free. Including non-PyTorch memory, this process "
        "has 78.00 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 5.00 GiB is "
        "reserved by PyTorch but unallocated.\n"
        for rank in range(FAILED)
    )
    written, failed = 0, False
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            if not failed and written > size * 0.9:
                file.write(failures)
                failed = True
            written += file.write(chance.choice(blocks))


def write_near(path: Path, size: int, chance: random.Random) -> None:
    """Writes a log without a message, of which every line speaks of memory and every tenth of running out of it."""
    before = (
        lambda: f"[rank{chance.randrange(RANKS)}]: ",
        lambda: (
            f"2024-05-11 02:{chance.randrange(60):02}:26,{chance.randrange(1000):03} - "
            f"train.py[line:{chance.randrange(900)}] - INFO: "
        ),
        lambda: f"(RayTrainWorker pid={chance.randrange(9999)}) ",
        lambda: "",
    )
    said = (
        lambda: (
            f"[stage3.py:1850:step] {chance.randrange(9)} pytorch allocator cache flushes since last step: high memory "
            "pressure"
        ),
        lambda: (
            f"step {chance.randrange(9999)} memory allocated {chance.random() * 80:.2f} GiB, reserved "
            f"{chance.random() * 80:.2f} GiB"
        ),
        lambda: (
            f"caching allocator: memory of {chance.randrange(99999)} blocks could not be returned, retrying allocation"
        ),
        lambda: f"UserWarning: memory use {chance.random() * 100:.1f}% is high, allocations may fail",
    )
    close = (
        lambda: f"hint: if you run out of memory at step {chance.randrange(9999)}, lower --batch-size",
        lambda: f"note {chance.randrange(999)}: the launcher restarts a worker that hits an out of memory condition",
        lambda: "see docs/memory.md on what to do about CUDA out of memory errors",
    )
    lines = [chance.choice(before)() + chance.choice(said if number % 10 else close)() for number in range(50_000)]
    _repeat(path, size, "\n".join(lines) + "\n")


def write_text(path: Path, size: int, chance: random.Random) -> None:
    """Writes a log of which hardly a line resembles another: text that a model generates."""
    words = ["".join(chance.choices("etaoinshrdlucmfwypvbgk", k=chance.randrange(2, 10))) for _ in range(5000)] + [
        "memory"
    ] * 5
    with path.open("w", encoding="utf-8") as file:
        written = 0
        while written < size:
            written += file.write(" ".join(chance.choices(words, k=14)) + "\n")


def _ordinary(path: Path, size: int, _chance: random.Random) -> None:
    _repeat(path, size, ordinary_logs.text(min(size, 5 * 10**6), seed=2))


def _repeat(path: Path, size: int, block: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        for _ in range(-(-size // len(block))):
            file.write(block)


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
        log = scratch / "train.log"
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
        beside = []
        for name, write in (
            ("every line speaks of memory", write_near),
            ("every line is new", write_text),
            ("ordinary logs", _ordinary),
        ):
            path = scratch / "other.log"
            write(path, given.ordinary_megabytes * 10**6, random.Random(2))  # noqa: S311 - a log, no secret
            one = Contender(name, [sys.executable, "-c", READ, str(path)], cwd=ROOT)
            one.run(scratch)
            found, _ = json.loads(one.output)
            beside.append((one, path.stat().st_size, found))
    rows = []
    for one in contenders:
        times = [f"{one.best:.2f} s", f"{one.best_cpu:.2f} s", f"{size / one.best_cpu / 1e6:.0f} MB/s"]
        rows.append([one.name, *times, f"{one.peak_bytes / 2**20:.0f} MiB", f"{ours.best_cpu / one.best_cpu:.1f}"])
    table = markdown_table(["", "wall, best", "processor, best", "speed", "peak memory", "memdiag / this"], rows)
    others = [
        [
            one.name,
            f"{length / 1e6:.0f} MB",
            f"{one.best_cpu:.1f} s",
            f"{length / one.best_cpu / 1e6:.1f} MB/s",
            f"{one.peak_bytes / 2**20:.0f} MiB",
            str(found),
        ]
        for one, length, found in beside
    ]
    second = markdown_table(["", "size", "processor", "speed", "peak memory", "messages found"], others)
    false_alarms = sum(found for _one, _length, found in beside)
    peak = max(ours.peak_bytes, *(one.peak_bytes for one, _length, _found in beside))
    kept = "within" if peak <= MEMORY_BOUND else "BEYOND"
    text = f"""# Finding out-of-memory messages in a large log

`python bench/oom_scan.py`: {size / 1e9:.2f} GB, {lines:,} lines of {RANKS} ranks, {FAILED} of which run out of memory.
Three lines in four mention memory, and about one in three hundred is a warning, a table, a document or another error.
Speeds and ratios refer to processor time, system calls included, of alternating runs. Other programs ran on the \
machine (see the load
below), which lengthens the wall time of all runs, and slightly their processor time.

{table}
memdiag found {messages} messages (there are {FAILED}), each with its numbers, verdict and advice; its peak memory is \
{kept} the bound of
{MEMORY_BOUND >> 20} MiB in every log (a process counts the memory of its parent at first, and grep's number shows \
nothing else).

Harder logs without a message, one run each:

{second}
memdiag searches a line only if its kind, the line without digits and blanks, is new. So text in which every line is \
new is slower. In the
ordinary logs (5 MB, repeated), every few lines contain words of a message. Some contain codes and signals, in which \
the digits matter, so
memdiag parses most of the log line by line. A message found there would be a false alarm.

{machine.sentence()}
"""
    data: dict[str, object] = {
        "bytes": size,
        "lines": lines,
        "messages": messages,
        "expected_messages": FAILED,
        "false_alarms": false_alarms,
        "contenders": [one.as_dict() for one in contenders],
        "others": [{**one.as_dict(), "bytes": length, "messages": found} for one, length, found in beside],
        "machine": asdict(machine),
    }
    write_report(given.out, text, data)
    if messages != FAILED or false_alarms or peak > MEMORY_BOUND:
        raise SystemExit("not what is expected: see the report")


if __name__ == "__main__":
    main()
