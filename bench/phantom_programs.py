"""Runs programs of other people's packages on a phantom device, each twice, and writes reports/phantom-programs.md.

    python bench/phantom_programs.py --python VENV/bin/python [--only "llama;ddp"] [--device cuda:h100-80g]
    python bench/phantom_programs.py --python VENV/bin/python --device npu:910b-64g [--runs 20]

VENV has a CUDA build of torch (for an NPU: torch_npu and its torch) and the packages of PACKAGES; none is installed
here. The programs are written for CUDA; on an NPU torch_npu's transfer_to_npu runs them, and the table is in
reports/phantom-programs-npu.md.

Each program is recorded with ``memdiag record``. The table has the peaks of its device, the seconds of the whole
process, and the number of runs with the same requests in the same order at the same addresses. For a program that
cannot run on a simulated device, the table has the first line of its error.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import memdiag
from memdiag.units import format_bytes

HERE = Path(__file__).parent
REPORTS = HERE.parent / "reports"
PACKAGES = (
    "torch",
    "torch_npu",
    "transformers",
    "accelerate",
    "diffusers",
    "timm",
    "torchvision",
    "lightning",
    "megatron-core",
    "torchao",
    "torchtitan",
    "peft",
    "bitsandbytes",
    "trl",
    "deepspeed",
    "liger_kernel",
    "flash_attn",
    "triton",
)
TEXT = ("llama", "mistral", "qwen2", "qwen3", "mixtral", "gpt2", "bert", "vit", "whisper")
TRAINED = ("llama", "gpt2", "bert", "vit")
NETS = ("resnet50", "convnext_tiny", "vit_small_patch16_224", "efficientnet_b0")
PARALLEL = ("ddp", "zero", "fsdp1", "fsdp2", "tensor", "pipeline")
NATIVE = "../../tests/phantom/programs/train.py"  # a Llama-like model with checkpointing, written for torch_npu
GPTS = (
    ("our own GPT", "gpt-fp32"),
    ("our own GPT, AMP and fused AdamW", "gpt-amp-fused"),
    ("our own GPT, checkpointing", "gpt-checkpointing"),
    ("our own GPT, CUDA graph", "gpt-graph"),
)
# seconds of a run: wall-clock time, and CPU time, which a busy machine does not lengthen
BALANCED = ("--expert-load", "balanced")
LIMIT, CPU_LIMIT = (
    1800,
    400,
)


@dataclass(frozen=True)
class Case:
    """One program.

    The fields are its name in the table, file, arguments, rank, number of ranks, whether it compiles, and options of
    the
    recording.
    """

    name: str
    words: str
    rank: int | None = None
    world: int | None = None
    compiles: bool = False
    options: tuple[str, ...] = ()


@dataclass
class Row:
    """What came of it."""

    name: str
    works: bool
    num_events: int = 0
    allocated_bytes: int = 0
    reserved_bytes: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    is_repeated: bool = False
    said: str = ""
    hashes: list[str] = field(default_factory=list)


def cases(device: str) -> list[Case]:
    """All programs for a device, in the order of the table."""
    if not device.startswith("npu:"):
        return [Case(name, f"gpu_check.py {kind}") for name, kind in GPTS] + cuda_cases() + packages_for_cuda()
    own = [Case("GPT, checkpointing, for torch_npu itself", f"{NATIVE} alone")]
    own += [Case(f"the same, {kind}, rank 517 of 1,024", f"{NATIVE} {kind}", 517, 1024) for kind in ("ddp", "fsdp2")]
    smaller = [
        Case(
            "megatron-core Llama2-7B, TP 8, half the batch, rank 0 of 8",
            "megatron_core.py --tp 8 --layers 32 --batch 2",
            0,
            8,
        )
    ]
    return own + [replace(case, words=f"on_npu.py {case.words}") for case in cuda_cases() + smaller]


def packages_for_cuda() -> list[Case]:
    """Programs of packages that have kernels for CUDA only, or that were tried on CUDA only."""
    found = [
        Case("PEFT, LoRA in bfloat16", "tuning.py lora"),
        Case("PEFT and bitsandbytes, QLoRA in 4 bits, paged AdamW8bit", "tuning.py qlora"),
        Case("PEFT and bitsandbytes, LoRA on 8 bits, paged AdamW8bit", "tuning.py int8"),
        Case("TRL, SFTTrainer", "tuning.py sft"),
        Case("TRL, DPOTrainer with a reference model", "tuning.py dpo"),
        Case("Liger kernels in a Llama", "tuning.py liger"),
        Case("torchao, float8 training", "tuning.py float8"),
        Case("flash-attn in a Llama, without its compiled part", "tuning.py flash"),
    ]
    found += [Case(f"DeepSpeed ZeRO-{stage}, rank 3 of 8", f"deepspeed_zero.py {stage}", 3, 8) for stage in (1, 2, 3)]
    offload = "DeepSpeed ZeRO-2, optimizer on the host, rank 3 of 8"
    titan = "torchtitan_own.py"
    expert_parallel = f"{titan} deepseek_v3 --parallelism.expert_parallel_degree 8"
    tensor_parallel = f"{titan} llama3 --parallelism.tensor_parallel_degree 2"
    return [
        *found,
        Case(offload, "deepspeed_zero.py 2 offload", 3, 8),
        Case("torchtitan's trainer, Llama 3, rank 3 of 8", f"{titan} llama3", 3, 8),
        Case("torchtitan's trainer, Llama 3, TP 2, rank 3 of 8", tensor_parallel, 3, 8),
        Case(
            "torchtitan's trainer, DeepSeek-V3, EP 8, --expert-load balanced", expert_parallel, 3, 8, options=BALANCED
        ),
        Case("transformers mixtral, experts in a loop, --expert-load balanced", "experts.py mixtral", options=BALANCED),
        Case(
            "transformers qwen3_moe, experts in a loop, --expert-load balanced",
            "experts.py qwen3_moe",
            options=BALANCED,
        ),
    ]


def cuda_cases() -> list[Case]:
    """All programs of other people, written for CUDA."""
    found = [Case(f"transformers {name}, plain loop", f"huggingface.py {name} plain") for name in TEXT]
    found += [
        Case(f"transformers {name}, checkpointing", f"huggingface.py {name} checkpointing")
        for name in ("llama", "gpt2")
    ]
    found += [
        Case(f"transformers {name}, Trainer and accelerate", f"huggingface.py {name} trainer") for name in TRAINED
    ]
    found += [
        Case("transformers llama, Trainer, rank 3 of 8", "huggingface.py llama trainer", 3, 8),
        Case("transformers llama, generate, --compute small", "nets.py generate", options=("--compute", "small")),
        Case("diffusers UNet2DConditionModel", "nets.py unet"),
        Case("torchvision deeplabv3_resnet50", "nets.py deeplab"),
        Case("lightning, 16-mixed", "nets.py lightning"),
    ]
    found += [Case(f"timm {name}", f"nets.py timm:{name}") for name in NETS]
    found += [
        Case(f"torchao {name}", f"nets.py torchao:{name}", compiles=True)
        for name in ("AdamW8bit", "AdamW4bit", "AdamWFp8")
    ]
    found += [
        Case(f"torch.compile, {mode}", f"nets.py compile:{mode}", compiles=True)
        for mode in ("default", "reduce-overhead", "max-autotune")
    ]
    found += [Case(f"torch {kind}, rank 3 of 8", f"parallel.py {kind}", 3, 8) for kind in PARALLEL]
    sharded = "megatron_core.py --tp 8 --pp 4 --micro 8 --layers 32 --batch 4 --distributed-optimizer"
    experts = "megatron_core.py --tp 1 --ep 8 --experts 8 --layers 4 --length 2048"
    found += [
        Case("megatron-core Llama2-7B, TP 8, rank 0 of 8", "megatron_core.py --tp 8 --layers 32 --batch 4", 0, 8),
        Case(
            "megatron-core Llama2-7B, TP 2 PP 4, rank 7 of 8",
            "megatron_core.py --tp 2 --pp 4 --micro 8 --layers 32",
            7,
            8,
        ),
        Case("megatron-core, 8 experts, EP 8, padded to capacity, rank 5 of 8", f"{experts} --capacity 1", 5, 8),
        Case(
            "megatron-core, 8 experts, EP 8, no token dropped, --expert-load balanced, rank 5 of 8",
            experts,
            5,
            8,
            options=BALANCED,
        ),
        Case("megatron-core Llama2-7B, TP 8 PP 4, distributed optimizer, rank 517 of 1,024", sharded, 517, 1024),
    ]
    return found


def record(case: Case, python: str, device: str, folder: Path) -> tuple[int, float, float, str]:
    """Records a program into ``folder``; returns exit status, seconds, processor seconds and stderr."""
    ranks = ("--as-rank", str(case.rank), "--world", str(case.world)) if case.rank is not None else ()
    command = [
        sys.executable,
        "-m",
        "memdiag",
        "record",
        "--quiet",
        "--phantom",
        device,
        *ranks,
        *case.options,
        "-o",
        str(folder),
        "--",
    ]
    began, used = time.monotonic(), cpu_seconds()
    environment = {**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": "1", "HF_HUB_OFFLINE": "1"}
    script, *arguments = case.words.split()
    try:
        done = subprocess.run(
            [*command, python, str(HERE / "programs" / script), *arguments],
            cwd=folder.parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            preexec_fn=limit,
        )
    except subprocess.TimeoutExpired:
        return 124, float(LIMIT), cpu_seconds() - used, f"not done after {LIMIT} s"
    took = cpu_seconds() - used
    said = f"not done after {CPU_LIMIT} s of a processor" if done.returncode and took >= CPU_LIMIT else done.stderr
    return done.returncode, time.monotonic() - began, took, said


def limit() -> None:
    """Ends this process and each that it starts once it has used a processor for too long."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT + 10))


def cpu_seconds() -> float:
    """Returns the processor seconds of all processes that have been started so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def entries(recording: Path) -> list[tuple[object, ...]]:
    """Returns the allocator's events of a memdiag recording, in order."""
    with recording.open("rb") as file:
        traces = pickle.load(file)["device_traces"]  # written a moment ago, by memdiag
    return [(entry["action"], entry["size"], entry["addr"], entry.get("stream")) for trace in traces for entry in trace]


def why(said: str) -> str:
    """The line of a program's stderr that says most."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("memdiag: the phantom")]
    errors = [line for line in lines if re.search(r"\w*Error\b", line)]
    return (ours or errors[-1:] or lines[-1:] or ["nothing was said"])[0][:200]


def measure(case: Case, python: str, device: str, runs: int) -> Row:
    """Runs a program some times; one that compiles once more before, which does not count."""
    row = Row(case.name, works=False)
    for number in range(-int(case.compiles), runs):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "run"
            status, *took, said = record(case, python, device, folder)
            is_first = number <= 0
            row.seconds, row.cpu_seconds = (
                now if is_first else min(before, now)
                for before, now in zip((row.seconds, row.cpu_seconds), took, strict=True)
            )
            if status:
                row.said = why(said)
                return row
            if number < 0:
                continue
            first = next(iter(sorted(folder.glob("rank*.pkl"))))
            events = entries(first)
            row.hashes.append(hashlib.sha256(repr(events).encode()).hexdigest())
            if number:
                continue
            trace = memdiag.load(first)
            found = max(trace.devices, key=lambda one: one.usage["reserved"].max(initial=0))
            row.num_events = len(events)
            row.allocated_bytes, row.reserved_bytes = (
                int(found.usage[name].max(initial=0)) for name in ("allocated", "reserved")
            )
            row.said = "; ".join(line for line in said.splitlines() if line.startswith("memdiag: the phantom"))[:300]
    row.works, row.is_repeated = True, len(set(row.hashes)) == 1
    return row


def table(rows: Sequence[Row]) -> str:
    """The rows as markdown."""
    lines = [
        "| program | works | events | peak allocated | peak reserved | time | of a processor | the same |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        took = f"{row.seconds:.0f} s | {f'{row.cpu_seconds:.0f} s' if row.cpu_seconds else ''}"
        if row.works:
            figures = (
                f"{row.num_events:,} | {format_bytes(row.allocated_bytes)} | {format_bytes(row.reserved_bytes)} | "
                f"{took}"
            )
            alike = Counter(row.hashes).most_common(1)[0][1]
            repeated = f"{alike} of {len(row.hashes)} runs"
            lines.append(f"| {row.name} | yes{', but: ' + row.said if row.said else ''} | {figures} | {repeated} |")
        else:
            outcome = "out of memory, as on a device" if "out of memory" in row.said else "no"
            lines.append(f"| {row.name} | {outcome}: {row.said.replace('|', '/')} | | | | {took} | |")
    return "\n".join(lines)


def versions(python: str) -> str:
    """The packages of the Python that runs the programs."""
    ask = (
        f"from importlib.metadata import version\nfor name in {PACKAGES!r}:\n try: print(name, version(name))\n except "
        "Exception: pass"
    )
    return ", ".join(
        subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    )


def main() -> None:
    """Runs the chosen programs and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", required=True)
    parser.add_argument("--device", default="cuda:h100-80g")
    parser.add_argument(
        "--only", default="", help="programs whose name holds one of these, by ;; the others are as in the last report"
    )
    parser.add_argument("--missing", action="store_true", help="programs that have no row yet")
    parser.add_argument("--runs", type=int, default=2)
    given = parser.parse_args()
    kept = stem(given.device).with_suffix(".json")
    kept_rows = json.loads(kept.read_text(encoding="utf-8")) if (given.only or given.missing) and kept.exists() else []
    rows = {row["name"]: Row(**row) for row in kept_rows}
    chosen = cases(given.device)
    for case in chosen:
        if any(part in case.name for part in given.only.split(";")) and not (given.missing and case.name in rows):
            rows[case.name] = measure(case, given.python, given.device, given.runs)
            print(table([rows[case.name]]).splitlines()[-1], flush=True)
            write([rows[one.name] for one in chosen if one.name in rows], given.python, given.device)


def stem(device: str) -> Path:
    """The report for a kind of device, without its suffix."""
    return REPORTS / ("phantom-programs-npu" if device.startswith("npu:") else "phantom-programs")


def write(rows: Sequence[Row], python: str, device: str) -> None:
    """Writes the report, and the rows by themselves."""
    report = stem(device)
    head = report.with_suffix(".md").read_text(encoding="utf-8").partition("<!-- table -->")[0]
    about = f"\n{versions(python)}; {device}; {os.cpu_count()} processor cores.\n\n"
    report.with_suffix(".md").write_text(f"{head}<!-- table -->\n{about}{table(rows)}\n", encoding="utf-8")
    report.with_suffix(".json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
